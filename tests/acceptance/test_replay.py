"""``daskprs replay``: failures of all kinds are repeated from the folder, which stays as it is."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import dask.dataframe as dd
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from dask import delayed
from distributed import Client

import daskprs
from daskprs._cli import main
from daskprs.errors import ParallelRunFailed
from tests.support.cases import mostly_long
from tests.support.local_servers import LOCAL_SERVERS
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

SAME = "daskprs: the same error as in the job"
ROWS = """
import asyncio, os, signal, sys, time
{top}

def bad(rows):
    return 5 in set(rows["a"])

def before(rows):
    if bad(rows):
        {stage}
    return rows

{run} run(rows):
    if bad(rows):
        {body}
    return rows
"""
FILES = """
import os

def run(paths):
    for path in paths:
        if path.endswith("b.bin"):
            {body}
    return paths
"""
QUICK = {"run_invocation_timeout": 1}
STAGE = {"preprocess": "before", "preprocess_processes": 1}


class Sleeps:
    """A value whose pickle takes a minute to be loaded."""

    def __reduce__(self) -> Any:
        return time.sleep, (60,)


class Failure(NamedTuple):
    """How a job fails, and what a replay says of it."""

    body: str = "pass"
    kind: str = "ValueError"
    top: str = ""
    run: str = "def"
    stage: str = "pass"
    options: dict[str, Any] = {}  # noqa: RUF012 - it is never changed
    data: Any = "in.csv"
    script: str = ROWS
    told: str = SAME
    inline: bool = True
    """Whether the job itself may fail in this process, which is quicker."""
    code: int = 42


def _slow_frame() -> pd.DataFrame:
    return pd.DataFrame({"a": [0, 1, 5], "b": [1, 2, Sleeps()]})


FAILURES = {
    "an exception": Failure("raise ValueError(f'bad at {id(rows):#x}')"),
    "a value of no rows": Failure("return 5", "ReturnTypeError"),
    "None": Failure("return None", "RUN_NULL_RETURN"),
    "os._exit": Failure("os._exit(3)", "PROCESS_DIED", inline=False),
    "a segfault": Failure("os.kill(os.getpid(), signal.SIGSEGV)", "PROCESS_DIED", inline=False),
    "an abort": Failure("os.abort()", "PROCESS_DIED", inline=False),
    "a run that hangs": Failure("time.sleep(60)", "TimeoutError", options=QUICK, inline=False),
    "a load that hangs": Failure(
        "pass",
        "TimeoutError",
        options={"task_overhead_timeout": 1},
        data=_slow_frame,
        inline=False,
    ),
    "no memory": Failure("bytearray(1 << 62)", "MemoryError"),
    "more memory than the limit": Failure(
        "kept = b'x' * (700 << 20); time.sleep(30)",
        "MemoryError",
        options={"agent_memory_limit": "400 MB"},
        inline=False,
    ),
    "a missing module": Failure(kind="ModuleNotFoundError", top="import not_there_at_all"),
    "a missing variable": Failure("os.environ['NOT_THERE']", "KeyError"),
    "a bad cell": Failure(kind="LoadError", options={"dtypes": {"a": "int64"}}, data="bad.csv"),
    "a file that vanished": Failure(
        "os.unlink(path); os.stat(path)",
        "FileNotFoundError",
        data="files",
        script=FILES,
        told="is not in the input as the job read it: ",
        code=2,
    ),
    "a file that changed": Failure(
        "os.truncate(path, 7)",
        "INPUT_CHANGED",
        data="files",
        script=FILES,
        told="has another size or modification time than when the job read it",
    ),
    "a key": Failure(
        "raise ValueError('key')", options={"partition_keys": ["b"], "mini_batch_size": None}
    ),
    "columns beside rows": Failure(
        "return rows[:0].reset_index()", "", options={"include_columns": ["b"]}
    ),
    "a stage that raises": Failure(stage="raise ValueError('stage')", options=STAGE),
    "a stage that dies": Failure(
        kind="PROCESS_DIED", stage="os._exit(4)", options=STAGE, inline=False
    ),
    "a coroutine that hangs": Failure(
        "await asyncio.sleep(60)", "TimeoutError", run="async def", options=QUICK, inline=False
    ),
    "another interpreter": Failure(
        "raise ValueError(sys.executable)", options={"python": sys.executable}, inline=False
    ),
}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a table of ten rows, one that is bad, and files."""
    monkeypatch.chdir(tmp_path)
    rows = pd.DataFrame({"a": range(10), "b": [n // 2 for n in range(10)]})
    rows.to_csv("in.csv", index=False)
    rows.astype(object).mask(rows == 5, "five").to_csv("bad.csv", index=False)
    (tmp_path / "files").mkdir()
    for name in "abc":
        (tmp_path / "files" / f"{name}.bin").write_text(name)
    return tmp_path


def content(folder: Path) -> dict[str, Any]:
    """Return all that is in a folder: names, times and bytes."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        body = b"" if path.is_dir() else path.read_bytes()
        found[str(path)] = (status.st_mtime_ns, status.st_mode, hashlib.sha256(body).hexdigest())
    return found


def failed_job(script: Any, data: Any, **options: Any) -> str:
    """Run a job that fails, in the folder ``job``, and return its message."""
    options = {
        "run_max_try": 1,
        "mini_batch_size": "1 rows",
        "process_count_per_node": 1,
        "progress": False,
        "job_dir": "job",
        **options,
    }
    if isinstance(data, str) and data == "files":
        options["mini_batch_size"] = 1
    with pytest.raises(ParallelRunFailed) as caught:
        daskprs.parallel_run(data, script, **options)
    return str(caught.value)


def replay(*words: str) -> Result:
    """Call the command as a shell would; the job folder is the same after it."""
    before = content(Path("job"))
    done = CliRunner().invoke(main, ["replay", "job", *words], prog_name="daskprs")
    assert content(Path("job")) == before
    return done


IN_SUITE = (
    *("an exception", "os._exit", "a run that hangs", "a missing variable", "a bad cell"),
    *("a file that changed", "columns beside rows", "a stage that dies"),
)


@pytest.mark.parametrize("name", mostly_long(FAILURES, suite=IN_SUITE))
def test_a_failure_is_repeated(work: Path, name: str) -> None:
    """By its folder alone; or it is said why it cannot be."""
    one = FAILURES[name]
    text = one.script.format(body=one.body, top=one.top, run=one.run, stage=one.stage)
    (work / "script.py").write_text(text)
    make: Callable[[], Any] | None = one.data if callable(one.data) else None
    how = {"start_method": "inline"} if one.inline else {}
    told = failed_job("script.py", one.data if make is None else make(), **how, **one.options)
    assert told.startswith(one.kind), told
    done = replay()
    assert one.told in done.stderr, done.output
    assert done.exit_code == one.code, done.output
    assert f"daskprs report {work / 'job'} --text" in told, told


def score(rows: pd.DataFrame) -> pd.DataFrame:
    """Fail for a row; it travels by value, as a function of a notebook does."""
    return rows.assign(share=[60 // (5 - int(n)) for n in rows["a"]])


def test_a_frame_and_a_function_are_repeated(work: Path) -> None:
    """They are kept where something fails; nobody else's pickle is loaded."""
    frame = pd.DataFrame({"a": range(10)}, index=range(50, 60))
    failed_job(score, frame, mini_batch_size="4 rows")
    done = replay()
    assert SAME in done.stderr, done.output
    assert 'test_replay.py", line' in done.stderr
    assert (done.exit_code, "daskprs: mini-batch 1 (rows 4-8)" in done.stderr) == (42, True)
    fine = replay("--rows", "2:4")
    assert fine.exit_code == 0, fine.output
    assert "to go on" not in fine.stderr
    assert [line.split()[0] for line in fine.stdout.splitlines()] == ["a", "6", "7"]

    beyond = replay("--rows", "2:5")
    assert "--rows 2:5: mini-batch 1 (rows 4-8) has 4 rows, numbered from 0" in beyond.stderr
    assert replay("--rows", "5:2").exit_code == 2

    (work / "job").rename(work / "moved")
    moved = CliRunner().invoke(main, ["replay", "moved"])
    assert "move the folder back to there" in moved.stderr, moved.output
    (work / "moved").rename(work / "job")
    kept = work / "job" / "scratch" / "objects"
    (work / "job").chmod(0o755)  # no longer private: others may have put files there
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    assert "are not loaded" in replay().stderr
    kept.unlink()
    lacks = replay()
    assert lacks.exit_code == 2
    assert "which the folder does not have" in lacks.stderr


def test_a_mended_script_succeeds_and_the_way_on_is_named(work: Path) -> None:
    """What is replayed then is what `retry-failed` runs."""
    (work / "script.py").write_text(
        ROWS.format(body="raise ValueError('five')", top="", run="def", stage="pass")
    )
    result = daskprs.parallel_run(
        "in.csv",
        "script.py",
        job_dir="job",
        mini_batch_size="1 rows",
        process_count_per_node=1,
        run_max_try=1,
        allowed_failed_count=1,
        progress=False,
    )
    assert result.mini_batches.failed == 1
    (work / "script.py").write_text("def run(rows):\n    raise KeyError('of now')\n")
    assert SAME in replay().stderr  # by the snapshot
    assert SAME in replay("--debug").stderr
    (work / "mended.py").write_text("def run(rows):\n    return rows\n")
    done = replay("--script", "mended.py")
    assert done.exit_code == 0, done.output
    assert "no error. In the job it was: ValueError: five" in done.stderr
    assert "to go on: daskprs retry-failed" in done.stderr
    other = replay("--script", "script.py")
    assert other.exit_code == 42
    assert "another error than in the job, where it was: ValueError: five" in other.stderr
    again = CliRunner().invoke(main, ["retry-failed", "job", "--script", "mended.py", "--quiet"])
    assert again.exit_code == 0, again.output
    nothing = CliRunner().invoke(main, ["replay", "job"])
    assert nothing.exit_code == 2
    assert "nothing has failed" in nothing.stderr


def test_rows_that_failed_by_themselves_are_repeated(work: Path) -> None:
    """Just these; a row that the script itself has named, too; an error of a retry besides."""
    (work / "script.py").write_text(
        "def run(rows, context):\n"
        "    if 5 in set(rows['a']):\n"
        "        raise ValueError('five')\n"
        "    if 2 in set(rows['a']):\n"
        "        context.fail([int((rows['a'] == 2).argmax())], 'two')\n"
        "    return rows[rows['a'] != 2]\n"
    )
    result = daskprs.parallel_run(
        "in.csv",
        "script.py",
        job_dir="job",
        mini_batch_size="20 B",
        on_error="isolate",
        independent_rows=True,
        start_method="inline",
        progress=False,
    )
    failed = result.failed_rows.set_index("_error")
    at = failed.loc["five"]
    done = replay("--mini-batch", str(at["_mini_batch"]))
    assert (SAME in done.stderr, done.exit_code) == (True, 42), done.output
    assert ", 1 row" in done.stderr
    named = replay("--mini-batch", str(failed.loc["two", "_mini_batch"]))
    assert (SAME in named.stderr, named.exit_code) == (True, 42), named.output
    other = str(at["_mini_batch"])
    number = int(at["_number"])
    assert SAME in replay("--mini-batch", other, "--rows", f"{number}:{number + 1}").stderr
    fine = replay("--mini-batch", other, "--rows", f"{number + 1}:{number + 3}")
    assert "no error, as in the job" in fine.stderr


def test_the_caller_gives_values_of_variables(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a resume takes them; the folder does not have them, and a replay shows no secret."""
    (work / "script.py").write_text(
        "import os\n\n"
        "def run(rows):\n"
        "    raise ValueError(os.environ['KEY'] + os.environ['MODE'])\n"
    )
    monkeypatch.setenv("KEY", "s3cret-value")
    variables = {"MODE": "fast"}
    how = {"start_method": "inline", "secrets": ["KEY"], "environment_variables": variables}
    failed_job("script.py", "in.csv", **how)
    monkeypatch.delenv("KEY")
    lacks = replay()
    assert lacks.exit_code == 2
    assert "needs environment variables whose values it does not keep: KEY, MODE" in lacks.stderr
    monkeypatch.setenv("KEY", "s3cret-value")
    done = replay("-e", "MODE=fast")
    assert SAME in done.stderr, done.output
    assert "s3cret-value" not in done.output
    assert "another error" in replay("-e", "MODE=slow").stderr


def _part(number: int, place: str = "") -> pd.DataFrame:
    """Return a partition; one of them is in a file, which may change."""
    if place:
        return pd.DataFrame({"a": [int(one) for one in Path(place).read_text().split()]})
    return pd.DataFrame({"a": [number, number + 1]})


def test_a_partition_is_computed_again(work: Path) -> None:
    """Its rows are compared with those of the job; one that cannot be computed fails again."""
    place = work / "part.txt"
    place.write_text("4 5")
    part = delayed(_part, pure=True)
    parts = [part(0), part(2), part(4, str(place)), part(6)]
    data = dd.from_delayed(parts, meta={"a": "int64"}, verify_meta=False)
    with Client(n_workers=1, processes=False, **LOCAL_SERVERS) as client:
        failed_job(score, data, client=client, mini_batch_size="2 rows")
    done = replay()
    assert SAME in done.stderr, done.output
    assert "daskprs: mini-batch 2 (partition 2, rows 0-2)" in done.stderr
    elsewhere = replay("--mini-batch", "0")
    assert "and not those of partition 0" in elsewhere.stderr
    assert elsewhere.exit_code == 2
    place.write_text("1 2")
    fine = replay()
    assert fine.exit_code == 0, fine.output
    assert "partition 2 was computed again, and has other rows than in the job" in fine.stderr
    place.write_text("four five")
    other = replay()
    assert "another error than in the job, where it was: ZeroDivisionError" in other.stderr
    assert "ValueError" in other.stderr


def test_results_of_a_cluster_are_not_there_any_more(work: Path) -> None:
    """The message of the job names no replay, which says why it cannot be."""
    with Client(n_workers=1, processes=False, **LOCAL_SERVERS) as client:
        future = client.submit(_part, 4)
        told = failed_job(score, [future], client=client, mini_batch_size=None)
    assert "daskprs replay" not in told
    log = (work / "job" / "logs" / "sys" / "master_role.txt").read_text()
    assert "not kept for a replay: ValueError: the collection holds futures" in log
    done = replay()
    assert done.exit_code == 2
    assert "which the folder does not have. Debug it in its program" in done.stderr


@pytest.mark.usefixtures("work")
def test_keys_of_a_frame_are_brought_together_again() -> None:
    """Out of the frame, which the folder has."""
    frame = pd.DataFrame({"a": range(10), "b": [n % 3 for n in range(10)]})
    failed_job(score, frame, partition_keys=["b"], mini_batch_size=None)
    done = replay()
    assert SAME in done.stderr, done.output
    assert "daskprs: mini-batch 2 (b=2)" in done.stderr


def test_a_debugger_is_where_a_replay_fails(work: Path) -> None:
    """In a terminal, with the script where it lies, if it is the same."""
    (work / "script.py").write_text(
        ROWS.format(body="raise ValueError('five')", top="", run="def", stage="pass")
    )
    failed_job("script.py", "in.csv", start_method="inline")
    before = content(work / "job")
    with Terminal([sys.executable, "-m", "daskprs", "replay", "job", "--debug"], 200) as terminal:
        terminal.read_until(lambda: "(Pdb)" in terminal.said)
        terminal.type(b"p 'rows', rows['a'].tolist()\n")
        terminal.read_until(lambda: "('rows', [5])" in terminal.said)
        terminal.type(b"q\n")
        assert terminal.read_to_the_end() == 42
    assert f'File "{work}/script.py"' in terminal.said
    assert SAME in terminal.said
    assert content(work / "job") == before


STOPS = """
import daskprs, pandas as pd

def run(rows):
    breakpoint()
    return rows

daskprs.parallel_run(pd.DataFrame({"a": [1]}), run, job_dir="job", progress=False)
"""


def test_a_breakpoint_of_a_function_is_reached_by_the_folder(work: Path) -> None:
    """An object is no word of a command: the error names the folder that has it."""
    (work / "program.py").write_text(STOPS)
    program = subprocess.run(
        [sys.executable, "program.py"], capture_output=True, text=True, check=False
    )
    command = f"To stop there: daskprs replay --debug --mini-batch 0 {work / 'job'}"
    assert command in program.stderr, program.stderr
    words = ["replay", "--debug", "--mini-batch", "0", str(work / "job")]
    with Terminal([sys.executable, "-m", "daskprs", *words], 200) as terminal:
        terminal.read_until(lambda: "(Pdb)" in terminal.said)
        terminal.type(b"p 'rows', rows['a'].tolist()\n")
        terminal.read_until(lambda: "('rows', [1])" in terminal.said)
        terminal.type(b"c\n")
        assert terminal.read_to_the_end() == 0
    assert "no error. In the job it was: BdbQuit" in terminal.said
