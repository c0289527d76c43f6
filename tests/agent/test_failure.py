"""Errors of a script as text, and which of them another process may not have."""

from __future__ import annotations

import argparse
import errno
import linecache
import os
import socket
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from daskprs._agent.child.beside_script import hint_at_import, hint_at_name, hint_at_own_module
from daskprs._agent.child.cuda_errors import hint_at_spawn, is_fatal
from daskprs._agent.child.failure import may_pass
from daskprs._agent.child.file_at_hand import hint_at_file
from daskprs._agent.child.missing_keys import hint_at_columns, hint_at_variable
from daskprs._agent.child.pandas_changes import hint_at_pandas
from daskprs._agent.foreign.raised import (
    RaisedElsewhere,
    links_of,
    message_of,
    printed,
    record_of,
)
from daskprs._agent.protocol.messages import ScriptSpec, SourceText
from tests.support.versions import of_pandas_3

if TYPE_CHECKING:
    from collections.abc import Callable


class ModelServerError(ConnectionError):
    """An error of a script, of a connection by its class alone."""


def test_the_import_of_a_script_begins_with_a_line_of_it(tmp_path: Path) -> None:
    """Frames of Python's import before it are those of its caller."""
    script = tmp_path / "script.py"
    script.write_text("import nothing_of_this_name\n")
    spec = spec_from_file_location("script", script)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ModuleNotFoundError) as caught:
        spec.loader.exec_module(module_from_spec(spec))
    first = printed(caught.value, __file__).splitlines()[1]
    assert first == f'  File "{script}", line 1, in <module>'


def test_an_error_without_words_names_the_line_of_the_cell() -> None:
    """A bare `assert` in a notebook, whose code lies in a file with a number for a name."""
    code, file = "def run(rows):\n    assert not rows\n", "/cells/ipykernel_7/2731215040.py"
    script = ScriptSpec("run", sources=(SourceText(file, "Cell In[3]", code),))
    script.know_lines()
    names: dict[str, Any] = {}
    exec(compile(code, file, "exec"), names)  # noqa: S102 - as a notebook does
    with pytest.raises(AssertionError) as caught:
        names["run"]([1])
    message = script.with_cells(message_of(caught.value))
    assert message == "Cell In[3], line 2: assert not rows"
    assert "  Cell In[3], line 2, in run\n" in script.with_cells(printed(caught.value, __file__))
    del linecache.cache[file]


def test_an_import_in_a_function_of_a_notebook_is_told_where_to_go(tmp_path: Path) -> None:
    """The module lies beside the notebook, where the agents do not look."""
    (tmp_path / "helper.py").touch()
    (tmp_path / "package").mkdir()
    script = ScriptSpec("run", pickled=b"", called_in=str(tmp_path))
    for name in ("helper", "package"):
        hint = hint_at_own_module(ModuleNotFoundError(f"No module named '{name}'"), script)
        assert hint.startswith(f"{name} lies in {tmp_path}, but")
        assert hint.endswith(f"Import {name} outside of the function, and not in it.")
    for name in ("absent", "package.absent"):
        error = ModuleNotFoundError(f"No module named '{name}'")
        assert hint_at_own_module(error, script) == ""


def in_a_group(error: Exception) -> ExceptionGroup[Exception]:
    """Return an error as one of several."""
    return ExceptionGroup("two of them", [KeyError("a"), error])


def test_a_long_message_is_cut_before_it_is_searched() -> None:
    """Some fifty megabytes, searched for many words, took longer than the mini-batch."""
    cause = ValueError("at first " + "a" * 1_000_000 + " at last")
    error = KeyError("b")
    error.__cause__ = cause
    _, (_, _, text) = links_of(error)
    assert len(text) < 10_100
    assert text.startswith("at first")
    assert text.endswith("at last")


