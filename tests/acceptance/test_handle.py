"""A handle: a job that runs beside its caller, its rows as they come, and how it ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import subprocess
import sys
import time
import traceback
import weakref
from contextlib import suppress
from functools import partial
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

import dask.bag as db
import pandas as pd
import pytest
from distributed import Client, LocalCluster, get_client

import daskprs
from daskprs._cluster.connect import IN_PROCESS
from daskprs.errors import OURS
from tests.acceptance.test_cancel import MARK, marked
from tests.support.cases import mostly_long
from tests.support.local_servers import LOCAL_SERVERS
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NUMBERS = pd.DataFrame({"number": range(8)})
ONE_EACH = 8
"""Bytes of a mini-batch: each has one number."""
LONGEST_S = 25.0
HELD = 5
"""The number that waits for the gate."""


def gated(mini_batch: pd.DataFrame, gate: str) -> pd.DataFrame:
    """Double the numbers; one of them waits until there is a gate."""
    if HELD in mini_batch.number.tolist():
        while not os.path.exists(gate):  # noqa: PTH110 - as light as it may be
            time.sleep(0.01)
    return mini_batch * 2


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., daskprs.ParallelRun]]:
    """Start a job whose mini-batch `HELD` waits for `open_gate`, and end it after the test."""
    runs: list[daskprs.ParallelRun] = []

    def begin(name: str = "job", **options: Any) -> daskprs.ParallelRun:
        call: dict[str, Any] = {
            "mini_batch_size": ONE_EACH,
            "process_count_per_node": 2,
            "progress": False,
            **options,
        }
        script = partial(gated, gate=str(tmp_path / "gate"))
        runs.append(daskprs.start(NUMBERS, script, job_dir=tmp_path / name, **call))
        return runs[-1]

    yield begin
    for run in runs:
        run.cancel()
        assert run.wait(LONGEST_S)


def open_gate(tmp_path: Path) -> None:
    """Let the held mini-batch go on."""
    (tmp_path / "gate").touch()


Begin = "Callable[..., daskprs.ParallelRun]"


def test_rows_come_in_order_while_the_job_runs(tmp_path: Path, begin: Begin) -> None:
    """What lies behind a mini-batch that runs waits for it; the last rows come with the end."""
    run = begin()
    batches = run.iter_batches()
    first = [next(batches) for _ in range(HELD)]
    assert [rows.number.tolist() for rows in first] == [[2 * n] for n in range(HELD)]
    assert poll_for(lambda: run.progress.mini_batches.succeeded >= HELD)
    assert run.status == "Running"
    assert run.progress.planned == 8
    assert not run.wait(0)
    assert daskprs.ParallelRun.of(run.job_dir).status == "Running"
    with pytest.raises(TimeoutError, match="is still running after 0 s"):
        run.result(0)
    open_gate(tmp_path)
    assert [rows.number.tolist() for rows in batches] == [[10], [12], [14]]
    result = run.result()
    assert run.status == result.status == "Completed"
    assert run.progress.mini_batches == (8, 8, 0)
    together = pd.concat(list(run.iter_batches()), ignore_index=True)
    pd.testing.assert_frame_equal(together, result.to_pandas(ignore_index=True))


def test_lines_come_from_spools_and_then_from_the_published_file(
    tmp_path: Path, begin: Begin
) -> None:
    """A resume that reads both gives the same; a file that was changed is told."""
    out = {"output_dir": tmp_path / "out", "append_row_dataframe_header": True}
    run = begin(**out)
    batches = run.iter_batches()
    early = [next(batches) for _ in range(HELD)]
    open_gate(tmp_path)
    assert poll_for(lambda: run.status == "Completed")
    lines = [*early, *batches]
    assert lines == [f"{2 * n}\n" for n in range(8)]
    file = run.result().output_file
    assert file.read_text() == "number\n" + "".join(lines)
    again = begin(**out, resume=True)
    assert list(again.iter_batches()) == lines
    file.write_text(file.read_text().replace("10", "11"))
    with pytest.raises(daskprs.errors.JournalError, match=r"mini-batch 5 .* resume=True"):
        list(daskprs.ParallelRun.of(run.job_dir).iter_batches())


def odd(mini_batch: pd.DataFrame) -> list[int]:
    """Fail for even numbers."""
    numbers: list[int] = mini_batch.number.tolist()
    if numbers[0] % 2 == 0:
        raise ValueError(numbers)
    return numbers


@pytest.mark.parametrize("allowed", [-1, 1])
def test_rows_behind_failures_come_until_the_job_fails(tmp_path: Path, allowed: int) -> None:
    """A mini-batch that is given up delays nothing; the error of the job comes last."""
    run = daskprs.start(
        NUMBERS,
        odd,
        job_dir=tmp_path / "job",
        mini_batch_size=ONE_EACH,
        process_count_per_node=1,
        allowed_failed_count=allowed,
        run_max_try=1,
        progress=False,
    )
    seen: list[int] = []

    def read() -> None:
        for rows in run.iter_batches():
            seen.extend(rows.result)

    if allowed == -1:
        read()
        assert seen == [1, 3, 5, 7]
    else:
        with pytest.raises(daskprs.ParallelRunFailed):
            read()
        assert seen == [1][: len(seen)]
        assert run.status == "Failed"


def left_iteration(run: daskprs.ParallelRun) -> weakref.ref[Any]:
    """Return an iteration that has a file open, and is left by an error of its job."""
    batches = run.iter_batches()
    next(batches)
    with suppress(daskprs.ParallelRunCanceled):
        run.result(LONGEST_S)
    return weakref.ref(batches)


def test_a_canceled_run_keeps_its_rows_and_is_resumed(tmp_path: Path, begin: Begin) -> None:
    """Within seconds, with the error of Ctrl-C; a second cancel does nothing."""
    run = begin()
    assert poll_for(lambda: run.progress.mini_batches.succeeded >= HELD)
    begun = time.monotonic()
    run.cancel()
    run.cancel()
    with pytest.raises(daskprs.ParallelRunCanceled, match="resume=True") as caught:
        run.result(LONGEST_S)
    assert time.monotonic() - begun < LONGEST_S
    assert run.status == "Canceled"
    assert caught.value.result.mini_batches.succeeded >= HELD
    assert left_iteration(run)() is None
    rows = []
    with pytest.raises(daskprs.ParallelRunCanceled):
        rows.extend(run.iter_batches())
    open_gate(tmp_path)
    again = begin(resume=True)
    assert [batch.number.tolist() for batch in again.iter_batches()] == [[2 * n] for n in range(8)]


class Slow:
    """Takes an hour for its second pickling: the first is a sample."""

    times = 0

    def __reduce__(self) -> tuple[type[int], tuple[()]]:
        Slow.times += 1
        while Slow.times > 1:
            time.sleep(0.01)
        return int, ()


def test_a_run_whose_input_is_prepared_is_canceled_too(tmp_path: Path) -> None:
    """Python interrupts no thread by itself."""
    frame = pd.DataFrame({"thing": [Slow()]}, dtype=object)
    run = daskprs.start(frame, len, job_dir=tmp_path / "job", progress=False)
    assert poll_for(lambda: Slow.times > 1)
    run.cancel()
    with pytest.raises(daskprs.ParallelRunCanceled, match="before the first mini-batch"):
        run.result(LONGEST_S)


def test_what_cannot_be_used_is_refused_at_once(tmp_path: Path, begin: Begin) -> None:
    """As by `parallel_run`, whose parameters `start` has; a folder in use, too."""
    with pytest.raises(daskprs.OptionError, match=r"run_max_tries.*Did you mean run_max_try"):
        begin(run_max_tries=1)
    with pytest.raises(daskprs.errors.ScriptError):
        daskprs.start(NUMBERS, tmp_path / "missing.py")
    with pytest.raises(daskprs.errors.JobFolderError, match="no job in"):
        daskprs.ParallelRun.of(tmp_path)
    run = begin()
    assert poll_for(lambda: run.progress.running)
    for resume in (True, False):
        with pytest.raises(daskprs.errors.JobFolderLocked):
            begin(resume=resume)
    called, started = map(inspect.signature, (daskprs.parallel_run, daskprs.start))
    assert called.parameters == started.parameters


def test_a_job_without_rows_has_none_to_iterate_over(tmp_path: Path, begin: Begin) -> None:
    """The error names the option."""
    open_gate(tmp_path)
    run = begin(output_action="summary_only")
    with pytest.raises(daskprs.OptionError, match=r"keeps no rows.*output_action"):
        list(run.iter_batches())


def test_ctrl_c_while_waiting_shows_the_line_that_waits(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no frame of daskprs."""
    run = begin()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(concurrent.futures, "wait", interrupted)
    for wait in (run.wait, run.result, lambda: list(run.iter_batches())):
        with pytest.raises(KeyboardInterrupt) as caught:
            wait()
        shown = "".join(traceback.format_exception(caught.value))
        assert "wait()" in shown
        assert OURS not in shown
    monkeypatch.undo()
    assert run.status == "Running"


