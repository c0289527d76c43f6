"""A script in the caller's process: the same rows, and a process that is as it was."""

from __future__ import annotations

import bdb
import errno
import gc
import importlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import pandas as pd
import pytest

import daskprs
from daskprs import EntryScript
from daskprs._agent.inline import inline_agent
from daskprs._driver import dispatch
from daskprs.errors import OptionError, OutputError, ParallelRunCanceled, ParallelRunFailed
from tests.support.cases import mostly_long
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pd.DataFrame({"n": range(12)})
ONE_ROW = 8
"""The bytes of a mini-batch of one row."""
CHANGES = """
import logging, os, signal, sys, warnings
import beside

def init():
    os.chdir("/")
    os.umask(0o777)
    sys.argv.append("more")
    sys.path.insert(0, "/nowhere")
    os.environ["MADE_BY_SCRIPT"] = "1"
    os.environ.pop("HOME", None)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    warnings.simplefilter("ignore")
    logging.getLogger().setLevel("DEBUG")
    sys.stdout = sys.stderr

def run(rows):
    assert os.getcwd() == "/" and os.environ["MADE_BY_SCRIPT"] == "1", os.getcwd()
    assert sys.argv[-1] == "more" and sys.path[0] == "/nowhere"
    {fails}
    return rows.assign(m=rows["n"] + beside.ONE)
"""
POISONED = """
broken = False

def run(rows):
    global broken
    broken = broken or rows["n"].iloc[0] == 3
    if broken:
        raise RuntimeError("the connection is closed")
    return rows
"""


def _inline(data: Any, script: Any, **options: Any) -> Any:
    options = {"mini_batch_size": ONE_ROW, "progress": False, **options}
    return daskprs.parallel_run(data, script, start_method="inline", **options)


def _state() -> tuple[Any, ...]:
    names = ("", "entry_script")
    loggers = [(one.handlers[:], one.level) for one in map(logging.getLogger, names)]
    umask = os.umask(0o077)
    os.umask(umask)
    return (
        umask,
        *(os.getcwd(), sys.argv[:], sys.path[:], dict(os.environ), loggers),  # noqa: PTH109
        *(sys.stdout, sys.stderr, sys.stdin, signal.getsignal(signal.SIGUSR1)),
        *(signal.getsignal(signal.SIGINT), EntryScript._only, sys.dont_write_bytecode),
    )


@pytest.mark.parametrize("fails", ["pass", "raise ValueError(rows)", "import sys; sys.exit(3)"])
def test_a_script_leaves_the_process_as_it_was(tmp_path: Path, fails: str) -> None:
    """Whatever it changes in `init` holds in `run`, and is gone with the job."""
    (tmp_path / "changes.py").write_text(CHANGES.format(fails=fails))
    (tmp_path / "beside.py").write_text("ONE = 1\n")
    before, modules = _state(), sys.modules.copy()
    try:
        result = _inline(ROWS, tmp_path / "changes.py", job_dir=tmp_path / "job")
        assert list(result.to_pandas()["m"]) == [n + 1 for n in range(12)]
    except ParallelRunFailed:
        assert fails != "pass"
    assert _state() == before
    for name in ("beside", "changes"):  # a test before this one may have left its own
        assert sys.modules.get(name) is modules.get(name)


def test_the_message_of_a_job_is_short_and_no_terminal_obeys_it(tmp_path: Path) -> None:
    """The traceback below it does not have the whole message again."""
    script = tmp_path / "script.py"
    script.write_text(
        "def run(rows):\n    raise ValueError('\\x1b[31mred\\x1b[0m ' + 'many lines\\n' * 10_000)\n"
    )
    file = tmp_path / "\x1b[31mred.bin"
    file.touch()
    with pytest.raises(ParallelRunFailed) as caught:
        _inline([file], script, mini_batch_size=1, run_max_try=1, job_dir=tmp_path / "job")
    message = str(caught.value)
    assert "red.bin" in message
    assert "\x1b" not in message
    assert "ValueError: red many lines" in message
    assert len(message) < 15_000


