"""A script under another interpreter: it works, fails and dies as under our own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs.errors import OptionError, ScriptError

if TYPE_CHECKING:
    from pathlib import Path

PLANNED = """
import ctypes, json, os, signal, sys, threading, time
from pathlib import Path

import sibling
import daskprs
from daskprs import EntryScript
from daskprs import MiniBatchContext


def init():
    EntryScript().logger.info("the secret is %s", os.environ["SECRET"])
    threading.Thread(target=time.sleep, args=(0.2,)).start()


def fail(name):
    raise ValueError("bad " + name)


def pieces(name):
    yield name
    yield 2


def run(mini_batch, context):
    name = Path(mini_batch[0]).stem
    print("at", name)
    if name == "raises":
        fail(name)
    if name == "sleeps":
        time.sleep(100)
    if name == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "killed":
        os.system("sleep 60 &"), os.kill(os.getpid(), signal.SIGKILL)
    if name == "leaves":
        os._exit(7)
    if name == "exits":
        sys.exit(3)
    if name == "nothing":
        return None
    if name == "text":
        return "text"
    if name == "yields":
        return pieces(name)
    found = {
        "prefix": sys.prefix,
        "environment": os.environ["VIRTUAL_ENV"],
        "first": os.environ["PATH"].split(":")[0],
        "modules": sorted({"numpy", "pandas", "pyarrow", "dask"} & set(sys.modules)),
        "argv": sys.argv[-2:],
        "sibling": sibling.VALUE,
        "one": EntryScript() is daskprs.EntryScript(),
        "context": isinstance(context, MiniBatchContext),
        "weights": EntryScript().side_inputs["weights"],
        "index": context.minibatch_index,
        "cwd": os.getcwd() == EntryScript().working_dir,
    }
    return [json.dumps(found)]


def shutdown():
    Path(EntryScript().output_dir, "shut").touch()
"""
ENDS = {
    "raises": r"ValueError: bad raises",
    "sleeps": r"TimeoutError: run\(\) exceeded 3 s .* in script.py, line 31, in run: time.sleep",
    "crashes": r"returncode -11 \(SIGSEGV\) .* in script.py, line 33, in run: os.kill",
    "killed": r"returncode -9 \(SIGKILL\)",
    "leaves": r"returncode 7 .*os._exit",
    "exits": r"SystemExit: sys.exit\(3\) was called",
    "nothing": r"RUN_NULL_RETURN",
    "text": r"ReturnTypeError: run\(\) returned a str, '",
}
FINE = {"finds", "yields"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment without any package."""
    folder = tmp_path_factory.mktemp("interpreter") / "bare"
    venv.create(folder, symlinks=True)
    return folder


def test_a_script_lives_and_dies_there_as_it_does_here(tmp_path: Path, bare: Path) -> None:
    """What it finds, prints, returns and raises, and how its process ends."""
    source, files = tmp_path / "source", tmp_path / "files"
    source.mkdir()
    files.mkdir()
    (source / "script.py").write_text(PLANNED)
    (source / "sibling.py").write_text("VALUE = 'a sibling'\n")
    (tmp_path / "weights").write_text("1")
    names = sorted({*ENDS, *FINE})
    for name in names:
        (files / f"{name}.txt").write_text(name)
    result = daskprs.parallel_run(
        files,
        source / "script.py",
        python=bare,
        arguments=["--mine", "1"],
        side_inputs={"weights": tmp_path / "weights"},
        environment_variables={"SECRET": "do-not-show-this"},
        secrets="SECRET",
        mini_batch_size=1,
        run_max_try=1,
        run_invocation_timeout=3,
        allowed_failed_count=-1,
        process_count_per_node=2,
        job_dir=tmp_path / "job",
        output_dir=tmp_path / "out",
        keep_rows=True,
        progress=False,
    )
    failed = dict(zip(result.failed["mini_batch"], result.failed["error"], strict=True))
    assert {names[index] for index in failed} == {*ENDS}
    for name, said in ENDS.items():
        assert re.search(said, failed[names.index(name)], re.DOTALL), failed[names.index(name)]
        assert result.stdout(names.index(name)) == f"at {name}\n"
    rows = [*result.to_pandas()["result"]]
    assert rows[1:] == ["yields", 2]
    assert json.loads(rows[0]) == {
        "prefix": str(bare),
        "environment": str(bare),
        "first": str(bare / "bin"),
        "modules": [],
        "argv": ["--mine", "1"],
        "sibling": "a sibling",
        "one": True,
        "context": True,
        "weights": str(tmp_path / "weights"),
        "index": names.index("finds"),
        "cwd": True,
    }
    assert (tmp_path / "out" / "shut").exists()
    logs = "".join(path.read_text() for path in result.logs_dir.rglob("*") if path.is_file())
    assert f'File "{source}/script.py", line 29, in run\n    fail(name)\n' in logs
    assert "daskprs/_agent" not in (result.logs_dir / "job_error.txt").read_text()
    assert "the secret is ***" in logs
    assert "do-not-show-this" not in logs


def doubled(source: Path) -> Path:
    """Write a script that keeps some columns, and makes some."""
    source.write_text(
        "def run(rows):\n"
        "    rows['twice'] = rows['number'] * 2\n"
        "    rows.loc[rows.index[0], 'text'] = None\n"
        "    return rows[rows['number'] != 4]\n"
    )
    return source