def test_two_runs_at_once(tmp_path: Path, begin: Begin) -> None:
    """Each has its own processes, folder and rows."""
    first, second = begin("first"), begin("second")
    for run in (first, second):
        assert poll_for(lambda run=run: run.progress.mini_batches.succeeded >= HELD)
    first.cancel()
    assert first.wait(LONGEST_S)
    assert second.status == "Running"
    open_gate(tmp_path)
    assert second.result().to_pandas().number.tolist() == [2 * n for n in range(8)]


def test_an_asynchronous_client_in_its_own_loop(tmp_path: Path, begin: Begin) -> None:
    """A waiter may leave, the loop goes on, and a canceled run is a canceled awaitable."""

    async def work() -> None:
        async with (
            LocalCluster(**IN_PROCESS, threads_per_worker=2, asynchronous=True) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            run = begin(client=client)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run, 0.1)
            assert run.status == "Running"
            with pytest.raises(daskprs.UsageError, match="await run"):
                run.result()
            canceled = begin("canceled")  # on the current client
            assert await asyncio.to_thread(poll_for, lambda: canceled.progress.running)
            canceled.cancel()
            ends = asyncio.gather(canceled, run, return_exceptions=True)
            open_gate(tmp_path)
            gone, result = await ends
            assert isinstance(gone, asyncio.CancelledError)
            with pytest.raises(daskprs.ParallelRunCanceled, match="resume=True"):
                canceled.result()
            assert result.to_pandas().number.tolist() == [2 * n for n in range(8)]
            assert await daskprs.ParallelRun.of(result.job_dir) == result
            for call in (daskprs.plan, lambda bag: daskprs.start(bag, len)):  # they compute it
                with pytest.raises(daskprs.OptionError, match=r"the event loop.*to_thread"):
                    call(db.from_sequence([1, 2]))
            assert len(await asyncio.to_thread(daskprs.plan, db.from_sequence([1, 2]))) == 2

    asyncio.run(work())


