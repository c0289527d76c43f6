"""Requests to cancel a job that runs in a thread of its own."""

from __future__ import annotations

import pytest

from daskprs._job.control import JobControl


def test_a_second_request_waits_for_no_lock() -> None:
    """The interrupt of the first one may have hit its thread while that held the lock."""
    control = JobControl()
    control.cancel()
    assert control._lock.acquire(blocking=False)
    control.cancel()
    with pytest.raises(KeyboardInterrupt):
        control.check()