def test_each_job_imports_the_script_anew(tmp_path: Path) -> None:
    """A module of the caller's under the same name is neither used nor lost."""
    for one in (1, 2, 3):
        (tmp_path / "beside.py").write_text(f"ONE = {one}\n")
        (tmp_path / "adds.py").write_text(
            "import beside\n\ndef run(rows):\n    return rows.assign(n=beside.ONE)\n"
        )
        result = _inline(ROWS[:1], tmp_path / "adds.py", job_dir=tmp_path / f"job{one}")
        assert list(result.to_pandas()["n"]) == [one]
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_poisoned_process_is_renewed(tmp_path: Path) -> None:
    """A renewal is a fresh import: the innocent ones succeed, as in processes of their own."""
    (tmp_path / "poisoned.py").write_text(POISONED)
    result = _inline(
        ROWS, tmp_path / "poisoned.py", job_dir=tmp_path / "job", allowed_failed_count=1
    )
    assert result.mini_batches == (12, 11, 1)
    assert list(result.to_pandas()["n"]) == [n for n in range(12) if n != 3]


def test_the_driver_uses_no_dask(tmp_path: Path) -> None:
    """Neither a cluster nor a process is started."""
    code = """
import os, sys
import pandas as pd
import daskprs
result = daskprs.parallel_run(
    pd.DataFrame({"n": range(3)}), lambda rows: rows.assign(n=os.getpid()), start_method="inline"
)
assert set(result.to_pandas()["n"]) == {os.getpid()}
assert "distributed" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_prints_are_seen_and_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They appear at once where the caller sees them; a secret is masked in both places."""
    monkeypatch.setenv("TOKEN", "abcdefgh12345678")
    (tmp_path / "prints.py").write_text(
        'import os\n\ndef run(rows):\n    print("row", rows["n"].iloc[0], os.environ["TOKEN"])\n'
        "    return rows\n"
    )
    job = tmp_path / "job"
    _inline(ROWS[:2], tmp_path / "prints.py", job_dir=job, secrets=["TOKEN"], show_output=True)
    expected = "row 0 ***\nrow 1 ***\n"
    assert capsys.readouterr().out == expected
    logs = [path.read_text() for path in (job / "logs" / "user" / "stdout").rglob("*.txt")]
    assert expected in logs


@pytest.mark.parametrize("row", ["3", "x"])
def test_no_file_of_the_input_stays_open(tmp_path: Path, row: str) -> None:
    """The end of an agent process would close it; here the next job would find one more."""
    (tmp_path / "rows.csv").write_text(f"n\n1\n2\n{row}\n")
    options = {"dtypes": {"n": "int64"}, "allowed_failed_count": -1, "job_dir": tmp_path / "job"}
    gc.disable()  # a file in a circle would be closed by chance
    try:
        with suppress(ParallelRunFailed):
            _inline(tmp_path / "rows.csv", lambda rows: rows, **options)
        opened = [os.path.realpath(fd) for fd in os.scandir("/proc/self/fd")]
    finally:
        gc.enable()
    assert not [path for path in opened if path.startswith(str(tmp_path))]


def test_an_error_that_is_kept_keeps_no_descriptor(tmp_path: Path) -> None:
    """A program may keep the errors of many jobs; their frames lead to the last agents."""

    def fail(rows: pd.DataFrame) -> pd.DataFrame:
        raise ValueError(rows)

    with pytest.raises(ParallelRunFailed) as kept:
        _inline(ROWS, fail, job_dir=tmp_path / "job", run_max_try=1)
    opened = [os.path.realpath(fd) for fd in os.scandir("/proc/self/fd")]
    assert not [path for path in opened if "memfd:daskprs-agent" in path]
    assert kept.value.__traceback__ is not None


