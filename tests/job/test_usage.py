"""`context.count`: what was spent and what was useful, whatever died, and limits of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs._agent.protocol.shared_page import MOST_COUNTED, NAME_BYTES, SharedPage, new_page
from daskprs._folders.job_folder import JobFolder
from daskprs._job.status import state_of
from daskprs._output.journal.history import History
from daskprs.errors import ParallelRunFailed, ParallelRunInterrupted
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pd.DataFrame({"n": range(60)})
ALL = sum(range(60))
AT_ONCE: dict[str, Any] = {"mini_batch_size": "60 rows", "start_method": "inline", "run_max_try": 1}


def job(run: Any, folder: Path, **options: Any) -> Any:
    """Run a job of sixty mini-batches."""
    given = {"mini_batch_size": "1 row", "process_count_per_node": 2, "progress": False, **options}
    return daskprs.parallel_run(ROWS, run, job_dir=folder / "job", **given)


def counting(rows: pd.DataFrame, context: Any) -> pd.DataFrame:
    """Count each row by its number, and as a call."""
    context.count("tokens", int(rows["n"].iloc[0]))
    context.count("calls")
    return rows


@pytest.mark.parametrize("method", ["fork", "inline"])
def test_the_sums_are_those_of_a_serial_run(method: str, tmp_path: Path) -> None:
    """By job, by process and by mini-batch; all was useful."""
    result = job(counting, tmp_path, start_method=method)
    assert result.usage.spent == result.usage.useful == {"calls": 60, "tokens": ALL}
    folder = JobFolder(result.job_dir)
    processes = pd.read_csv(folder.process_summary)["Usage"].map(json.loads)
    assert sum(one["tokens"] for one in processes) == ALL
    attempts = pd.read_csv(folder.attempts).sort_values("Mini-batch Id")
    used = [json.loads(one)["usage"] for one in attempts["Mini-batch Detail"]]
    assert [one["tokens"] for one in used] == [*range(60)]
    assert f"Used: 60 calls, {ALL:,} tokens" in folder.job_result.read_text()
    assert state_of(folder).result.usage == result.usage


def test_calls_at_a_time_count_together(tmp_path: Path) -> None:
    """Coroutines of one process add to one sum, and each attempt has its own."""

    async def run(rows: pd.DataFrame, context: Any) -> pd.DataFrame:
        return counting(rows, context)

    result = job(run, tmp_path)
    assert result.usage.spent == result.usage.useful == {"calls": 60, "tokens": ALL}


def test_stages_count_too(tmp_path: Path) -> None:
    """Each in its process; what they have counted belongs to the mini-batch."""

    class Script:
        """Counts in each function."""

        def before(self, rows: pd.DataFrame, context: Any) -> pd.DataFrame:
            context.count("before")
            return rows

        def run(self, rows: pd.DataFrame, context: Any) -> pd.DataFrame:
            return counting(rows, context)

        def after(self, rows: pd.DataFrame, context: Any) -> pd.DataFrame:
            context.count("after", 2)
            return rows

    result = job(Script(), tmp_path, preprocess="before", postprocess="after")
    expected = {"after": 120, "before": 60, "calls": 60, "tokens": ALL}
    assert result.usage.spent == result.usage.useful == expected


def test_what_died_was_spent_and_not_useful(tmp_path: Path) -> None:
    """Errors, kills and timeouts: each attempt has spent what it had counted until then."""
    seen = str(tmp_path / "seen")

    def run(rows: pd.DataFrame, context: Any) -> pd.DataFrame:
        number = int(rows["n"].iloc[0])
        context.count("calls")
        try:
            os.close(os.open(f"{seen}-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return rows
        if number == 7:
            raise ValueError
        if number == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 33:
            time.sleep(1000)
        return rows

    result = job(run, tmp_path, run_invocation_timeout=3)
    assert result.usage.useful == {"calls": 60}
    spent = result.usage.spent["calls"]
    # Beside these three: what was under way, or not reported yet, in the process that was ended.
    assert spent >= 63
    assert spent == sum(one["calls"] for one in _of_processes(result))


def _of_processes(result: Any) -> list[dict[str, float]]:
    processes = pd.read_csv(JobFolder(result.job_dir).process_summary)["Usage"].dropna()
    return [json.loads(one) for one in processes]


def test_a_failed_job_says_what_it_has_cost(tmp_path: Path) -> None:
    """A resume counts on."""

    def run(rows: pd.DataFrame, context: Any) -> pd.DataFrame:
        context.count("calls")
        assert rows["n"].iloc[0] != 5 or (tmp_path / "mended").exists()
        return rows

    with pytest.raises(ParallelRunFailed) as caught:
        job(run, tmp_path, run_max_try=2, allowed_failed_count=0)
    before = caught.value.result.usage
    assert before.spent["calls"] > before.useful["calls"]
    (tmp_path / "mended").touch()
    result = job(run, tmp_path, resume=True)
    assert result.usage.useful == {"calls": 60}
    wasted = before.spent["calls"] - before.useful["calls"]
    assert result.usage.spent["calls"] == 60 + wasted


PROGRAM = """
import sys, time
import pandas as pd
import daskprs

def run(rows, context):
    context.count("calls")
    time.sleep(0.05)
    return rows

daskprs.parallel_run(
    pd.DataFrame({"n": range(60)}), run, mini_batch_size="1 row", process_count_per_node=2,
    job_dir=sys.argv[1], progress=False, resume=len(sys.argv) > 2)