def test_a_run_inside_a_dask_task(tmp_path: Path) -> None:
    """A worker of one thread carries the task, and the job of the task."""

    def task(folder: str) -> list[int]:
        run = daskprs.start(NUMBERS, lambda b: b * 2, client=get_client(), job_dir=folder)
        numbers: list[int] = run.result().to_pandas().number.tolist()
        return numbers

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, **LOCAL_SERVERS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        found = client.submit(task, str(tmp_path / "job")).result(LONGEST_S * 2)
    # multiprocessing keeps a process of its own once it has started others.
    resource_tracker._resource_tracker._stop()
    assert found == [2 * n for n in range(8)]


PROGRAM = """
import sys, time
import pandas as pd
import daskprs

def hang(mini_batch):
    if mini_batch.number[0] == 1:
        time.sleep(3600)
    return mini_batch

if __name__ == "__main__":
    frame = pd.DataFrame({"number": range(2)})
    options = dict(job_dir=sys.argv[2], mini_batch_size=8, process_count_per_node=2, progress=False)
    if sys.argv[1] == "blocks":
        daskprs.parallel_run(frame, hang, **options)
    run = daskprs.start(frame, hang, **options)
    next(run.iter_batches())
    if sys.argv[1] == "raises":
        raise SystemExit(3)
"""


class Program:
    """A program with a job in a process of its own."""

    def __init__(self, folder: Path, how: str) -> None:
        self.mark = str(folder)
        (folder / "program.py").write_text(PROGRAM)
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "program.py"), how, str(folder / "job")],
            env={**os.environ, MARK: self.mark},
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, str]:
        """Wait for the end, and return the exit code and stderr."""
        _, said = self.process.communicate(timeout=2 * LONGEST_S)
        return self.process.returncode, said


@pytest.mark.parametrize(
    ("how", "code"), mostly_long([("ends", 0), ("raises", 3)], suite=[("raises", 3)])
)
def test_a_program_that_ends_cancels_its_runs_and_says_so(
    tmp_path: Path, how: str, code: int
) -> None:
    """It ends within seconds with its own exit code, and leaves no process."""
    ended, said = Program(tmp_path, how).end()
    assert ended == code, said
    assert "The program has ended before its job. The job is Canceled" in said
    assert f"resume=True, job_dir={str(tmp_path / 'job')!r}" in said
    assert marked(str(tmp_path)) == []
    run = daskprs.ParallelRun.of(tmp_path / "job")
    assert run.status == "Canceled"
    assert run.progress.mini_batches == (1, 1, 0)


def test_the_run_of_another_process(tmp_path: Path) -> None:
    """It is followed from here; only its own process can cancel it; its death is told."""
    program = Program(tmp_path, "blocks")
    assert poll_for((tmp_path / "job" / "journal.1").exists)
    run = daskprs.ParallelRun.of(tmp_path / "job")
    assert next(run.iter_batches()).number.tolist() == [0]
    assert run.status == "Running"
    assert poll_for(lambda: run.progress == ((1, 1, 0), (1, 1, 0), 2, 1))
    with pytest.raises(daskprs.errors.JobFolderError, match=f"process {program.process.pid} on"):
        run.cancel()
    assert not run.wait(0.1)
    program.process.kill()
    program.end()
    with pytest.raises(
        daskprs.errors.JobFolderError, match=r"To go on: call parallel_run\(…, job_"
    ):
        run.result(LONGEST_S)
    assert run.status == "Died"
    assert poll_for(lambda: not marked(str(tmp_path)))