def test_ctrl_c_cancels_the_job_and_charges_nothing(tmp_path: Path) -> None:
    """The mini-batch that it hits runs again at the resume, as its first attempt."""
    script = tmp_path / "interrupted.py"
    hit = "__import__('os').kill(__import__('os').getpid(), 2)"
    script.write_text(
        f"def run(rows):\n    if rows['n'].iloc[0] == 2:\n        {hit}\n    return rows\n"
    )
    with pytest.raises(ParallelRunCanceled):
        _inline(ROWS, script, job_dir=tmp_path / "job", run_max_try=1)
    script.write_text("def run(rows):\n    return rows\n")
    resumed = {"resume": True, "accept_changes": ["script"], "run_max_try": 1}
    result = _inline(ROWS, script, job_dir=tmp_path / "job", **resumed)
    assert list(result.to_pandas()["n"]) == list(range(12))


def test_leaving_the_debugger_cancels_the_job(tmp_path: Path) -> None:
    """The mini-batch is not tried again in another debugger."""

    def run(_rows: pd.DataFrame) -> None:
        raise bdb.BdbQuit

    with pytest.raises(ParallelRunCanceled):
        _inline(ROWS, run, job_dir=tmp_path / "job")


def test_breakpoints_name_the_file_of_the_caller(tmp_path: Path) -> None:
    """The script runs where it lies, not in a copy."""
    (tmp_path / "where.py").write_text("def run(rows):\n    return rows.assign(n=__file__)\n")
    result = _inline(ROWS[:1], tmp_path / "where.py", job_dir=tmp_path / "job")
    assert list(result.to_pandas()["n"]) == [str(tmp_path / "where.py")]


def test_a_job_goes_on_with_another_start_method(tmp_path: Path) -> None:
    """Commits do not say in which process they were made."""
    script = tmp_path / "stops.py"
    script.write_text("def run(rows):\n    assert rows['n'].iloc[0] < 5\n    return rows\n")
    job = tmp_path / "job"
    with pytest.raises(ParallelRunFailed):
        _inline(ROWS, script, job_dir=job)
    script.write_text("def run(rows):\n    return rows\n")
    result = daskprs.parallel_run(
        ROWS,
        script,
        job_dir=job,
        resume=True,
        accept_changes=["script"],
        mini_batch_size=ONE_ROW,
        progress=False,
    )
    assert list(result.to_pandas()["n"]) == list(range(12))


def test_only_one_thread_runs_a_script(tmp_path: Path) -> None:
    """A process has one working directory; the message names the other start method."""

    def waits(rows: pd.DataFrame) -> pd.DataFrame:
        (tmp_path / "began").touch()
        poll_for((tmp_path / "go").exists, 60)
        return rows

    one = threading.Thread(
        target=_inline, args=(ROWS[:1], waits), kwargs={"job_dir": tmp_path / "one"}
    )
    one.start()
    try:
        assert poll_for((tmp_path / "began").exists)
        with pytest.raises(ParallelRunFailed, match="another job runs its script in this process"):
            _inline(ROWS[:1], lambda rows: rows, job_dir=tmp_path / "two")
    finally:
        (tmp_path / "go").touch()
        one.join()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"python": sys.executable}, "not in the interpreter python="),
        ({"detach": True}, "a detached job has a driver of its own"),
    ],
)
def test_what_needs_another_process_is_refused(
    tmp_path: Path, given: dict[str, Any], told: str
) -> None:
    """The message names the options that contradict each other."""
    (tmp_path / "same.py").write_text("def run(rows):\n    return rows\n")
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(OptionError, match=f"start_method='inline'.*{told}"):
        _inline(tmp_path / "rows.csv", tmp_path / "same.py", job_dir=tmp_path / "job", **given)
    assert not (tmp_path / "job").exists()


def test_a_collection_is_refused(tmp_path: Path) -> None:
    """Dask would have to compute it."""
    with pytest.raises(OptionError, match="without Dask"):
        _inline(dd.from_pandas(ROWS, 2), lambda rows: rows, job_dir=tmp_path / "job")


