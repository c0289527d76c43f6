"""The end of a batch job, as its environment has it."""

from __future__ import annotations

import pytest

from daskprs._system.batch_system import BEFORE_S, SLURM, batch_end

NOW = 1_800_000_000


def test_the_work_is_over_a_minute_before_slurm_ends_the_job() -> None:
    """Then there is time to end the agents before the kill."""
    at = NOW + 7200
    assert batch_end({SLURM: f"{at}"}, NOW) == at - BEFORE_S


@pytest.mark.parametrize("value", ["", "0", "soon", "-5", f"{NOW - 1}", "١٢", "Unknown"])
def test_what_says_no_end_is_ignored(value: str) -> None:
    """Also a limit that has passed: it was raised since the job began."""
    assert batch_end({SLURM: value}, NOW) is None
    assert batch_end({}, NOW) is None
