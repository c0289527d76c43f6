"""Several calls of `run` at the same time in a process: coroutines, and threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs._folders.job_folder import JobFolder
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 200
SCRIPT = """
import asyncio, ctypes, os, sys, time
import aside

async def init():
    aside.begun = asyncio.get_running_loop()

async def run(rows, context):
    number, what = int(rows["n"].iloc[0]), rows["what"].iloc[0]
    assert aside.begun is asyncio.get_running_loop()
    with aside.counted():
        await asyncio.sleep(0.02)
        while what == "waits for 64" and aside.most < 64:
            await asyncio.sleep(0.01)
        print("line of", number)
        sys.stdout.write(f"rest of {number}")
        if what == "raises":
            raise ValueError("a bad row")
        if what == "hangs":
            await asyncio.sleep(1000)
        while what == "is deaf":
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                pass
        if what == "blocks":
            time.sleep(1000)
        if what == "dies":
            os._exit(3)
    def made():
        yield number  # this makes no generator of run
    return pd.DataFrame({"n": [*made()], "most": [aside.most]})

async def shutdown():
    await asyncio.sleep(0)
    print("the most:", aside.most)

import pandas as pd
"""
ASIDE = """
import threading
from contextlib import contextmanager

begun, most, now, lock = None, 0, 0, threading.Lock()

@contextmanager
def counted():
    global most, now
    with lock:
        now += 1
        most = max(most, now)
    try:
        yield
    finally:
        with lock:
            now -= 1
"""
ROWS = """
import asyncio

async def run(rows):
    for what in rows["what"]:
        await asyncio.sleep(1000 if what == "hangs" else 0)
        if what == "raises":
            raise ValueError("a bad row")
    return rows
"""
PLAIN = """
import time
import aside

thread_safe = True

def run(rows):
    with aside.counted():
        time.sleep(0.02)
    return [f"{n} {aside.most}" for n in rows["n"]]
"""

HANGING = """
import time

thread_safe = True

def run(rows):
    time.sleep(1000 if rows["what"].iloc[0] == "hangs" else 0.01)
    return rows
"""


DECORATED = """
import asyncio, functools
import aside

def passed_on(function):
    @functools.wraps(function)
    def call(*given):
        return function(*given)
    return call

def made_plain(function):
    @functools.wraps(function)
    def call(*given):
        return asyncio.run(function(*given))
    return call

async def ask(rows):
    with aside.counted():
        await asyncio.sleep(0.02)
    return [f"{n} {aside.most}" for n in rows["n"]]

DEFINITION
"""
FORKS = """
import asyncio, os

begun, together = 0, asyncio.Event()

async def run(rows):
    global begun
    number = int(rows["n"].iloc[0])
    begun += 1
    if begun == 16:
        together.set()
    await together.wait()
    if number == 0 and (pid := os.fork()):
        await asyncio.to_thread(os.waitpid, pid, 0)
    with open(OUT, "a") as file:
        file.write(f"{number} ")
    return [number]
