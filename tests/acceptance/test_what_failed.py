"""What a failed job shows: the lines of the script that led to its error, and no frame of ours."""

from __future__ import annotations

import linecache
import re
import traceback
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import daskprs

pytestmark = pytest.mark.usefixtures("inline")

PACKAGE = str(Path(daskprs.__file__).parent)
FAILS = """
import threading
import time


def score(row):
    if row == 2:
        {deed}
    return row


def run(rows):
    return [score(row) for row in rows["n"]]
"""


def failed(tmp_path: Path, script: Any, **options: Any) -> daskprs.ParallelRunFailed:
    """Return the error of a job over four rows, one at a time."""
    given = {"mini_batch_size": 1, "job_dir": tmp_path / "job", "process_count_per_node": 1}
    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        daskprs.parallel_run(
            pd.DataFrame({"n": range(4)}), script, run_max_try=1, progress=False, **given | options
        )
    return caught.value


def written(tmp_path: Path, deed: str) -> Path:
    """Return a script that does something to the row 2."""
    (tmp_path / "source").mkdir()
    script = tmp_path / "source" / "score.py"
    script.write_text(FAILS.format(deed=deed))
    return script


@pytest.mark.processes
def test_the_message_has_the_lines_of_the_script(tmp_path: Path) -> None:
    """With the mini-batch, and with the paths that the user knows."""
    script = written(tmp_path, "int(str([row]))")
    error = failed(tmp_path, script)
    first, where, *lines = str(error).splitlines()
    assert first.startswith("ValueError: invalid literal for int()")
    message = "\n".join(lines)
    assert "In mini-batch 2 (rows 2-3), attempt 1:" in (where, *lines)
    assert re.search(rf'  File "{script}", line 13, in .*\n    return \[score\(row\)', message)
    assert f'  File "{script}", line 8, in score\n    int(str([row]))\n' in message
    assert PACKAGE not in str(error)
    assert message.index("int(str([row]))") < message.index("The job is Failed")
    assert (error.result.logs_dir / "job_result.txt").read_text() == f"{error}\n"


@pytest.mark.processes
def test_no_frame_of_daskprs_stands_above_the_error(tmp_path: Path) -> None:
    """The traceback begins and ends with the caller's frame; a handle's result does it too."""

    def run(rows: pd.DataFrame) -> None:
        raise ValueError(len(rows))

    error = failed(tmp_path, run)
    shown = "".join(traceback.format_exception(error))
    assert f'File "{PACKAGE}/' not in shown
    assert "daskprs.parallel_run(" in shown
    handle = daskprs.start(
        pd.DataFrame({"n": [1]}), run, job_dir=tmp_path / "other", progress=False
    )
    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        handle.result()
    shown = "".join(traceback.format_exception(caught.value))
    assert f'File "{PACKAGE}/' not in shown
    assert "handle.result()" in shown


def test_ipython_shows_the_message_and_the_callers_frames(tmp_path: Path) -> None:
    """By the hook that IPython asks for; the cells of a notebook are on the screen already."""
    error = failed(tmp_path, written(tmp_path, "raise ValueError('bad')"))
    shown = "\n".join(error._render_traceback_())
    assert shown.endswith(f"ParallelRunFailed: {error}")
    assert "in failed" in shown
    assert PACKAGE not in shown
    call = {"run": daskprs.parallel_run}
    cell = compile("run(1, 2, zzz=3)", "<ipython-input-1-a>", "exec")
    with pytest.raises(daskprs.OptionError) as refused:
        exec(cell, call)  # noqa: S102 - as IPython does
    (*frames, message) = refused.value._render_traceback_()
    assert message.startswith("OptionError: zzz: there is no such option.")
    assert "in test_ipython" in "".join(frames)
    assert "ipython-input" not in "".join(frames)
    for refuse in (
        lambda: failed(tmp_path, lambda rows: rows),  # the folder has a job
        lambda: daskprs.plan(pd.DataFrame({"n": [1]}), mini_batch_size="1 line"),
    ):
        with pytest.raises(daskprs.DaskprsError) as refused:
            refuse()
        *frames, _ = refused.value._render_traceback_()
        assert not [one for one in frames if "contextlib" in one or "<string>" in one]


