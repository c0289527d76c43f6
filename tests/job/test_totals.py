"""The counts of a job that ends early, and of one that is resumed: those of its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs._core.accounts import Settled
from daskprs._core.ledger import Ledger
from daskprs._job import job

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = pd.DataFrame({"number": range(60)})
INLINE: dict[str, Any] = {
    "start_method": "inline",
    "mini_batch_size": "3 rows",
    "progress": False,
    "run_max_try": 1,
}
OF_THE_SECOND = "Mini-batches: 9 of 20 succeeded, 1 failed. Items: 27 succeeded, 3 failed. "


class Script:
    """A script that fails in the rows it is told of."""

    def __init__(self, *bad: int) -> None:
        self.bad = bad

    def __call__(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the rows."""
        if rows["number"].isin(self.bad).any():
            raise ValueError
        return rows


def test_a_job_that_ends_early_has_the_total_of_its_plan(tmp_path: Path) -> None:
    """Its message, its result and its progress say the same, and its items are not all of them."""
    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        daskprs.parallel_run(NUMBERS, Script(27), job_dir=tmp_path / "job", **INLINE)
    result = caught.value.result
    assert result.mini_batches == (20, 9, 1)
    assert OF_THE_SECOND in str(caught.value)
    assert "20 planned, 9 succeeded, 1 failed" in repr(result)
    assert "rows         27 succeeded, 3 failed" in repr(result)


def test_what_earlier_runs_have_done_counts_from_the_start(tmp_path: Path) -> None:
    """Not as the plan comes to it: a resume that ends in its first mini-batch has all of it."""
    given: dict[str, Any] = {"job_dir": tmp_path / "job", **INLINE, "allowed_failed_count": 1}
    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        daskprs.parallel_run(NUMBERS, Script(0, 57), **given)
    assert caught.value.result.mini_batches == (20, 18, 2)
    given |= {"allowed_failed_count": 0, "resume": True}
    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        daskprs.parallel_run(NUMBERS, Script(0, 57), **given)
    assert caught.value.result.mini_batches == (20, 18, 1)
    assert caught.value.result.items == (57, 54, 3)


def test_a_resume_without_a_job_says_that_a_new_one_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name of the folder may be mistyped; the next resume has a job to go on with."""
    given = {"job_dir": tmp_path / "typoo", **INLINE, "progress": True, "resume": True}
    daskprs.parallel_run(NUMBERS, Script(), **given)
    told = f"there is no job in {tmp_path / 'typoo'} to go on with: a new one begins"
    assert told in capsys.readouterr().err
    daskprs.parallel_run(NUMBERS, Script(), **given)
    said = capsys.readouterr().err
    assert "a new one begins" not in said
    assert "resumed: what an earlier run has committed" in said


@pytest.mark.parametrize(
    ("on_error", "resume", "settled"),
    [
        ("isolate", True, (20, 0, 60)),
        ("isolate", "failed", (17, 0, 51)),
        (None, True, (17, 0, 51)),
        (None, "extend", (17, 3, 60)),
    ],
)
def test_the_plan_comes_to_all_that_earlier_runs_have_done(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    on_error: str | None,
    resume: bool | str,  # noqa: FBT001 - a value of the option
    settled: tuple[int, int, int],
) -> None:
    """Whether it is whole, lacks rows, or has failed for good."""
    ledgers: list[Ledger] = []
    befores: list[tuple[int, int, int]] = []

    def heard(*given: Any, before: Settled, **options: Any) -> Ledger:
        befores.append((before.succeeded, before.given_up, before.items))
        ledgers.append(Ledger(*given, before=before, **options))
        return ledgers[-1]

    monkeypatch.setattr(job, "Ledger", heard)
    given = {"job_dir": tmp_path / "job", **INLINE, "allowed_failed_count": -1}
    given |= {} if on_error is None else {"on_error": on_error}
    daskprs.parallel_run(NUMBERS, Script(0, 30, 57, 58, 59), **given)
    given |= {"resume": resume, "accept_changes": "script"}
    daskprs.parallel_run(NUMBERS, Script(), **given)
    assert befores == [(0, 0, 0), settled]
    assert all(one._state.tally.before == Settled() for one in ledgers)
