"""What listening costs: a job may have a million mini-batches."""

from __future__ import annotations

import gc
import logging
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from daskprs._core.outcomes import Failure
from daskprs._report.listeners import Listeners, listeners_of
from tests.support.job_events import attempt, job_ended, stood

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder

ATTEMPTS = 2_000


@pytest.mark.long
def test_memory_does_not_grow_with_the_mini_batches(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with those that fail either: what was written out is forgotten."""
    monkeypatch.setattr(logging.getLogger("daskprs"), "propagate", False)  # pytest keeps records
    listeners = Listeners(listeners_of(folder, progress=False), folder)
    begun = 0

    def some() -> int:
        nonlocal begun
        for index in range(begun, begun + ATTEMPTS):
            failure = Failure("ValueError", f"row {index} is bad", "Traceback\n")
            listeners.tell(attempt(index, failure if index % 10 == 0 else None, final=True))
            listeners.tell(stood(elapsed_s=index))
        begun += ATTEMPTS
        listeners.tell(job_ended())
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        some()
        before = some()
        after = some()
    finally:
        tracemalloc.stop()
    listeners.close()
    assert after - before < 10 * ATTEMPTS  # ten bytes each, where a row has 250
    assert folder.attempts.read_bytes().count(b"\n") == 3 * ATTEMPTS + 1
