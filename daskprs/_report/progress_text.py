"""The progress of a job in plain text: how far, how fast, how long still, and what runs now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from daskprs._report.humanize import counted, duration, rough_range, used

if TYPE_CHECKING:
    from daskprs._report.job_view import SlotView, View

QUIET_S = 5.0
"""Seconds since the last settled mini-batch after which the text gives a reason …"""
FIRST_S = 1.0
"""… the same until the first mini-batch is settled …"""
LONG_S = 5.0
"""… and seconds in one phase after which a mini-batch is named, though others are settled."""
PHASES = {
    "running": "runs",
    "waiting": "waits for a permit",
    "loading": "loads",
    "returning": "returns its results",
    "init": "init() runs",
    "starting": "agents start",
    "shutdown": "shutdown() runs",
    "idle": "agents are idle",
}
"""Words for each phase, the most important first: a running slot explains idle ones."""
OF_MINI_BATCHES = ("running", "waiting", "loading", "returning")


class _Part(NamedTuple):
    """A piece of a line; if the line is too long, the highest number is left out first."""

    dispensable: int
    text: str


def fraction_done(view: View) -> float | None:
    """Return the share of settled mini-batches; None while their total is unknown."""
    total = view.standing.planned
    return min(1.0, view.standing.settled / total) if total else None


def progress_text(view: View) -> str:
    """Return the progress in one line: `counts_text`, then `now_text`."""
    return ", ".join(text for text in (counts_text(view), now_text(view)) if text)


def counts_text(view: View, width: int | None = None) -> str:
    """Return done and total, failures, remaining time, elapsed time and speed.

    A text of more than `width` characters loses its least important parts; the rest is cut. With a
    width, the count of what is done takes the same room from the beginning to the end.
    """
    standing = view.standing
    total = standing.planned
    counts = counted(standing.settled, "mini-batch")
    if total is not None:
        counts = f"{standing.settled:,}/{total:,}"
        counts = counts.rjust(0 if width is None else 2 * len(f"{total:,}") + 1) + " mini-batches"
    is_over = view.ended or view.doing or standing.settled == total
    left = None if view.left is None or is_over else rough_range(*view.left)
    return _fitting(
        [
            _Part(0, counts),
            _Part(1, _some(standing.mini_batches.failed, "failed")),
            _Part(4, _some(view.retried, "retried")),
            _Part(4, _some(standing.throttled, "throttled")),
            _Part(7, _renewed(standing.renewals)),
            _Part(8, used(standing.spent)),
            _Part(6, _some(standing.recovered, "done in an earlier run")),
            _Part(2, f"{left} left" if left else ""),
            _Part(3, duration(view.elapsed_s)),
            _Part(5, "" if view.per_s is None else _rate(view.per_s)),
        ],
        width,
    )


def _renewed(count: int) -> str:
    return f"{counted(count, 'process')} renewed" if count else ""


def now_text(view: View, width: int | None = None) -> str:
    """Return the reason of a standstill, or the longest present work; then obstacles."""
    if view.ended:
        return ""
    parts = _present(view)
    if not parts and view.obstacles:
        parts = [_Part(0, view.obstacles[0])]
    elif view.obstacles and not view.doing:
        parts += [_Part(9, obstacle) for obstacle in view.obstacles]
    return _fitting(parts, width)


def at_work_text(view: View) -> str:
    """Return the number of slots in each phase: ``4 processes: 3 running, 1 in init()``."""
    words = {"init": "in init()", "shutdown": "in shutdown()"}
    each = [
        f"{view.phases[phase]:,} {words.get(phase, phase)}"
        for phase in PHASES
        if phase in view.phases
    ]
    return f"{counted(sum(view.phases.values()), 'process')}: {', '.join(each)}" if each else ""


def slot_text(slot: SlotView) -> str:
    """Return the work of one slot, with the tries and the time that it has left."""
    return _fitting(_of_slot(slot))


def _fitting(parts: list[_Part], width: int | None = None) -> str:
    parts = [part for part in parts if part.text]
    while width is not None and len(parts) > 1 and len(_joined(parts)) > width:
        parts.remove(max(parts))
    text = _joined(parts)
    return text if width is None or len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _joined(parts: list[_Part]) -> str:
    return ", ".join(part.text for part in parts)


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}" if count else ""


def _rate(per_s: float) -> str:
    """Return mini-batches per second, or per minute or hour where they take long."""
    if per_s >= 10:  # noqa: PLR2004 - a digit more for few
        return f"{per_s:,.0f}/s"
    if per_s >= 1:
        return f"{per_s:.1f}/s"
    per_min = 60 * per_s
    return f"{per_min:.1f}/min" if per_min >= 1 else f"{60 * per_min:.1f}/h"


def _present(view: View) -> list[_Part]:
    """Return the parts about the present; none while nothing takes long."""
    standing = view.standing
    if view.doing:
        return [_Part(0, view.doing)]
    if standing.plan_complete and standing.settled >= standing.mini_batches.total:
        is_long = "shutdown" in view.phases
        return [_Part(0, "stopping processes"), *(_standstill(view) if is_long else ())]
    if standing.retry_in_s is not None and not standing.running:
        others = counted(standing.delayed, "mini-batch") if standing.delayed > 1 else ""
        text = f"waiting for a retry in {duration(standing.retry_in_s)}"
        return [_Part(0, text), _Part(5, others and f"{others} wait for one")]
    is_first = standing.settled <= standing.recovered
    if view.quiet_s >= (FIRST_S if is_first else QUIET_S):
        return _standstill(view)
    longest = next((slot for slot in view.now if slot.phase in OF_MINI_BATCHES), None)
    is_long = longest is not None and longest.for_s >= LONG_S
    return [*_of_slot(longest), _too_few(view)] if longest is not None and is_long else []


def _too_few(view: View) -> _Part:
    """Return the part about slots that get no mini-batch, as the plan has too few."""
    planned = view.standing.planned
    if planned is None or planned >= view.slots:
        return _Part(8, "")
    count = f"{counted(planned, 'mini-batch')} for {counted(view.slots, 'slot')}"
    return _Part(8, f"{count} (see mini_batch_size)")


def _standstill(view: View) -> list[_Part]:
    """Return why no mini-batch is settled: the most important phase, the slot longest in it."""
    if view.slots == 0:
        return [_Part(0, f"waiting for workers for {duration(view.quiet_s)}")]
    if not view.now:
        return [_Part(0, f"agents start for {duration(view.quiet_s)}")]
    order = list(PHASES)
    phase = min(view.phases, key=order.index)
    longest = next(slot for slot in view.now if slot.phase == phase)
    alike = view.phases[phase]
    if longest.mini_batch is not None and phase in OF_MINI_BATCHES:
        few = [_too_few(view)] if longest.for_s >= LONG_S else []
        others = f"{counted(alike - 1, 'process')} more" if alike > 1 else ""
        return [*_of_slot(longest), _Part(5, others), *few]
    all_ = counted(sum(view.phases.values()), "process")
    for_s = longest.for_s or view.quiet_s  # a slot without a process has no phase of its own
    text = f"{PHASES[phase]} for {duration(for_s)} on {alike:,} of {all_}"
    return [_Part(0, text), _Part(2, _timeout(longest) if phase == "init" else "")]


def _of_slot(slot: SlotView) -> list[_Part]:
    if slot.mini_batch is None or slot.phase not in OF_MINI_BATCHES:
        return [
            _Part(0, f"{PHASES[slot.phase]} for {duration(slot.for_s)}"),
            _Part(1, f"node {slot.node} {slot.process}".rstrip()),
        ]
    what = f"mini-batch {slot.mini_batch} {PHASES[slot.phase]} for {duration(slot.for_s)}"
    return [
        _Part(0, f"{what} on node {slot.node} {slot.process}"),
        _Part(2, _timeout(slot)),
        _Part(3, _tries(slot.tries_left)),
    ]


def _timeout(slot: SlotView) -> str:
    return "" if slot.timeout_in_s is None else f"timeout in {duration(slot.timeout_in_s)}"


def _tries(left: int | None) -> str:
    if left is None:
        return ""
    return f"{left} {'try' if left == 1 else 'tries'} left" if left else "last try"