def test_start_and_map_batches_refuse_it(tmp_path: Path) -> None:
    """Their scripts would work in a thread of which the caller knows nothing."""
    with pytest.raises(OptionError, match="Call parallel_run"):
        daskprs.start(ROWS, lambda rows: rows, start_method="inline", job_dir=tmp_path / "job")
    for committed in (True, False):
        with pytest.raises(OptionError, match="start_method='inline'"):
            daskprs.map_batches(
                dd.from_pandas(ROWS, 2),
                lambda rows: rows,
                schema=ROWS[:0],
                committed=committed,
                start_method="inline",
            )


def test_options_without_effect_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing ends a mini-batch in time, which is said once."""
    limit = daskprs.RateLimit(in_flight=2)  # it has one
    options = {
        "run_invocation_timeout": 5,
        "process_count_per_node": 2,
        "rate_limit": limit,
    }
    _inline(ROWS[:1], lambda rows: rows, job_dir=tmp_path / "job", **options)
    assert "No timeout ends it" in caplog.text
    assert "Without effect: process_count_per_node=" not in caplog.text
    assert "Without effect: process_count_per_node, run_invocation_timeout." in caplog.text


KEEPS = """
import logging, sys
LOG = logging.getLogger("kept")
LOG.propagate = False
if not LOG.handlers:
    LOG.addHandler(logging.StreamHandler(sys.stdout))
    LOG.setLevel("INFO")

def run(rows):
    LOG.info("at work on %s", rows["n"].iloc[0])
    return rows
"""


def test_what_keeps_the_scripts_stdout_writes_into_no_other_file(tmp_path: Path) -> None:
    """The number of a closed descriptor is soon that of the next job's journal."""
    (tmp_path / "keeps.py").write_text(KEEPS)
    try:
        for number in range(3):
            job = tmp_path / f"job{number}"
            result = _inline(ROWS[:4], tmp_path / "keeps.py", job_dir=job, output_dir=job / "out")
            assert result.items.succeeded == 4
            assert (job / "out" / "parallel_run_step.txt").read_text() == "0\n1\n2\n3\n"
            logging.getLogger("kept").info("the program's own line")
            assert not [path for path in job.rglob("journal*") if b"kept" in path.read_bytes()]
    finally:
        logging.getLogger("kept").handlers.clear()


def test_the_callers_class_stays_as_it_is(tmp_path: Path) -> None:
    """A class that travels by value is another one in the agent, with the globals of now."""
    code = """
import pandas as pd
import daskprs

class Model:
    def run(self, rows):
        return rows.assign(n=FACTOR)

before = Model.run
for FACTOR in (1, 10):
    result = daskprs.parallel_run(pd.DataFrame({"n": [0]}), Model, start_method="inline")
    assert list(result.to_pandas()["n"]) == [FACTOR], result.to_pandas()
assert Model.run is before
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    "where", mostly_long(["import", "init", "run", "shutdown"], suite=["init", "run"])
)
def test_a_fork_of_the_script_drives_no_job(tmp_path: Path, where: str) -> None:
    """It ends where it returns from the script; the program goes on once."""
    lines = {"import": "fork()"}
    lines |= {name: f"def {name}():\n    fork()" for name in ("init", "shutdown")}
    body = "fork()" if where == "run" else "pass"
    (tmp_path / "forks.py").write_text(
        "import os, sys\n\ndef fork():\n    if os.fork() == 0:\n        sys.exit(0)\n\n"
        f"{lines.get(where, '')}\n\ndef run(rows):\n    {body}\n    return rows\n"
    )
    code = """