@pytest.mark.processes
def test_a_timeout_names_the_line_of_the_script(tmp_path: Path) -> None:
    """And the seconds, the mini-batch, and the stack from the first line of the script on."""
    script = written(tmp_path, "time.sleep(3600)")
    error = failed(tmp_path, script, run_invocation_timeout=1)
    first, where, *frames = str(error).splitlines()
    assert first.startswith(
        "TimeoutError: run() exceeded 1 s on process000, which was killed after "
    )
    assert " s in score.py, line 8, in score: time.sleep(3600). " in first
    assert where == "In mini-batch 2 (rows 2-3), attempt 1:"
    assert frames[0] == f'  File "{script}", line 13, in run'
    assert f'  File "{script}", line 8, in score' in frames
    assert PACKAGE not in "\n".join(frames)
    assert "outbox" not in str(error)


@pytest.mark.processes
def test_a_timeout_names_threads_of_the_script_and_none_of_ours(tmp_path: Path) -> None:
    """A main thread that waits for another one does not say why."""
    deed = "t = threading.Thread(target=lambda: time.sleep(3600)); t.start(); t.join()"
    error = failed(tmp_path, written(tmp_path, deed), run_invocation_timeout=1)
    assert "line 8, in score: t = threading.Thread(" in str(error).splitlines()[0]
    assert str(error).count("A thread of the script (most recent call last):") == 1
    assert "line 8, in <lambda>" in str(error)
    assert PACKAGE not in str(error)


@pytest.mark.processes
def test_a_crash_in_c_names_the_line_of_the_script(tmp_path: Path) -> None:
    """Its stderr is quoted without the dump, which would hide what the script wrote there."""
    deed = "import ctypes, sys; print('last words', file=sys.stderr); ctypes.string_at(0)"
    error = failed(tmp_path, written(tmp_path, deed))
    first, *more = str(error).splitlines()
    assert first.startswith("PROCESS_DIED: process00")
    assert " exits with returncode -11 (SIGSEGV)" in first
    assert "native code crashed in score.py, line 8, in score: import ctypes" in first
    assert "last words" in more
    assert "Extension modules" not in str(error)
    assert "Current thread" not in str(error)
    assert error.result.stderr(2) == "last words\n"


@pytest.mark.processes
def test_the_dump_of_a_child_is_not_that_of_its_agent(tmp_path: Path) -> None:
    """A fork of the script has crashed; the agent ends by itself, and its stderr is quoted."""
    crash = "os.fork() or ctypes.string_at(0)"
    deed = f"import ctypes, os; {crash}; os.wait(); os.write(2, b'last words'); os._exit(3)"
    error = failed(tmp_path, written(tmp_path, deed))
    first, *more = str(error).splitlines()
    assert " exits with returncode 3 " in first
    assert "score.py, line" not in first
    assert "last words" in more
    assert "Fatal Python error: Segmentation fault" in error.result.stderr(2)


def test_code_of_a_cell_has_its_lines(tmp_path: Path) -> None:
    """The agents have no file of that name."""
    code = "def run(rows):\n    return helped(rows)\n"
    name = str(tmp_path / "ipykernel_1" / "2.py")
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    cell: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, name, "exec"), cell)  # noqa: S102 - as a notebook does
    error = failed(tmp_path, cell["run"])
    assert f'  File "{name}", line 2, in run\n    return helped(rows)\n' in str(error)


def test_of_several_kinds_of_errors_the_most_frequent_counts(tmp_path: Path) -> None:
    """To correct the first one would not save the job."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        if rows["n"].iloc[0] == 0:
            raise KeyError("odd one")
        raise ValueError("the usual one")

    error = failed(tmp_path, run, allowed_failed_count=2)
    first, where, *more = str(error).splitlines()
    assert first == "ValueError: the usual one"
    assert re.fullmatch(r"In mini-batch [12] \(rows \d-\d\), attempt \d( \(1 charged\))?:", where)
    assert "Errors of the mini-batches that failed: 2 × ValueError, 1 × KeyError." in more
