"""Jobs in a notebook that its own kernel runs: what its cells show, and what it is exported to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import daskprs

if TYPE_CHECKING:
    from collections.abc import Iterator

WHY = "the group extras is not installed"
nbformat = pytest.importorskip("nbformat", reason=WHY)
nbclient = pytest.importorskip("nbclient", reason=WHY)
nbconvert = pytest.importorskip("nbconvert", reason=WHY)
pytest.importorskip("ipykernel", reason=WHY)

PACKAGE = str(Path(daskprs.__file__).parent)
CELLS = (
    "import pandas as pd, daskprs\nframe = pd.DataFrame({'n': range(20)})",
    "daskprs.plan(frame, mini_batch_size=32)",
    "def halved(value):\n    return 12 / (value - 13)",
    "def run(rows):\n    print('rows', *rows['n'])\n    return [halved(n) for n in rows['n']]",
    "daskprs.parallel_run(frame, run, mini_batch_size=32, job_dir='failed', run_max_try=1)",
    """result = daskprs.parallel_run(
        frame, run, mini_batch_size=32, job_dir='job', run_max_try=1,
        allowed_failed_count=1, show_output=True)
result""",
    "daskprs.ParallelRun.of('job')",
    "daskprs.parallel_run(frame, run, mini_batch=32)",
    "def slow(rows):\n    while True:\n        pass",
    "daskprs.parallel_run(frame, slow, job_dir='slow', run_max_try=1, run_invocation_timeout=1)",
    """started = daskprs.start(frame, lambda rows: rows, mini_batch_size=32, job_dir='started')
started.job_dir.name""",
    "[len(rows) for rows in started.iter_batches()]",
    "started.result().status",
    "daskprs.parallel_run(frame, run, job_dir='started')",
    """def checked(rows):
    assert len(rows) < 4
daskprs.parallel_run(frame, checked, job_dir='checked', run_max_try=1)""",
)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield the notebook with its outputs."""
    folder = tmp_path_factory.mktemp("notebook")
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("IPYTHONDIR", str(folder / "profile"))
        patch.setenv("PYTHONPATH", str(Path(PACKAGE).parent), prepend=":")
        yield nbclient.NotebookClient(book, timeout=120, allow_errors=True).execute()


def outputs(notebook: Any, source: str) -> list[Any]:
    """Return the outputs of the cell that has this source."""
    (cell,) = (cell for cell in notebook.cells if source in cell.source)
    return [*cell.outputs]


def error_of(notebook: Any, source: str) -> list[str]:
    """Return the lines of the error of a cell."""
    (error,) = (one for one in outputs(notebook, source) if one.output_type == "error")
    assert PACKAGE not in "\n".join(error.traceback)
    return [line for part in error.traceback for line in part.splitlines()]


def test_a_failed_job_shows_the_cells_that_led_to_its_error(notebook: Any) -> None:
    """Each with its number and its line of code, and with no frame or parameter of daskprs."""
    lines = error_of(notebook, "'failed'")
    assert lines[0] == "ParallelRunFailed: ZeroDivisionError: division by zero"
    assert lines[1] == "In mini-batch 3 (rows 12-16), attempt 1:"
    assert lines[2:4] == [
        "  Cell In[4], line 3, in run",
        "    return [halved(n) for n in rows['n']]",
    ]
    assert "  Cell In[3], line 2, in halved" in lines
    assert "    return 12 / (value - 13)" in lines


def test_a_bare_assert_names_the_cell(notebook: Any) -> None:
    """As the traceback does, and not the file that the kernel keeps for the cell."""
    lines = error_of(notebook, "'checked'")
    assert (
        lines[0] == "ParallelRunFailed: AssertionError: Cell In[15], line 2: assert len(rows) < 4"
    )


def test_a_timeout_names_the_cell(notebook: Any) -> None:
    """As the traceback of an exception does."""
    lines = error_of(notebook, "'slow'")
    assert re.search(r"killed after \d+\.\d s in Cell In\[9\], line [23], in slow: ", lines[0])


def test_a_refused_call_shows_its_message_alone(notebook: Any) -> None:
    """The cell is on the screen already."""
    lines = error_of(notebook, "mini_batch=32")
    assert lines == [
        "OptionError: mini_batch: there is no such option. Did you mean mini_batch_size?"
    ]
    (line,) = error_of(notebook, "run, job_dir='started')")
    assert line.startswith("JobFolderError: the folder ")


def test_a_job_and_its_result_are_tables_with_links(notebook: Any) -> None:
    """The job shows what `run` prints below its table; links lead from the notebook's folder."""
    job, result = outputs(notebook, "show_output=True")
    page = job.data["text/html"]
    assert "daskprs job job" in page
    assert "5/5 mini-batches" in page
    assert "<a href='job/logs' " in page
    assert "[mini-batch 4] rows 16 17 18 19" in page
    assert "daskprs job Completed" in result.data["text/html"]
    assert "<a href='job/failed.parquet' " in result.data["text/html"]
    (handle,) = outputs(notebook, "ParallelRun.of")
    assert "4 of 5 succeeded, 1 failed" in handle.data["text/html"]


def test_the_cell_that_starts_a_job_shows_it_to_the_end(notebook: Any) -> None:
    """Though the cell has ended long before; those that wait for the job show what they return."""
    job, name = outputs(notebook, "daskprs.start(")
    assert "5/5 mini-batches" in job.data["text/html"]
    assert "<a href='started/logs' " in job.data["text/html"]
    assert name.data["text/plain"] == "'started'"
    (lengths,) = outputs(notebook, "iter_batches")
    assert lengths.data["text/plain"] == "[4, 4, 4, 4, 4]"
    (status,) = outputs(notebook, "started.result()")
    assert status.data["text/plain"] == "'Completed'"


def test_the_plan_numbers_its_mini_batches_once(notebook: Any) -> None:
    """Each row begins with the number."""
    (plan,) = outputs(notebook, "daskprs.plan")
    cells = re.findall(r"<t[hd] [^>]*>([^<]*)</t[hd]>", plan.data["text/html"])
    assert cells[:4] == ["0", "rows 0-4, 4 rows", "1", "rows 4-8, 4 rows"]


@pytest.mark.parametrize("form", ["html", "markdown", "rst"])
def test_an_exported_notebook_is_readable(notebook: Any, form: str) -> None:
    """Without the kernel, scripts or style sheets of a notebook server."""
    page, _ = nbconvert.get_exporter(form)().from_notebook_node(notebook)
    for words in (
        "ParallelRunFailed: ZeroDivisionError: division by zero",
        "In mini-batch 3 (rows 12-16), attempt 1:",
        "5/5 mini-batches",
        "[mini-batch 4] rows 16 17 18 19",
        "daskprs job Completed",
    ):
        assert words in page
    assert "\x1b" not in page
