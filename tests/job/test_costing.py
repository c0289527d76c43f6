"""A function of the script says what rows cost: asked once, in agents, before the first call."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import daskprs
from daskprs._agent.child.permits import Permits
from daskprs._agent.child.script_calls import HOLD_INLINE_S
from daskprs._core.ending import JobStatus
from daskprs._core.ledger_state import COMES_BACK_S
from daskprs._folders.job_folder import JobFolder
from daskprs._inputs.costs import Cutter
from daskprs._job.verification import verify
from daskprs.errors import (
    JobChanged,
    OptionError,
    ParallelRunFailed,
    ParallelRunInterrupted,
    ScriptError,
)
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("inline")

LENGTHS = np.random.default_rng(7).lognormal(3, 1, 200).astype(int) + 1
TEXTS = pd.DataFrame({"n": range(200), "text": ["x" * length for length in LENGTHS]})
SCRIPT = """
import os
from pathlib import Path

SEEN = Path({seen!r})  # an agent has a copy of the script

def note(*what):
    with SEEN.open("a") as file:
        print(*what, os.getpid(), file=file)

def init():
    note("init")

def length(rows):
    note("cost", len(rows))
    {answer}

def run(rows, context):
    note("run", len(rows))
    {run}
    return rows.assign(of=context.minibatch_index)