def frame_of_types() -> pd.DataFrame:
    """Return a frame with labels and columns of several types."""
    return pd.DataFrame(
        {
            "number": range(6),
            "text": ["a", None, "c", "", "é", "f"],
            "rare": pd.array([None, None, "x", None, None, None], "str"),
            "year": pd.period_range("2020", periods=6, freq="Y-JUN"),
            "hour": pd.period_range("2020", periods=6, freq="h"),
            "time": pd.date_range("2020", periods=6, tz="Europe/Vienna"),
            "kind": pd.Categorical(["x", None, "y"] * 2, ["y", "x"]),
            "nullable": pd.array([1, None, 3] * 2, dtype="Int64"),
            "object": [[1], None, {"a": 1}, b"b", 2.5, "g"],
        },
        index=list("uvwxyz"),
    )


def test_rows_are_those_of_our_own_interpreter(tmp_path: Path) -> None:
    """Labels, types and columns of the input, for the same packages there and here."""
    script, frame = doubled(tmp_path / "script.py"), frame_of_types()
    here, there = (
        daskprs.parallel_run(
            frame,
            script,
            python=python,
            include_columns=["row_number"],
            process_count_per_node=1,
            job_dir=tmp_path / f"job{place}",
            progress=False,
        )
        for place, python in enumerate((None, sys.executable))
    )
    rows = there.to_pandas()
    pd.testing.assert_frame_equal(rows, here.to_pandas(), check_exact=True)
    assert [*rows.index] == list("uvwxz")
    options: dict[str, Any] = {"job_dir": tmp_path / "job1", "resume": True, "progress": False}
    with pytest.raises(daskprs.errors.JobChanged, match="python"):
        daskprs.parallel_run(frame, script, include_columns=["row_number"], **options)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"python": "gone/bin/python"}, r"this file does not exist"),
        ({"python": "gone/" + 256 * "n"}, r"this file does not exist"),
        ({"python": "script.py"}, r"not a program, and cannot be started"),
        ({"python": "/bin/true"}, r"ends with returncode 0, and does not answer"),
        ({"python": "{bare}"}, r"it has no pandas, which rows need .*input_type='files'"),
        ({"python": "{bare}", "batch_format": "pyarrow"}, r"it has no pyarrow"),
    ],
)
def test_an_interpreter_that_cannot_work_is_refused(
    given: dict[str, Any], said: str, tmp_path: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything starts, with the path of the interpreter and the next step."""
    monkeypatch.chdir(tmp_path)
    script = doubled(tmp_path / "script.py")
    given = {name: value.format(bare=bare) for name, value in given.items()}
    with pytest.raises(OptionError, match=said):
        daskprs.start(pd.DataFrame({"number": [1]}), script, **given)
    assert not (tmp_path / "daskprs-jobs").exists()


def test_only_a_file_that_compiles_there_is_run(tmp_path: Path, bare: Path) -> None:
    """A function cannot travel, and the syntax is that of the other Python."""
    with pytest.raises(OptionError, match="<lambda> is an object of this process"):
        daskprs.start(frame_of_types(), lambda rows: rows, python=bare)
    script = tmp_path / "script.py"
    script.write_text("def run(rows):\n    return rows rows\n")
    with pytest.raises(ScriptError, match=rf"compiled by {bare}/bin/python.\n(.*\n)*.*rows rows"):
        daskprs.start(frame_of_types(), script, python=bare)


OLD = """
import sys
import numpy
import pandas as pd

def run(rows):
    assert pd.__version__ == "1.5.3" and numpy.__version__ < "2"
    assert not {"dask", "pyarrow", "daskprs"} & set(sys.modules)
    assert str(rows["text"].dtype) == "object"
    rows["twice"] = rows["number"] * 2
    return rows[rows["number"] != 4]
"""


@pytest.mark.long
def test_an_old_pandas_scores_rows_and_files(tmp_path: Path) -> None:
    """Neither dask nor pyarrow is there; types that it does not have come back as its own."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "old"], check=True)
    pip = [tmp_path / "old/bin/pip", "install", "--quiet", "pandas==1.5.3", "numpy<2"]
    subprocess.run(pip, check=True)
    script = tmp_path / "script.py"
    script.write_text(OLD)
    options: dict[str, Any] = {"python": tmp_path / "old", "progress": False, "mini_batch_size": 2}
    frame = frame_of_types()
    rows = daskprs.parallel_run(frame, script, job_dir=tmp_path / "a", **options).to_pandas()
    expected = frame[frame["number"] != 4].assign(twice=[0, 2, 4, 6, 10])
    expected["time"] = expected["time"].dt.as_unit("ns")
    pd.testing.assert_frame_equal(rows, expected, check_exact=True)
    script.write_text("def run(paths):\n    return [open(path).read() for path in paths]\n")
    (tmp_path / "one.txt").write_text("one")
    files = daskprs.parallel_run([tmp_path / "one.txt"], script, job_dir=tmp_path / "b", **options)
    assert [*files.to_pandas()["result"]] == ["one"]
    frame["time"] = pd.Timestamp("1066-10-14")
    script.write_text(OLD)
    with pytest.raises(daskprs.ParallelRunFailed) as error:
        daskprs.parallel_run(frame, script, job_dir=tmp_path / "c", **options)
    assert "cannot hold the column 'time': Out of bounds" in error.value.result.failed["error"][0]
