"""Traces: the events of real jobs as lines of JSON, as far as the time left depends on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import (
    AgentChanged,
    AttemptFailed,
    Counts,
    JobStarted,
    MiniBatchesDone,
    Place,
    Progress,
    ProgressReported,
    SlotsChanged,
    SlotState,
)
from daskprs._core.lease import AgentExited, AgentReady
from daskprs._core.limits import Limits
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.outcomes import Failure, Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._core.events import Event

TRACES = Path(__file__).parent / "traces"


def written(event: Event) -> Iterator[list[Any]]:
    """Yield an event as JSON values, if the time left depends on it."""
    match event:
        case JobStarted(limits=limits, sizes=sizes, expected=expected):
            yield [
                "started",
                expected,
                list((sizes or {}).items()),
                limits.run_timeout_s,
                limits.run_max_try,
            ]
        case SlotsChanged(nodes, slots):
            yield ["slots", nodes, slots]
        case AgentChanged(place, AgentReady(process, elapsed_s)):
            yield ["ready", place.node, process, round(elapsed_s, 3)]
        case AgentChanged(place, AgentExited(process=process, expected=expected)):
            yield ["exited", place.node, process, expected]
        case MiniBatchesDone(place, mini_batches, outcomes):
            rows = zip(mini_batches, outcomes, strict=True)
            yield ["done", *place[:2], [_attempt(one, outcome) for one, outcome in rows]]
        case AttemptFailed(place, mini_batch, outcome, final, charged):
            yield ["failed", *place[:2], _attempt(mini_batch, outcome), final, charged]
        case ProgressReported(standing, slots, elapsed_s, quiet_s):
            counts = (*standing.mini_batches, standing.plan_complete, standing.expected)
            states = [
                (*slot.place[:2], slot.phase, round(slot.since_s, 2), slot.index, slot.size)
                for slot in slots
            ]
            yield ["stood", round(elapsed_s, 2), round(quiet_s, 2), *counts, states]


def read(name: str) -> Iterator[Event]:
    """Yield the events of a trace."""
    for line in (TRACES / f"{name}.jsonl").read_text().splitlines():
        match json.loads(line):
            case "started", expected, sizes, timeout_s, max_try:
                known = dict(sizes) or None
                limits = Limits(run_timeout_s=timeout_s, run_max_try=max_try)
                yield JobStarted("1a2b", "script.py", "row", 0, expected, False, {}, limits, known)
            case "slots", nodes, slots:
                yield SlotsChanged(nodes, slots)
            case "ready", node, process, elapsed_s:
                yield AgentChanged(Place(node, process), AgentReady(process, elapsed_s))
            case "exited", node, process, expected:
                yield AgentChanged(Place(node, process), AgentExited(process, 0, "", expected))
            case "done", node, process, attempts:
                mini_batches, outcomes = zip(*map(_read_attempt, attempts), strict=True)
                place = Place(node, process)
                yield MiniBatchesDone(place, list(mini_batches), ColumnBatch(outcomes))
            case "failed", node, process, attempt, final, charged:
                yield AttemptFailed(Place(node, process), *_read_attempt(attempt), final, charged)
            case "stood", elapsed_s, quiet_s, total, done, failed, complete, expected, states:
                counts = Counts(total, done, failed)
                standing = Progress(counts, counts, complete, expected, 0, 0, 0)
                slots = tuple(
                    SlotState(Place(node, process), phase, since_s, index, size=size)
                    for node, process, phase, since_s, index, size in states
                )
                yield ProgressReported(standing, slots, elapsed_s, quiet_s)


def _attempt(mini_batch: MiniBatch, outcome: Outcome) -> list[Any]:
    times = round(outcome.started, 3), round(outcome.elapsed_s, 3)
    return [mini_batch.index, mini_batch.size, outcome.attempt, outcome.status.value, *times]


def _read_attempt(values: list[Any]) -> tuple[MiniBatch, Outcome]:
    index, size, attempt, status, started, elapsed_s = values
    failure = None if status == Status.RUN_DONE else Failure(status, "")
    outcome = Outcome(
        *(index, attempt, Status(status), 1, 1, started, elapsed_s, elapsed_s, 0.0),
        failure=failure,
    )
    return MiniBatch(index, None, "", size_bytes=size), outcome
