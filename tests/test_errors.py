"""Errors: one message, worded for Python and for the command line, and the same after a pickle."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from daskprs._core.events import Counts
from daskprs._job.flags import flagged
from daskprs._job.result import ParallelRunResult
from daskprs.errors import DaskprsError, Option, OptionError, OutputError, ParallelRunFailed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("option", "in_python", "on_the_command_line"),
    [
        (Option("overwrite", value=True), "overwrite=True", "--overwrite"),
        (Option("keep_rows", value=False), "keep_rows=False", "--no-keep-rows"),
        (Option("job_dir"), "job_dir", "--job-dir"),
        (Option("input_type", "files"), "input_type='files'", "--input-type files"),
        (
            Option("mini_batch_size", "10 tb"),
            "mini_batch_size='10 tb'",
            "--mini-batch-size '10 tb'",
        ),
        (Option("columns", [1, "a"]), "columns=[1, 'a']", "--columns 1,a"),
        (Option("dtypes"), "dtypes", "--dtype"),
        (Option("dtypes", {"a": "int64"}), "dtypes={'a': 'int64'}", "--dtype a=int64"),
    ],
)
def test_a_message_names_an_option_as_its_reader_writes_it(
    option: Option, in_python: str, on_the_command_line: str
) -> None:
    """In Python as an argument, in a shell with dashes; a pickle keeps both."""
    error = pickle.loads(pickle.dumps(OutputError("it is there. Say ", option, ".")))
    assert str(error) == f"it is there. Say {in_python}."
    assert repr(error) == f"OutputError({str(error)!r})"
    assert error.worded(flagged) == f"it is there. Say {on_the_command_line}."


def test_a_message_names_options_inside_an_f_string() -> None:
    """A value that is not a literal is shown as it is; a quote in a value does no harm."""
    columns, timeout = Option("columns", "it's"), Option("init_timeout", float("inf"))
    error = pickle.loads(pickle.dumps(OptionError(f"{columns} and {timeout}.")))
    assert str(error) == 'columns="it\'s" and init_timeout=inf.'
    assert error.worded(flagged) == "--columns 'it'\"'\"'s' and --init-timeout inf."


def test_a_message_names_a_function_by_its_name() -> None:
    """And not by its place in memory."""
    option = Option("preprocess", test_a_message_names_a_function_by_its_name)
    assert str(option) == "preprocess=test_a_message_names_a_function_by_its_name"


def test_a_message_of_plain_text_is_itself() -> None:
    """Nothing in it is taken for an option."""
    assert DaskprsError("overwrite=True").worded(flagged) == "overwrite=True"


def test_a_failed_job_keeps_its_result_in_a_pickle(tmp_path: Path) -> None:
    """No reader of the error meets one without."""
    result = ParallelRunResult(
        "Failed", Counts(2, 1, 1), Counts(), None, tmp_path, tmp_path, tmp_path, 0.5
    )
    error = pickle.loads(pickle.dumps(ParallelRunFailed("no", result)))
    assert (str(error), error.worded(flagged), error.result) == ("no", "no", result)
    with pytest.raises(TypeError, match="result"):
        ParallelRunFailed("no")  # type: ignore[call-arg]
