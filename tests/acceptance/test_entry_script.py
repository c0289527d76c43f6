"""What an entry script finds in its agent."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import daskprs
from daskprs import MiniBatchContext, ParallelRunFailed, UsageError
from daskprs import MiniBatchContext as Another
from daskprs._agent.child.entry_script import ScriptFunctions
from daskprs._core.mini_batch import MiniBatch
from daskprs.errors import JobChanged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("inline")

PYTHONS = [
    None,
    pytest.param(sys.executable, marks=[pytest.mark.processes, pytest.mark.long], id="another"),
]
FRAME = pd.DataFrame({"number": range(6), "key": ["a", "b", None] * 2})

SURROUNDINGS = """
import json, logging, os, subprocess, sys
from pathlib import Path

import sibling
from daskprs import EntryScript

found = {{"imported_in": os.getpid()}}


def init():
    entry = EntryScript()
    found.update(
        argv=sys.argv,
        file=__file__,
        cwd=str(Path.cwd()),
        path=sys.path,
        sibling=sibling.VALUE,
        output_dir=entry.output_dir,
        agent=entry.agent_name,
        working_dir=entry.working_dir,
        threads=os.environ["OMP_NUM_THREADS"],
        own=os.environ["OWN"],
        output_variable=os.environ["AZUREML_BI_OUTPUT_PATH"],
    )
    print("printed")
    os.write(1, b"written by the descriptor\\n")
    subprocess.run([sys.executable, "-c", "print('by a sub-process')"], check=True)
    logging.getLogger("mine").info("logged")
    logging.getLogger("mine").debug("not logged")
    print("to stderr", file=sys.stderr)
    entry.logger.info("by the entry script's logger")


def run(mini_batch, context):
    found["index"] = context.minibatch_index
    found["lower"] = context.global_row_index_lower_bound
    found["dataset"] = str(context.dataset)
    return [json.dumps(found)]
"""


@pytest.mark.processes
def test_a_script_finds_its_surroundings(tmp_path: Path) -> None:
    """Arguments, paths, siblings, environment, and everything it says is kept."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "script.py").write_text(SURROUNDINGS.format())
    (source / "sibling.py").write_text("VALUE = 'a sibling'\n")
    result = daskprs.parallel_run(
        FRAME,
        source / "script.py",
        job_dir=tmp_path / "job",
        output_dir=tmp_path / "out",
        arguments=["--mine", "1", "--logging_level", "WARNING"],
        environment_variables={
            "OWN": "yes",
            "OMP_NUM_THREADS": "3",
        },
        process_count_per_node=1,
        run_max_try=1,
        mini_batch_size=10**6,
        progress=False,
    )
    found = json.loads((tmp_path / "out" / "parallel_run_step.txt").read_text())
    assert found["argv"][0] == "script.py"
    assert found["argv"][1:3] == ["--output", str(tmp_path / "out")]
    assert found["argv"][-4:] == ["--mine", "1", "--logging_level", "WARNING"]
    assert found["argv"].count("--logging_level") == 1
    assert found["path"][0] == str(tmp_path / "job" / "snapshot" / found["path"][0].split("/")[-1])
    assert found["cwd"] == found["working_dir"]
    assert found["sibling"] == "a sibling"
    assert found["output_dir"] == found["output_variable"] == str(tmp_path / "out")
    assert found["agent"] == "process000"
    assert (found["threads"], found["own"]) == ("3", "yes")
    assert (found["index"], found["lower"], found["dataset"]) == (0, 0, "rows 0-6")
    user = result.logs_dir / "user"
    stdout = (user / "stdout" / "0" / "process000.stdout.txt").read_text()
    for text in ("printed", "written by the descriptor", "by a sub-process", "logged"):
        assert text in stdout
    assert "not logged" not in stdout
    assert "to stderr" in (user / "stderr" / "0" / "process000.stderr.txt").read_text()
    log = (user / "entry_script_log" / "0" / "process000.log.txt").read_text()
    assert "by the entry script's logger" in log


class Scorer:
    """A class with everything: it is made in the agent."""

    def __init__(self) -> None:
        self.ready = False

    def init(self) -> None:
        """Get ready."""
        self.ready = True

    def run(self, mini_batch: pd.DataFrame) -> pd.DataFrame:
        """Return the rows with a column more."""
        assert self.ready
        return mini_batch.assign(double=mini_batch["number"] * 2)


