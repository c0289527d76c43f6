"""The progress of a job in one line of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from daskprs.report.humanize import duration
from daskprs.report.progress.rate import Pace, settled, total_of
from daskprs.report.progress.stall_reason import why_waiting

if TYPE_CHECKING:
    from daskprs.core.events import ProgressReported


class View(NamedTuple):
    """The values that a progress display shows."""

    stood: ProgressReported
    pace: Pace = Pace()
    retried: int = 0
    """Number of failed attempts that are followed by another one."""
    slots: int = 0
    """Number of slots that the cluster offers."""
    ended: bool = False


class _Part(NamedTuple):
    """A piece of the line; if the line is too long, the highest number is left out first."""

    dispensable: int
    text: str


def fraction_done(view: View) -> float | None:
    """Return the share of settled mini-batches; None while their total is unknown."""
    standing = view.stood.standing
    total = total_of(standing)
    return min(1.0, settled(standing) / total) if total else None


def progress_text(view: View, width: int | None = None) -> str:
    """Return done and total, rate, failures, remaining time, and the reason of a stall.

    Parameters
    ----------
    view
        The values to show.
    width
        Maximum number of characters: the least important parts are left out, and the rest is cut.

    """
    parts = [part for part in _parts(view) if part.text]
    while width is not None and len(parts) > 1 and len(_joined(parts)) > width:
        parts.remove(max(parts))
    text = _joined(parts)
    return text if width is None or len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _joined(parts: list[_Part]) -> str:
    return ", ".join(part.text for part in parts)


def _parts(view: View) -> list[_Part]:
    stood, pace = view.stood, view.pace
    standing = stood.standing
    done, total = settled(standing), total_of(standing)
    counts = f"{done:,}" if total is None else f"{done:,}/{total:,}"
    left_s = None if view.ended else pace.left_s
    return [
        _Part(0, f"{counts} mini-batches"),
        _Part(6, "" if pace.per_s is None else _rate(pace.per_s)),
        _Part(2, _some(standing.mini_batches.failed, "failed")),
        _Part(5, _some(view.retried, "retried")),
        _Part(7, _some(standing.recovered, "done in an earlier run")),
        _Part(4, duration(stood.elapsed_s)),
        _Part(3, f"{duration(left_s)} left" if left_s else ""),
        _Part(1, "" if view.ended else why_waiting(stood, view.slots)),
    ]


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}" if count else ""


def _rate(per_s: float) -> str:
    """Return mini-batches per second, or per minute where they take long."""
    if per_s >= 10:  # noqa: PLR2004 - a digit more for few
        return f"{per_s:,.0f}/s"
    return f"{per_s:.1f}/s" if per_s >= 1 else f"{60 * per_s:.1f}/min"