class AcceleratorError(RuntimeError):
    """PyTorch's error of a device."""


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA`",
        "CUDA error: an illegal memory access was encountered",
        "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
        "cudaErrorLaunchFailure: unspecified launch failure",
        "INTERNAL: Failed to query event: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure",
        "HIP error: unspecified launch failure",
        "CUDA error: uncorrectable ECC error encountered",
    ],
)
def test_a_device_that_needs_a_new_process_is_a_fatal_error(message: str) -> None:
    """Also as the cause of an error of the script, and under another interpreter."""
    error = AcceleratorError(message)
    assert is_fatal(error)
    wrapped = ValueError("no embedding")
    wrapped.__cause__ = error
    assert is_fatal(wrapped)
    assert is_fatal(RaisedElsewhere(*record_of(wrapped, "ours")))


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory. Tried to allocate 20.00 GiB",
        "CUDA error: no kernel image is available for execution on the device",
        "CUDA error: invalid device ordinal",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
        "misaligned address in row 7",
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "the cudaErrorAssertions of this model",
    ],
)
def test_other_errors_leave_the_process_as_it_is(message: str) -> None:
    """Memory is free again for the next mini-batch, and words of a script are no error codes."""
    assert not is_fatal(AcceleratorError(message))


@pytest.mark.parametrize(
    "error",
    [
        ModelServerError("off"),
        socket.gaierror(-3, "no such name"),
        subprocess.TimeoutExpired("curl", 5),
        OSError(errno.EHOSTUNREACH, "there is no way"),
        MemoryError(),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("database is locked"),
        in_a_group(TimeoutError()),
    ],
    ids=repr,
)
def test_connections_timeouts_memory_and_locks_may_pass(error: Exception) -> None:
    """The next process may find the server up, or memory free."""
    assert may_pass(error)
    wrapped = ValueError("no model")
    wrapped.__cause__ = error
    assert may_pass(wrapped)
    assert may_pass(RaisedElsewhere(*record_of(wrapped, "ours")))


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'torch'"),
        FileNotFoundError(errno.ENOENT, "no such file", "model.pt"),
        ValueError("boom"),
        SystemExit(2),
    ],
    ids=repr,
)
def test_other_errors_do_not_pass_by_themselves(error: BaseException) -> None:
    """A module that is missing is missing in the next process, too."""
    assert not may_pass(error)
    assert not may_pass(RaisedElsewhere(*record_of(error, "ours")))


def test_a_parser_that_refuses_the_flags_of_the_job_is_explained() -> None:
    """What it has written is in the log of the process alone."""
    parser = argparse.ArgumentParser()
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--logging_level", "INFO"])
    assert message_of(ended.value).endswith("use parse_known_args() of the parser")
    assert "argparse says: unrecognized arguments: --logging_level INFO." in message_of(ended.value)
    assert "parser" not in message_of(SystemExit(2))


@pytest.mark.parametrize(("file", "module"), [("a.py", "MODULE"), ("b/a.py", "b.MODULE")])
def test_a_relative_import_is_told_how_to_be_written(file: str, module: str) -> None:
    """The script has no package; also where another interpreter has raised the error."""
    spec = ScriptSpec("a.py", file=f"/src/{file}", source_directory="/src")
    error = ImportError("attempted relative import with no known parent package")
    for one in (error, RaisedElsewhere(*record_of(error, "ours"))):
        assert f"Write from {module} import NAME in place" in hint_at_import(one, spec)
    assert hint_at_import(ImportError("cannot import name 'x'"), spec) == ""


@pytest.mark.parametrize(
    "message",
    [
        "module 'queue' has no attribute 'put_later'",
        "cannot import name 'put_later' from 'queue' (/usr/lib/python3.11/queue.py)",
    ],
)
def test_a_module_that_is_loaded_before_one_beside_the_script_is_told(
    tmp_path: Path, message: str
) -> None:
    """One of the same name beside the script is never imported."""
    spec = ScriptSpec("a.py", file=str(tmp_path / "a.py"), source_directory=str(tmp_path))
    error = ImportError(message)
    (tmp_path / "queue").mkdir()  # of data
    assert hint_at_name(error, spec) == ""
    (tmp_path / "queue.py").touch()
    for one in (error, RaisedElsewhere(*record_of(error, "ours"))):
        assert hint_at_name(one, spec).endswith("Rename queue.py.")
    assert hint_at_name(ValueError(message), spec) == ""


def test_the_module_beside_the_script_is_not_taken_for_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacks the name itself."""
    (tmp_path / "own_tools.py").touch()
    own = ModuleType("own_tools")
    own.__file__ = str(tmp_path / "own_tools.py")
    monkeypatch.setitem(sys.modules, "own_tools", own)
    spec = ScriptSpec("a.py", file=str(tmp_path / "a.py"), source_directory=str(tmp_path))
    assert hint_at_name(AttributeError("module 'own_tools' has no attribute 'x'"), spec) == ""


def test_the_message_of_a_group_has_its_first_error() -> None:
    """That of a `TaskGroup` says only how many there are."""
    nested = ExceptionGroup("unhandled errors in a TaskGroup", [in_a_group(ValueError("b"))])
    assert message_of(nested) == (
        "unhandled errors in a TaskGroup (1 sub-exception): ExceptionGroup: "
        "two of them (2 sub-exceptions): KeyError: 'a'"
    )


def test_a_parser_that_takes_a_flag_of_the_job_for_its_own_is_explained() -> None:
    """An argument that is missing is another matter."""
    parser = argparse.ArgumentParser()
    for name in ("--output_train", "--output_test"):
        parser.add_argument(name)
    with pytest.raises(SystemExit) as ended:
        parser.parse_known_args(["--output", "/out"])
    said = message_of(ended.value)
    assert "ambiguous option: --output could match --output_train, --output_test" in said
    assert said.endswith("own: use argparse.ArgumentParser(allow_abbrev=False)")
    parser.add_argument("--model", required=True)
    with pytest.raises(SystemExit) as ended:
        parser.parse_known_args([])
    said = message_of(ended.value)
    assert said.endswith("argparse says: the following arguments are required: --model")


def test_a_system_error_of_another_interpreter_is_explained() -> None:
    """By the number of its cause, as an error of the agent's own."""
    wrapped = ValueError("no model")
    wrapped.__cause__ = OSError(errno.EMFILE, "Too many open files")
    error = RaisedElsewhere(*record_of(wrapped, "ours")).system_error()
    assert isinstance(error, OSError)
    assert (error.errno, str(error)) == (errno.EMFILE, f"[Errno {errno.EMFILE}] no model")


TAKEN = "it takes the line, some with a warning"


@pytest.mark.parametrize(
    ("line", "is_explained"),
    [
        ("frame.append(frame)", True),
        ("frame['n'].iteritems()", True),
        of_pandas_3("frame.loc.__setitem__((0, 'n'), 'x')", True, why=TAKEN),
        of_pandas_3("frame.iloc.__setitem__((0, 1), 5.0)", True, why=TAKEN),
        ("frame.mean()", True),
        of_pandas_3("frame.fillna(method='ffill')", True, why=TAKEN),
        ("frame.sum(level=0)", True),
        ("frame.drop('n', 1)", True),
        ("pd.read_csv('x.csv', error_bad_lines=False)", True),
        of_pandas_3("pd.date_range('2026', periods=2, freq='M')", True, why=TAKEN),
        ("pd.Int64Index([1])", True),
        ("__import__('pandas.core.indexes.numeric')", True),
        ("__import__('pandas.tools.plotting')", True),
        ("exec('from pandas import Panel')", True),
        of_pandas_3("frame.groupby('n', axis=1)", True, why=TAKEN),
        of_pandas_3("frame['n'].map(arg=str)", False, why=TAKEN),
        ("exec('from pandas import Panel2')", False),
        ("__import__('pandas.tool')", False),
        ("frame.drop(colums='n')", False),
        ("frame.head(1, 2)", False),
        ("pd.read_csv('x.csv', delimeter=',')", False),
        ("(merge := lambda a: a)(b=1)", False),
        ("exec('def merge(a): return a\\nmerge(b=1)')", False),
        of_pandas_3("frame.__setitem__('label', np.array([['x'], ['y']]))", True, why=TAKEN),
        of_pandas_3(
            "frame.__setitem__('label', np.array([['x'], ['y']], dtype=object))", True, why=TAKEN
        ),
        ("pa.array(np.array([['x']]))", False),
        ("frame.nope", False),
        ("frame['nope']", False),
        ("pd.Timestamp('nope')", False),
        ("int('nope')", False),
        ("print(no_such_argument=1)", False),
        ("__import__('no_such_module')", False),
    ],
)
def test_what_an_older_pandas_took_is_told(line: str, is_explained: bool) -> None:  # noqa: FBT001 - a case
    """With the version that is here, and what to do."""
    frame = pd.DataFrame({"n": [1, 2], "t": ["x", "y"]})
    with pytest.raises(Exception) as raised:  # noqa: PT011 - each has its own
        eval(line, {"frame": frame, "np": np, "pa": pa, "pd": pd})  # noqa: S307 - a case above
    hint = hint_at_pandas(raised.value)
    assert bool(hint) is is_explained
    if hint:
        assert hint.startswith(f"This is pandas {pd.__version__}, which refuses")
        assert "python='/path/to/python'" in hint


COLUMNS = pd.DataFrame({"price": [1], "town": ["Ulm"]})


@pytest.mark.parametrize(
    ("ask", "hint"),
    [
        (lambda: COLUMNS["pirce"], "The columns are 'price', 'town'."),
        (lambda: COLUMNS[["price", "x"]], "The columns are 'price', 'town'."),
        (lambda: COLUMNS.groupby("x").sum(), "The columns are 'price', 'town'."),
        (lambda: COLUMNS.apply(lambda row: row["x"], axis=1), "The columns are 'price', 'town'."),
        (lambda: pd.DataFrame({"a;b": []})["a"], "only column is 'a;b'. Say delimiter=';'"),
        (lambda: pd.DataFrame({"a\tb": []})["a"], r"Say delimiter='\t'"),
        (lambda: COLUMNS.loc[7], ""),
        (lambda: {"a": 1}["b"], ""),
    ],
)
def test_a_missing_column_is_answered_with_the_columns(ask: Callable[[], Any], hint: str) -> None:
    """Those of the frame that pandas has looked into; other keys are none of its business."""
    with pytest.raises(KeyError) as raised:
        ask()
    found = hint_at_columns(raised.value)
    assert hint in found
    assert bool(found) == bool(hint)


FILES = ["/in/a.jpg", "/in/b.jpg", "/in/c.jpg"]


def _looked_at(path: Any) -> float:
    width, height = len(str(path)), 0
    return width / height


class Proxy:
    """A proxy without its object: it fails whatever it is asked."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        """Fail."""
        raise RuntimeError("there is no request")


def _with_proxy(files: Any) -> None:
    request, path = Proxy(), files[2]
    _looked_at(str(request is path))


def _with_pure(files: Any) -> None:
    path = PurePath(files[2])
    raise ValueError(len(path.parts))


def _with_two(files: Any) -> None:
    first, last = files[0], files[-1]
    raise ValueError(len(first) + len(last))


OF_COMPREHENSION = "one was '/in/a.jpg'" if sys.version_info < (3, 12) else ""
"""From 3.12 on, a comprehension has no frame, and gives its variable up when it fails."""


@pytest.mark.parametrize(
    ("run", "hint"),
    [
        (lambda files: [_looked_at(one) for one in files], "path was '/in/a.jpg'"),
        (lambda files: _looked_at(Path(files[1])), "path was '/in/b.jpg'"),
        (lambda files: [one / 2 for one in files], OF_COMPREHENSION),
        (lambda files: [Path(one).read_text(1) for one in files], OF_COMPREHENSION),
        (_with_proxy, "path was '/in/c.jpg'"),
        (_with_pure, "path was '/in/c.jpg'"),
        (_with_two, ""),
        (lambda files: len(files) / 0, ""),
        (lambda files: {}[f"no entry for {Path(files[2]).name}"], ""),  # so does this
        (lambda files: _looked_at(files[0] + ".gz"), ""),
    ],
)
def test_the_file_that_a_variable_held_is_named(run: Callable[[Any], Any], hint: str) -> None:
    """Of the innermost call of the script that has one of the files of the mini-batch."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - several
        run(FILES)
    assert hint_at_file(raised.value, FILES) == (hint and f"When it failed, {hint}")
    assert not hint_at_file(raised.value, FILES[:1])


@pytest.mark.parametrize(
    ("ask", "is_told"),
    [
        (lambda: os.environ["API_KEY"], True),
        (lambda: {}["API_KEY"], False),
        (lambda: os.environ[7], False),  # type: ignore[index]
    ],
)
def test_a_missing_variable_is_answered_with_the_option(
    ask: Callable[[], Any], *, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other dictionaries have other names."""
    monkeypatch.delenv("API_KEY", raising=False)
    with pytest.raises((KeyError, TypeError)) as raised:
        ask()
    assert hint_at_variable(raised.value).endswith("secrets=['API_KEY']") == is_told
    assert ("environment_variables" in hint_at_variable(raised.value)) == is_told


LOADS_IN_FORKS = """import torch
# model.cuda() would be too early here
def init():
    global model
    model = torch.nn.Linear(4, 4).cuda()
def run(rows):
    with multiprocessing.Pool(2) as pool:
        return pool.map(score, rows)
def score(row):
    return model(torch.tensor(row, device="cuda"))
"""


@pytest.mark.parametrize(
    "message",
    [
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you …",
        "CUDA error: initialization error\nCUDA kernel errors might be asynchronously reported",
        "cudaErrorInitializationError: initialization error",
        "Call to cuCtxGetCurrent results in CUDA_ERROR_NOT_INITIALIZED",
        "Unexpected error from cudaGetDeviceCount(). Error 3: initialization error",
    ],
)
def test_a_context_in_a_fork_is_told_with_the_line_that_made_the_first(message: str) -> None:
    """Also as the cause of another error, and under another interpreter."""
    script = ScriptSpec("score.py", sources=(SourceText("/code/score.py", "", LOADS_IN_FORKS),))
    wrapped = ValueError("no embedding")
    wrapped.__cause__ = RuntimeError(message)
    for error in (RuntimeError(message), RaisedElsewhere(*record_of(wrapped, "ours"))):
        hint = hint_at_spawn(error, script)
        assert "score.py, line 5 (model = torch.nn.Linear(4, 4).cuda())" in hint
        assert 'start_method="spawn"' in hint
    assert "has used CUDA. If" in hint_at_spawn(RuntimeError(message), ScriptSpec("score.py"))


@pytest.mark.parametrize("message", ["CUDA out of memory", "initialization error", "no device"])
def test_other_errors_have_nothing_to_do_with_forks(message: str) -> None:
    """A library without CUDA may fail to initialize, too."""
    assert hint_at_spawn(RuntimeError(message), ScriptSpec("score.py")) == ""