@pytest.mark.parametrize(
    "script",
    [pytest.param(Scorer, marks=pytest.mark.processes), Scorer(), lambda mini_batch: mini_batch],
)
def test_a_script_may_be_an_object(tmp_path: Path, script: Any) -> None:
    """A class, an instance, a callable: it travels by value."""
    result = daskprs.parallel_run(FRAME, script, job_dir=tmp_path / "job", progress=False)
    rows = result.to_pandas()
    pd.testing.assert_frame_equal(rows[["number", "key"]], FRAME)


def test_a_dotted_module_is_found_in_its_source_directory(tmp_path: Path) -> None:
    """`src.entry` and its siblings."""
    package = tmp_path / "source" / "src"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "other.py").write_text("VALUE = 'other'\n")
    (package / "entry.py").write_text(
        "from src.other import VALUE\n\ndef run(mini_batch):\n    return [VALUE]\n"
    )
    result = daskprs.parallel_run(
        FRAME,
        "src.entry",
        source_directory=tmp_path / "source",
        job_dir=tmp_path / "job",
        progress=False,
    )
    assert list(result.to_pandas(ignore_index=True)["result"]) == ["other"]


VALUES = np.arange(2)


def annotated(_: Any, about: MiniBatchContext | None = None) -> Any:
    """Return the context."""
    return about


def annotated_by_another_name(_: Any, about: Another | None = None) -> Any:
    """Return the context."""
    return about