"""


def test_a_killed_driver_loses_a_second_of_it_at_most(tmp_path: Path) -> None:
    """What it had spent until then stands in the journal."""
    folder = JobFolder(tmp_path / "job")
    driver = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)])

    def noted() -> float:
        known = History(folder).spent if folder.journal(1).exists() else {}
        return sum(known.get(1, {}).values())

    assert poll_for(lambda: noted() > 3, 60)
    driver.kill()
    driver.wait()
    spent = noted()
    done = len(History(folder).commits)
    subprocess.run([sys.executable, "-c", PROGRAM, str(folder), "resume"], check=True)
    usage = state_of(folder).result.usage
    assert usage.useful == {"calls": 60}
    assert usage.spent["calls"] == max(60, spent + 60 - done)


def test_a_limit_interrupts_the_job_and_a_higher_one_ends_it(tmp_path: Path) -> None:
    """The limit is that of all runs; the same again starts nothing."""

    def run(rows: pd.DataFrame, context: Any) -> pd.DataFrame:
        context.count("tokens", 10)
        return rows

    with pytest.raises(ParallelRunInterrupted, match=r"of 300 tokens, and nothing more") as caught:
        job(run, tmp_path, usage_limits={"tokens": 300}, process_count_per_node=1)
    first = caught.value.result
    assert 0 < first.usage.useful["tokens"] == first.usage.spent["tokens"]
    assert first.mini_batches.failed == 0
    higher = {"tokens": 2 * max(300, first.usage.spent["tokens"])}
    assert f"resume=True, job_dir='{tmp_path}/job', usage_limits={higher}" in str(caught.value)
    with pytest.raises(ParallelRunInterrupted) as caught:
        job(run, tmp_path, usage_limits={"tokens": first.usage.spent["tokens"]}, resume=True)
    assert caught.value.result.usage == first.usage
    result = job(run, tmp_path, resume=True)
    assert result.usage.spent == result.usage.useful == {"tokens": 600}
    assert result.to_pandas()["n"].tolist() == [*range(60)]


def test_a_limit_that_is_not_reached_changes_nothing(tmp_path: Path) -> None:
    """One of something that is never counted limits nothing, which is said once."""
    result = job(counting, tmp_path, usage_limits={"calls": 1000, "dollars": 1})
    assert result.usage.spent["calls"] == 60
    log = JobFolder(result.job_dir).master_log.read_text()
    said = "usage_limits names 'dollars', which the script has not counted: that limits nothing."
    assert log.count(said) == log.count(f"{said} It counts 'calls', 'tokens'.") == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("context.count('tokens', -1)", "an amount is a number, 0 or more"),
        ("context.count('tokens', float('nan'))", "an amount is a number, 0 or more"),
        ("context.count('tokens', 'many')", "an amount is a number, 0 or more"),
        ("[context.count('tokens', 1e308) for n in range(2)]", "the sum is too large"),
        ("context.count('', 1)", "a name is text of 1 to 64 bytes"),
        ("[context.count(str(n)) for n in range(99)]", "which are the most that there can be"),
    ],
)
def test_what_cannot_be_counted_is_an_error_of_the_call(
    call: str, said: str, tmp_path: Path
) -> None:
    """It names the amount."""
    (tmp_path / "script.py").write_text(f"def run(rows, context):\n    {call}\n    return rows\n")
    with pytest.raises(ParallelRunFailed, match=said):
        job(tmp_path / "script.py", tmp_path, **AT_ONCE)


def test_outside_a_job_nothing_is_counted() -> None:
    """The error says so."""
    with pytest.raises(RuntimeError, match="outside a job"):
        daskprs.MiniBatchContext(0).count("calls")


def test_the_page_shows_whole_sums_while_they_change() -> None:
    """Names of any text, as many as there may be; whatever the script writes, it is read."""
    fd = new_page()
    page, reader = SharedPage(fd), SharedPage(fd)
    os.close(fd)
    names = ["é" * (NAME_BYTES // 2), *(f"name {number}" for number in range(MOST_COUNTED - 1))]
    ended = threading.Event()

    def write() -> None:
        sums: dict[str, float] = {}
        for amount in range(1, 200):
            for name in names:
                sums[name] = float(amount)
                page.show_counted(sums)
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not ended.is_set():
        assert all(name in names and amount >= 0 for name, amount in reader.counted())
    writer.join()
    assert reader.counted() == tuple((name, 199.0) for name in names)
    page._cells[13_000:] = memoryview(b"\xff" * 8 * len(page._cells[13_000:])).cast("q")
    assert reader.counted() == ()
    page._cells[13_000] = 1 << 40
    assert reader.counted() == ()
    page.close()
    reader.close()


@pytest.mark.usefixtures("inline")
def test_rows_that_are_run_again_add_to_what_was_useful(tmp_path: Path) -> None:
    """The search for bad rows was spent alone; a commit keeps the usage of the one it replaces."""

    def run(rows: pd.DataFrame, context: Any) -> pd.DataFrame:
        context.count("rows", len(rows))
        if 7 in set(rows["n"]) and not (tmp_path / "mended").exists():
            raise ValueError
        return rows

    options = {"mini_batch_size": "10 rows", "on_error": "isolate", "independent_rows": True}
    first = job(run, tmp_path, **options).usage
    assert first.useful == {"rows": 59}
    assert first.spent["rows"] > 59
    (tmp_path / "mended").touch()
    again = job(run, tmp_path, resume="failed", **options).usage
    assert again.useful == {"rows": 60}
    assert again.spent["rows"] == first.spent["rows"] + 1
    assert job(run, tmp_path, resume=True, **options).usage == again
