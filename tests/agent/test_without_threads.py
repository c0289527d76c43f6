"""Agents that the system refuses threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.limited_call import run_limited, why_not


def test_an_agent_without_threads_sends_each_outcome_at_once_and_loads_nothing_ahead() -> None:
    """It is as good as any other, and no script is blamed."""
    if reason := why_not():
        pytest.skip(reason)
    script = Path(__file__).parent / "without_threads.py"
    assert run_limited(script, nproc=1, OPENBLAS_NUM_THREADS="1") == "[0]\n"