def decorated(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function behind one that says nothing of its parameters."""

    def passing_on(*words: Any) -> Any:
        return run(*words)

    return passing_on


class Calls:
    """A callable with a second parameter."""

    def __call__(self, _: Any, about: Any) -> Any:
        """Return the context."""
        return about


NEVER = [
    lambda *both: both[1:],
    lambda _, *more: more,
    decorated(lambda rows: rows),
    lambda _, *, context=None: context,
    partial(lambda _, scale: scale, scale=2),
    type,
]
ONLY_FOR_AZURE = [
    lambda _, strict=None: strict,
    lambda _, flag=False: flag,
    lambda _, values=VALUES: values,
    partial(lambda scale, _, strict=None: strict or scale, 2),
]
ALWAYS = [
    lambda _, about: about,
    lambda _, context=None: context,
    lambda _, mini_batch_context=0: mini_batch_context,
    lambda _, about, more=1: more and about,
    wraps(annotated)(decorated(annotated)),
    annotated,
    annotated_by_another_name,
    Calls(),
]


@pytest.mark.parametrize("any_second", [False, True])
@pytest.mark.parametrize("run", [*NEVER, *ONLY_FOR_AZURE, *ALWAYS])
def test_the_context_goes_only_where_it_is_asked_for(
    run: Callable[..., Any], *, any_second: bool
) -> None:
    """A function that has a value of its own would compute with the context in its place."""
    functions = ScriptFunctions(run, "run", any_second=any_second)
    got = functions.run(1, MiniBatch(7, None, "identity", 1))
    asks = run in ALWAYS or (any_second and run in ONLY_FOR_AZURE)
    assert (getattr(got, "minibatch_index", None) == 7) is asks


KEEPS_ALL = "def run(rows, strict=None):\n    return rows.dropna() if strict else rows\n"


@pytest.mark.parametrize("python", PYTHONS)
def test_a_parameter_with_a_default_keeps_it_in_files_too(
    tmp_path: Path, python: str | None
) -> None:
    """The context is true, so that the rows with nulls would be lost without a word."""
    script = tmp_path / "script.py"
    script.write_text(KEEPS_ALL)
    options = {"python": python, "job_dir": tmp_path / "job", "progress": False}
    rows = daskprs.parallel_run(FRAME, script, **options).to_pandas()
    pd.testing.assert_frame_equal(rows, FRAME)


ANNOTATED = """
from daskprs import MiniBatchContext


def run(rows, about: "MiniBatchContext" = 0):
    return [about.minibatch_index] * len(rows)
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_the_class_as_an_annotation_asks_for_the_context(
    tmp_path: Path, python: str | None
) -> None:
    """An interpreter without daskprs has the class, too."""
    script = tmp_path / "script.py"
    script.write_text(ANNOTATED)
    options = {"python": python, "job_dir": tmp_path / "job", "progress": False}
    rows = daskprs.parallel_run(FRAME, script, mini_batch_size=10**6, **options).to_pandas()
    assert list(rows["result"]) == [0] * len(FRAME)


HIDDEN = """
def hidden(run):
    return lambda *words: run(*words)

@hidden
def run(rows, context):
    return rows
"""
NARROW = """
import functools

def narrow(run):
    return functools.wraps(run)(lambda rows: rows)

@narrow
def run(rows, context):
    return rows
"""
MISFITS = {
    HIDDEN: r"run\(\) missing 1 required positional argument: 'context'\. daskprs has passed the "
    r"mini-batch alone to run\(\*words\)\. To get the context",
    NARROW: r"takes 1 positional argument but 2 were given\. daskprs has passed the mini-batch and "
    r"its context to run\(rows, context\)\. Let run",
}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("text", MISFITS, ids=["hidden", "narrow"])
def test_an_error_about_arguments_says_what_was_passed(
    tmp_path: Path, text: str, python: str | None
) -> None:
    """A decorator hides what `run` takes."""
    script = tmp_path / "script.py"
    script.write_text(text)
    options = {"python": python, "job_dir": tmp_path / "job", "progress": False}
    with pytest.raises(ParallelRunFailed, match=MISFITS[text]):
        daskprs.parallel_run(FRAME, script, run_max_try=1, **options)


def test_an_error_about_arguments_of_another_function_is_left_alone(tmp_path: Path) -> None:
    """The script calls this function, with arguments of its own."""
    script = tmp_path / "script.py"
    script.write_text("def other(a, b):\n    pass\n\ndef run(rows):\n    return other(1)\n")
    options = {"job_dir": tmp_path / "job", "progress": False}
    with pytest.raises(ParallelRunFailed) as caught:
        daskprs.parallel_run(FRAME, script, run_max_try=1, **options)
    assert "other() missing 1 required positional argument: 'b'" in str(caught.value)
    assert "daskprs has called" not in str(caught.value)


@pytest.mark.parametrize("python", PYTHONS)
def test_a_script_that_starts_a_job_while_it_is_imported_is_refused(
    tmp_path: Path, python: str | None
) -> None:
    """Each agent would start a job, whose agents start more."""
    script = tmp_path / "script.py"
    script.write_text(
        "import daskprs, pandas as pd\n\ndef run(rows):\n    return rows\n\n"
        f"daskprs.parallel_run(pd.DataFrame({{'n': [1]}}), 'script.py', job_dir={str(tmp_path)!r})"
    )
    with pytest.raises(ParallelRunFailed, match=r"script\.py, which starts a job while it is imp"):
        daskprs.parallel_run(FRAME, script, python=python, job_dir=tmp_path / "job", progress=False)


def test_keys_reach_the_script_with_their_types(tmp_path: Path) -> None:
    """Null is a key of its own."""
    result = daskprs.parallel_run(
        FRAME,
        lambda mini_batch, context: [(context.partition_key_value, list(mini_batch["number"]))],
        partition_keys="key",
        job_dir=tmp_path / "job",
        progress=False,
    )
    assert list(result.to_pandas(ignore_index=True)["result"]) == [
        ({"key": "a"}, [0, 3]),
        ({"key": "b"}, [1, 4]),
        ({"key": None}, [2, 5]),
    ]


@pytest.mark.processes
def test_spawned_agents_do_the_same(tmp_path: Path) -> None:
    """Each is an interpreter of its own."""
    result = daskprs.parallel_run(
        FRAME,
        lambda mini_batch: mini_batch,
        start_method="spawn",
        process_count_per_node=1,
        job_dir=tmp_path / "job",
        progress=False,
    )
    pd.testing.assert_frame_equal(result.to_pandas(), FRAME)


def test_summary_only_counts_and_keeps_no_rows(tmp_path: Path) -> None:
    """The script writes files of its own."""
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from daskprs import EntryScript\n\n"
        "def run(mini_batch, context):\n"
        "    Path(EntryScript().output_dir, f'{context.minibatch_index}.txt').write_text('done')\n"
        "    return mini_batch\n"
    )
    result = daskprs.parallel_run(
        FRAME,
        script,
        output_action="summary_only",
        mini_batch_size=1,
        job_dir=tmp_path / "job",
        output_dir=tmp_path / "out",
        progress=False,
    )
    assert result.output_file is None
    assert result.items == (6, 6, 0)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"{number}.txt" for number in range(6)
    ]