"""
ANSWER = "return rows['text'].str.len()"


def script(folder: Path, answer: str = ANSWER, run: str = "pass") -> Path:
    """Write the script, whose calls are noted beside its folder."""
    (folder / "src").mkdir(exist_ok=True)
    path = folder / "src" / "score.py"
    path.write_text(SCRIPT.format(answer=answer, run=run, seen=str(folder / "seen")))
    return path


def calls(folder: Path, what: str) -> list[list[str]]:
    """Return what was noted of some calls."""
    lines = (folder / "seen").read_text().splitlines() if (folder / "seen").exists() else []
    return [words for line in lines if (words := line.split())[0] == what]


def job(data: Any, entry: Any, folder: Path, **options: Any) -> Any:
    """Run a job over rows that are cut by their lengths."""
    given = {"mini_batch_size": 100, "mini_batch_cost": "length", "progress": False, **options}
    return daskprs.parallel_run(data, entry, job_dir=folder / "job", **given)


def expected() -> list[int]:
    """Return the rows of each mini-batch."""
    cutter = Cutter(100)
    cutter.add(LENGTHS.astype(float))
    return cutter.rows().tolist()


def rows_of_each(result: Any) -> list[int]:
    """Return the rows of each mini-batch that ran."""
    return result.to_pandas().groupby("of").size().tolist()


@pytest.mark.parametrize(
    "form", mostly_long(["frame", "objects", "csv", "parquet", "jsonl"], suite=["objects", "csv"])
)
def test_the_function_cuts_as_a_column_would(form: str, tmp_path: Path) -> None:
    """Whatever the table is."""
    data: Any = tmp_path / f"texts.{form}"
    match form:
        case "frame":
            data = TEXTS
        case "objects":
            data = TEXTS.assign(more=[{1}] * len(TEXTS))
        case "csv":
            TEXTS.to_csv(data, index=False)
        case "parquet":
            TEXTS.to_parquet(data)
        case "jsonl":
            TEXTS.to_json(data, orient="records", lines=True)
    result = job(data, script(tmp_path), tmp_path)
    assert rows_of_each(result) == expected()
    assert result.to_pandas()["n"].tolist() == [*range(200)]
    folder = JobFolder(result.job_dir)
    assert folder.cost_plan.exists()
    assert not folder.costs.exists()


@pytest.mark.processes
def test_the_function_runs_in_agents_and_never_in_the_driver(tmp_path: Path) -> None:
    """As all code of a script does; with the labels of the frame kept."""
    frame = TEXTS.set_axis(TEXTS["n"] + 1000)
    result = job(frame, script(tmp_path), tmp_path, process_count_per_node=2)
    assert rows_of_each(result) == expected()
    assert result.to_pandas().index.tolist() == [*range(1000, 1200)]
    processes = {words[-1] for words in calls(tmp_path, "cost")}
    assert processes
    assert str(os.getpid()) not in processes


def test_a_function_that_is_an_object(tmp_path: Path) -> None:
    """Beside a script that is one, or by the name of its method."""

    class Script:
        """Has a method beside `run`."""

        def length(self, rows: Any) -> Any:
            return rows["text"].str.len()

        def run(self, rows: Any, context: Any) -> Any:
            return rows.assign(of=context.minibatch_index)

    by_name = job(TEXTS, Script(), tmp_path / "a")
    given = job(TEXTS, Script, tmp_path / "b", mini_batch_cost=lambda rows: [*map(len, rows.text)])
    assert rows_of_each(by_name) == rows_of_each(given) == expected()


def test_init_of_the_cost_may_do_without_the_model(tmp_path: Path) -> None:
    """`init_preprocess` stands for `init` where `run` is never called."""
    entry = script(tmp_path)
    entry.write_text(f"{entry.read_text()}\ndef init_preprocess():\n    note('light')\n")
    job(TEXTS, entry, tmp_path)
    assert len(calls(tmp_path, "light")) == 1
    assert len(calls(tmp_path, "init")) == 1


def test_a_resume_has_the_same_plan_and_asks_no_more(tmp_path: Path) -> None:
    """Also with a mended script, whose function would answer otherwise."""
    entry = script(tmp_path, run="assert rows['n'].iloc[0] < 100")
    with pytest.raises(ParallelRunFailed) as caught:
        job(TEXTS, entry, tmp_path, run_max_try=1)
    done = caught.value.result.mini_batches
    assert done.succeeded > 0 < done.failed
    assert done.total == len(expected())
    asked = len(calls(tmp_path, "cost"))
    script(tmp_path, answer="return [1] * len(rows)")
    result = job(TEXTS, entry, tmp_path, resume=True, accept_changes="script")
    assert result.status == JobStatus.COMPLETED
    assert rows_of_each(result) == expected()
    assert len(calls(tmp_path, "cost")) == asked


def test_another_size_is_another_job(tmp_path: Path) -> None:
    """As it is by bytes."""
    entry = script(tmp_path)
    job(TEXTS, entry, tmp_path)
    with pytest.raises(JobChanged, match=r"mini_batch_size was 100\.0 and is 200\.0"):
        job(TEXTS, entry, tmp_path, resume=True, mini_batch_size=200)


@pytest.mark.parametrize(
    ("answer", "said"),
    mostly_long(
        [
            ("return [1, 2]", r"length\(\) returned a list of length 2 for 200 rows"),
            ("return None", r"length\(\) returned a NoneType for 200 rows"),
            ("return rows['text']", r"length\(\) returned a Series for 200 rows"),
            ("return [1.0] * 17 + [float('nan')] * 183", r"length\(\): row 17: the cost is nan"),
            ("return [1.0] * 17 + [-2] * 183", r"length\(\): row 17: the cost is -2\.0"),
            ("raise KeyError('text')", r"KeyError: 'text'"),
        ],
        suite=[
            ("return [1.0] * 17 + [float('nan')] * 183", r"length\(\): row 17: the cost is nan"),
            ("raise KeyError('text')", r"KeyError: 'text'"),
        ],
    ),
)
def test_a_bad_answer_ends_the_job_before_anything_runs(
    answer: str, said: str, tmp_path: Path
) -> None:
    """The message names the row and the value, and a mended script goes on."""
    entry = script(tmp_path, answer)
    with pytest.raises(ScriptError, match=said) as caught:
        job(TEXTS, entry, tmp_path)
    assert str(JobFolder(tmp_path / "job").costs / "logs") in str(caught.value)
    assert not calls(tmp_path, "run")
    result = job(TEXTS, script(tmp_path), tmp_path, resume=True)
    assert rows_of_each(result) == expected()


def test_an_endpoint_without_quota_interrupts_the_job_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that asks an endpoint for the number of tokens, say; a resume goes on.

    The thread of the caller drives the job, which would not end while that pauses.
    """
    pauses: list[Any] = []
    pause = Permits.throttle

    def noted(permits: Permits, after_s: float | None) -> None:
        pauses.append(after_s)
        pause(permits, 0.1)

    monkeypatch.setattr(Permits, "throttle", noted)
    paid = tmp_path / "paid"
    error = "error = OSError('no money is left')"
    codes = "error.status_code, error.code = 429, 'insufficient_quota'"
    fails = f"if not os.path.exists({str(paid)!r}): {error}; {codes}; raise error"
    entry = script(tmp_path, f"{fails}\n    {ANSWER}")
    with pytest.raises(ParallelRunInterrupted, match="are not known: the quota of the endpoint"):
        job(TEXTS, entry, tmp_path)
    assert not calls(tmp_path, "run")
    assert {*pauses} == {HOLD_INLINE_S}
    assert HOLD_INLINE_S <= COMES_BACK_S
    paid.touch()
    assert rows_of_each(job(TEXTS, entry, tmp_path, resume=True)) == expected()


def test_a_name_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    """With the nearest column or function."""
    with pytest.raises(ScriptError, match=r"no such column, .* no such function\. Did you mean le"):
        job(TEXTS, script(tmp_path), tmp_path, mini_batch_cost="lenght")
    with pytest.raises(ScriptError, match="Did you mean text"):
        job(TEXTS, lambda rows: rows, tmp_path, mini_batch_cost="texts")
    assert not (tmp_path / "job").exists()


@pytest.mark.processes
def test_another_interpreter_answers_no_costs(tmp_path: Path) -> None:
    """A column works there."""
    with pytest.raises(OptionError, match="a function, which runs in daskprs's interpreter"):
        job(TEXTS, script(tmp_path), tmp_path, python=sys.executable)


def test_what_a_job_has_settled_is_found_again(tmp_path: Path) -> None:
    """`daskprs verify --input` cuts the input as the job did."""
    TEXTS.to_csv(tmp_path / "texts.csv", index=False)
    result = job(tmp_path / "texts.csv", script(tmp_path), tmp_path)
    found = verify(JobFolder(result.job_dir), rereads=True)
    assert not found.findings