"""


def score(folder: Path, bad: dict[int, str], text: str = SCRIPT, **options: Any) -> Any:
    """Run a job in one process with a mini-batch for each row, some of which are bad."""
    (folder / "aside.py").write_text(ASIDE)
    script = folder / "score.py"
    script.write_text(text)
    what = [bad.get(n, "") for n in range(COUNT)]
    given = {
        "mini_batch_size": "1 row",
        "process_count_per_node": 1,
        "output": folder / "out.parquet",
        "job_dir": folder / "job",
        "run_max_try": 2,
        "allowed_failed_count": len(bad),
        "progress": False,
    }
    data = pd.DataFrame({"n": range(COUNT), "what": what})
    return daskprs.parallel_run(data, script, **{**given, **options})


def scored(folder: Path) -> pd.DataFrame:
    """Return the output."""
    return pd.read_parquet(folder / "out.parquet")


def test_coroutines_run_at_the_same_time_and_their_rows_are_in_order(tmp_path: Path) -> None:
    """What they print has the number of the mini-batch, also where the line has no end."""
    result = score(tmp_path, dict.fromkeys(range(64), "waits for 64"))
    rows = scored(tmp_path)
    assert rows["n"].tolist() == list(range(COUNT))
    assert rows["most"].max() == 64
    (log,) = JobFolder(tmp_path / "job").path.glob("logs/user/stdout/*/*.txt")
    lines = log.read_text().splitlines()
    assert {f"[{n}] line of {n}" for n in range(COUNT)} <= {*lines}
    assert {f"[{n}] rest of {n}" for n in range(COUNT)} <= {*lines}
    assert result.stdout(7) == "line of 7\nrest of 7\n"
    assert lines[-1] == "the most: 64"


@pytest.mark.parametrize(
    "what",
    mostly_long(["raises", "hangs", "is deaf", "blocks", "dies"], suite=["hangs", "dies"]),
)
def test_a_bad_call_costs_no_other(tmp_path: Path, what: str) -> None:
    """Whatever it does, all others are there once, and none of them has failed."""
    given = {"run_invocation_timeout": 1, "shutdown_timeout": 2, "concurrency_per_process": 16}
    result = score(tmp_path, {50: what}, **given)
    assert scored(tmp_path)["n"].tolist() == [n for n in range(COUNT) if n != 50]
    assert result.failed["mini_batch"].tolist() == [50]
    expected = {"raises": "ValueError: a bad row", "dies": "exits with returncode 3"}
    (error,) = result.failed["error"]
    assert expected.get(what, "TimeoutError: run() exceeded 1 s") in error
    if what == "blocks":
        log = (tmp_path / "job" / "logs" / "sys" / "master_role.txt").read_text()
        told = 'score.py", line 27, in run: time.sleep(1000). Let it await'
        assert (
            f'a coroutine keeps all others waiting for more than a second: File "{tmp_path}' in log
        )
        assert told in log


def test_an_endpoint_that_answers_nobody_costs_few_processes(tmp_path: Path) -> None:
    """A kill ends all threads that have exceeded their timeouts, and charges each of them."""
    bad = dict.fromkeys(range(32), "hangs")
    given = {"run_invocation_timeout": 1, "concurrency_per_process": 64, "output": None}
    result = score(tmp_path, bad, HANGING, allowed_failed_count=32, **given)
    assert result.failed["mini_batch"].tolist() == [*range(32)]
    assert all("run() exceeded 1 s" in error for error in result.failed["error"])
    # Two tries of each; more only where the machine is too slow to begin 32 threads in half a
    # second.
    assert len(pd.read_csv(JobFolder(result.job_dir).process_summary)) <= 12


def test_a_bad_row_of_a_call_is_found_with_its_own_cause(tmp_path: Path) -> None:
    """A coroutine that is canceled has taken too long, also when it has a part of the rows."""
    given = {"run_invocation_timeout": 1, "mini_batch_size": "8 rows", "on_error": "isolate"}
    result = score(tmp_path, {50: "hangs", 90: "raises"}, ROWS, run_max_try=1, **given)
    assert scored(tmp_path)["n"].tolist() == [n for n in range(COUNT) if n not in (50, 90)]
    failed = result.failed_rows[["n", "_status", "_kind", "_error"]]
    assert failed.to_numpy().tolist() == [
        [50, "RUN_TIMEOUT", "TimeoutError", "run() exceeded 1 s, and was canceled"],
        [90, "RUN_EXCEPTION", "ValueError", "a bad row"],
    ]


def test_a_plain_function_runs_in_threads_where_the_script_says_so(tmp_path: Path) -> None:
    """It has as many calls at a time as it is told to."""
    score(tmp_path, {}, PLAIN, concurrency_per_process=8, output=tmp_path / "out.csv")
    lines = [line.split() for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert [int(n) for n, _ in lines] == list(range(COUNT))
    assert max(int(most) for _, most in lines) == 8


@pytest.mark.parametrize(
    ("definition", "told", "most"),
    mostly_long(
        [
            ("@passed_on\nasync def run(rows):\n    return await ask(rows)", "", 8),
            (
                "@made_plain\nasync def run(rows):\n    return await ask(rows)",
                "makes it a plain",
                1,
            ),
            (
                "def run(rows):\n    return ask(rows)",
                "returns a coroutine, and a process makes one",
                1,
            ),
        ],
        suite=[
            ("@made_plain\nasync def run(rows):\n    return await ask(rows)", "makes it a plain", 1)
        ],
    ),
)
def test_a_decorated_function_is_called_as_what_it_is(
    tmp_path: Path, definition: str, told: str, most: int
) -> None:
    """One that a decorator makes plain is never called several times at once, unasked."""
    text = DECORATED.replace("DEFINITION", definition)
    calls: Any = {"concurrency_per_process": 8} if "async" in definition else {}
    score(tmp_path, {}, text, output=tmp_path / "out.csv", **calls)
    lines = [line.split() for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert [int(n) for n, _ in lines] == list(range(COUNT))
    assert max(int(seen) for _, seen in lines) == most
    log = (tmp_path / "job" / "logs" / "sys" / "master_role.txt").read_text()
    assert ("at a time" in log) == bool(told)
    assert told in log


def test_a_fork_in_a_coroutine_makes_no_call_of_its_own(tmp_path: Path) -> None:
    """It may end its own, and would ask everything again that is under way."""
    asked = tmp_path / "asked.txt"
    score(tmp_path, {}, FORKS.replace("OUT", repr(str(asked))), concurrency_per_process=16)
    assert sorted(map(int, asked.read_text().split())) == [0, *range(COUNT)]


def test_coroutines_run_one_by_one_in_this_process(tmp_path: Path) -> None:
    """A debugger stops in them."""
    script = SCRIPT.replace("sleep(0.02)", "sleep(0.001)")
    score(tmp_path, {}, script, start_method="inline")
    rows = scored(tmp_path)
    assert rows["n"].tolist() == list(range(COUNT))
    assert rows["most"].max() == 1


async def sleep(rows: pd.DataFrame) -> pd.DataFrame:
    """Be a coroutine function."""
    return rows


def plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Be none."""
    return rows


async def generator(rows: pd.DataFrame) -> Any:
    """Be an async generator."""
    yield rows


@pytest.mark.parametrize(
    ("script", "options", "told"),
    [
        (plain, {"concurrency_per_process": 8}, r"run\(\) of plain is a plain function"),
        (plain, {"concurrency_per_process": 0}, "a whole number from 1 to 1000"),
        (sleep, {"profiling_module": "cProfile"}, "not with async def run"),
        (sleep, {"preprocess": plain}, "not with async def run"),
        (generator, {}, "async generator"),
    ],
)
def test_what_cannot_be_is_refused(script: Any, options: dict[str, Any], told: str) -> None:
    """Before anything starts."""
    with pytest.raises((daskprs.DaskprsError, ValueError), match=told):
        daskprs.parallel_run(pd.DataFrame({"n": [1]}), script, **options)