def test_an_empty_frame_is_a_completed_job_with_an_empty_output(tmp_path: Path) -> None:
    """Nothing is run."""
    result = daskprs.parallel_run(
        FRAME.iloc[:0],
        lambda _: [],
        job_dir=tmp_path / "job",
        output_dir=tmp_path / "out",
        progress=False,
    )
    assert result.status == "Completed"
    assert result.output_file is not None
    assert result.output_file.read_text() == ""


SCRIPTS = {
    "no such file": (None, "the entry script .* does not exist"),
    "a syntax error": ("def run(mini_batch)\n    pass\n", "expected ':'"),
    "no run": ("def ran(mini_batch):\n    pass\n", r"has no function run\(mini_batch\)"),
    "no argument": ("def run():\n    pass\n", "must take the mini-batch"),
    "async": ("async def run(mini_batch):\n    yield 1\n", "is an async generator"),
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_a_script_that_cannot_run_is_refused_before_anything_starts(
    tmp_path: Path, case: str
) -> None:
    """A syntax error is shown as Python shows it."""
    text, message = SCRIPTS[case]
    script = tmp_path / "script.py"
    if text is not None:
        script.write_text(text)
    with pytest.raises(UsageError, match=message):
        daskprs.parallel_run(FRAME, script, job_dir=tmp_path / "job", progress=False)
    assert not (tmp_path / "job").exists()


def test_a_script_in_another_language_is_told_from_python_with_a_mistake(tmp_path: Path) -> None:
    """It says who starts a program of that language."""
    told = {}
    for name in ("score.R", "score.py"):
        (tmp_path / name).write_text("run <- function(files) { files }\n")
        with pytest.raises(UsageError, match="cannot be compiled") as caught:
            daskprs.parallel_run(FRAME, tmp_path / name)
        told[name] = str(caught.value)
    assert "run() may start other programs: Rscript.\n" in told["score.R"]
    assert "Rscript" not in told["score.py"]


@pytest.mark.parametrize(("name", "text"), [("pandas.py", ""), ("queue.py", "import queue\n")])
def test_a_script_with_the_name_of_a_package_is_refused(
    tmp_path: Path, name: str, text: str
) -> None:
    """It would be imported in place of the package."""
    (tmp_path / name).write_text(f"{text}def run(rows):\n    return rows\n")
    with pytest.raises(UsageError, match=r"has the name of the package .* Rename it"):
        daskprs.parallel_run(FRAME, tmp_path / name, job_dir=tmp_path / "job", progress=False)
    assert not (tmp_path / "job").exists()


def test_a_script_by_path_with_a_relative_import_is_refused(tmp_path: Path) -> None:
    """The error has its name as a module, and the folder of the package, with which it runs."""
    folder = tmp_path / "outer" / "inner"
    folder.mkdir(parents=True)
    for file in (folder / "__init__.py", folder.parent / "__init__.py"):
        file.touch()
    (folder / "score.py").write_text("from . import one\n\ndef run(rows):\n    return rows\n")
    named = f"'outer.inner.score', with source_directory='{tmp_path}'"
    with pytest.raises(UsageError, match=f"line 1 .*a relative import.*{re.escape(named)}"):
        daskprs.parallel_run(FRAME, folder / "score.py", job_dir=tmp_path / "job", progress=False)


OF_MAIN = """
import functools
import multiprocessing

import pandas as pd

import daskprs

@functools.lru_cache(maxsize=7)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

@functools.singledispatch
def shown(value):
    return f"object {value}"

@shown.register
def _(value: list):
    return [shown(one) for one in value]

@shown.register
def _(value: int):
    return f"int {value}"

def double(value):
    return 2 * value

def run(rows):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        doubled = pool.map(double, rows["n"].tolist())
    return [[fibonacci(40), fibonacci.cache_parameters()["maxsize"], shown([1, "a"]), doubled]]

if __name__ == "__main__":
    result = daskprs.parallel_run(pd.DataFrame({"n": [1, 2]}), run, progress=False)
    print(result.to_pandas(ignore_index=True)["result"][0])
"""


@pytest.mark.processes
def test_functions_that_pickle_by_name_are_in_the_main_of_an_agent(tmp_path: Path) -> None:
    """Caches, generic functions, and what a pool in `run` is to call."""
    (tmp_path / "program.py").write_text(OF_MAIN)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "[102334155, 7, ['int 1', 'object a'], [2, 4]]\n", done.stderr


@pytest.mark.parametrize("text", ["Error: no model", "x" * 300])
def test_a_text_from_run_is_shown(tmp_path: Path, text: str) -> None:
    """Some scripts return the error that they have caught."""
    with pytest.raises(ParallelRunFailed, match=f"returned a str, '{text[:200]}'…?. Return a"):
        daskprs.parallel_run(FRAME, lambda _: text, job_dir=tmp_path / "job", progress=False)


def test_an_output_file_that_exists_is_refused_or_replaced_at_the_end(tmp_path: Path) -> None:
    """Without `overwrite` nothing starts; with it the old one stays until the new one is there."""
    target = tmp_path / "out" / "parallel_run_step.txt"
    target.parent.mkdir()
    target.write_text("old")

    def run(mini_batch: pd.DataFrame) -> list[int]:
        assert target.read_text() == "old"
        return list(mini_batch["number"])

    options = {"output_dir": target.parent, "progress": False}
    with pytest.raises(UsageError, match="exists"):
        daskprs.parallel_run(FRAME, run, job_dir=tmp_path / "one", **options)
    daskprs.parallel_run(FRAME, run, job_dir=tmp_path / "two", overwrite=True, **options)
    assert target.read_text() == "0\n1\n2\n3\n4\n5\n"


def test_a_job_folder_is_used_once(tmp_path: Path) -> None:
    """A second job in it is refused, unless it goes on with the first."""
    options = {"job_dir": tmp_path / "job", "progress": False}
    daskprs.parallel_run(FRAME, Scorer, **options)
    with pytest.raises(daskprs.DaskprsError, match="holds a job already"):
        daskprs.parallel_run(FRAME, Scorer, **options)
    with pytest.raises(UsageError, match=r"no such option\. Did you mean run_max_try"):
        daskprs.parallel_run(FRAME, Scorer, run_max_tries=1)


@pytest.mark.processes
def test_agents_use_the_package_that_their_caller_found(tmp_path: Path) -> None:
    """Another daskprs may be installed; nothing of ours is on the path of the script."""
    result = daskprs.parallel_run(
        FRAME,
        lambda _: [str(__import__("daskprs").__file__), *__import__("sys").path],
        job_dir=tmp_path / "job",
        progress=False,
        error_threshold=-1,
    )
    file, *path = result.to_pandas(ignore_index=True)["result"]
    assert file == daskprs.__file__
    assert "" not in path
    assert str(tmp_path) not in path


@pytest.mark.processes
def test_a_fork_that_comes_back_is_no_second_agent(tmp_path: Path) -> None:
    """The script forks, and its child leaves `run` too: by an exit, or with a result."""

    def run(mini_batch: pd.DataFrame) -> list[int]:
        number = int(mini_batch["number"].iloc[0])
        if number in (1, 3) and os.fork() == 0:
            if number == 1:
                sys.exit(0)
            return [1000]
        return [number]

    result = daskprs.parallel_run(
        FRAME,
        run,
        mini_batch_size=1,
        run_max_try=1,
        process_count_per_node=1,
        job_dir=tmp_path / "job",
        progress=False,
    )
    assert list(result.to_pandas()["result"]) == list(range(6))


def test_side_inputs_are_found_by_name_and_a_resume_knows_them(tmp_path: Path) -> None:
    """In this process they are read where they are; what is missing is refused beforehand."""
    model = tmp_path / "model.txt"
    model.write_text("one")

    def run(rows: pd.DataFrame) -> list[str]:
        with open(daskprs.EntryScript().side_inputs["model"]) as file:  # noqa: PTH123
            return [file.read()] * len(rows)

    def go(**options: Any) -> list[str]:
        named = {"side_inputs": {"model": model}}
        job = {"job_dir": tmp_path / "job", "progress": False}
        rows = daskprs.parallel_run(pd.DataFrame({"n": [1, 2]}), run, **job, **(named | options))
        return list(rows.to_pandas()["result"])

    with pytest.raises(daskprs.OptionError, match="does not exist"):
        go(side_inputs={"model": tmp_path / "other.txt"})
    assert go() == ["one", "one"]
    model.write_text("another")
    with pytest.raises(JobChanged, match="side_inputs"):
        go(resume=True)
    assert go(resume=True, accept_changes=["options"]) == ["one", "one"]