import pandas as pd
import daskprs
result = daskprs.parallel_run(
    pd.DataFrame({"n": range(3)}), "forks.py", start_method="inline", progress=False
)
print("goes on", list(result.to_pandas()["n"]), flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout == "goes on [0, 1, 2]\n"


def test_a_script_gets_the_module_beside_it_and_the_caller_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have a module of one name."""
    for folder, one in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "neighbour.py").write_text(f"ONE = {one}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "a"))
    neighbour = importlib.import_module("neighbour")
    (tmp_path / "b" / "asks.py").write_text(
        "import neighbour\n\ndef run(rows):\n    return rows.assign(n=neighbour.ONE)\n"
    )
    result = _inline(ROWS[:1], tmp_path / "b" / "asks.py", job_dir=tmp_path / "job")
    assert list(result.to_pandas()["n"]) == [2]
    assert sys.modules.pop("neighbour") is neighbour


def test_what_the_caller_has_frozen_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gc.freeze` is for the whole process: a job thaws only what it has frozen itself."""
    monkeypatch.setattr(dispatch, "gc", gc)  # other tests spare themselves the question
    gc.freeze()
    frozen = gc.get_freeze_count()
    _inline(ROWS[:1], lambda rows: rows, job_dir=tmp_path / "job")
    assert gc.get_freeze_count() > frozen / 2


def test_an_alarm_of_the_script_ends_with_it(tmp_path: Path) -> None:
    """It would end the caller's program later; the caller's own alarm goes on."""
    (tmp_path / "alarm.py").write_text(
        "import signal\n\ndef run(rows):\n    signal.alarm(1000)\n    return rows\n"
    )
    kept = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        for own in (0.0, 500.0):
            signal.setitimer(signal.ITIMER_REAL, own)
            _inline(ROWS[:1], tmp_path / "alarm.py", job_dir=tmp_path / f"job{own}")
            left, _ = signal.getitimer(signal.ITIMER_REAL)
            assert left <= own
            assert bool(left) == bool(own)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *kept)


def test_a_start_without_descriptors_puts_everything_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job fails, and says which limit that is; the next one has the process to itself."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    (tmp_path / "same.py").write_text("def run(rows):\n    return rows\n")
    before = _state()
    with monkeypatch.context() as broken:
        broken.setattr(inline_agent, "AgentProcess", refuse)
        with pytest.raises(ParallelRunFailed, match=r"cannot work in this process.*Too many open"):
            _inline(ROWS[:1], tmp_path / "same.py", job_dir=tmp_path / "one")
    assert _state() == before
    thread = threading.Thread(  # of which the first one would have kept the lock
        target=_inline, args=(ROWS[:1], tmp_path / "same.py"), kwargs={"job_dir": tmp_path / "two"}
    )
    thread.start()
    thread.join()
    assert "Completed" in (tmp_path / "two" / "logs" / "job_result.txt").read_text()


def test_a_delayed_retry_really_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another mini-batch comes first; then the thread sleeps until the retry is due, not longer."""
    monkeypatch.setattr(dispatch, "TICK_S", 30.0)
    log = tmp_path / "log"

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        first = rows["n"].iloc[0]
        with log.open("a") as file:
            file.write(f"{first} {time.monotonic()}\n")
        if first == 0 and log.read_text().split()[::2].count("0") < 3:
            raise ConnectionError
        return rows

    result = _inline(ROWS[:3], run, job_dir=tmp_path / "job", retry_delay=0.3)
    assert list(result.to_pandas()["n"]) == [0, 1, 2]
    begun = [line.split() for line in log.read_text().splitlines()]
    assert [n for n, _ in begun][:2] == ["0", "1"]
    assert sorted(n for n, _ in begun) == ["0", "0", "0", "1", "2"]
    times = [float(at_s) for n, at_s in begun if n == "0"]
    waits = [after - before for before, after in pairwise(times)]
    assert min(waits) >= 0.3
    assert max(waits) < dispatch.TICK_S, "the longest turn of the loop"


def test_a_job_whose_disk_fails_before_it_begins_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the file and the next step, in place of an error of Python; the next call does all."""

    def fails(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    call: dict[str, Any] = {"start_method": "inline", "progress": False, "job_dir": tmp_path}
    said = r"not begun, since a disk fails: .*Input/output error: '.*/salt'\. Mend it, .* call the"
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        with pytest.raises(OutputError, match=said):
            daskprs.parallel_run(ROWS, _values, **call)
    assert daskprs.parallel_run(ROWS, _values, **call).status == "Completed"


def _values(rows: pd.DataFrame) -> pd.Series[int]:
    return rows["n"]
