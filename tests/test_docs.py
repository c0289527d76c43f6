"""The documentation is true: its code runs, its links hold, and nothing is left out."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pandas as pd
import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

import daskprs
from daskprs import errors
from daskprs.core.outcomes import Status

HOME = Path(__file__).parents[1]
DOCS = HOME / "docs"
PAGES = [HOME / "README.md", *sorted(DOCS.rglob("*.md"))]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text()]


def headings(page: Path) -> set[str]:
    """Return the text of all headings of a page."""
    return set(re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(HOME)))
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader may paste the blocks of a page one after the other, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    document = Sybil([PythonCodeBlockParser()]).parse(page)
    examples = list(document.examples())
    assert examples
    for example in examples:
        example.evaluate()


def test_every_error_has_a_section() -> None:
    """What a person can catch is explained."""
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value)
        and issubclass(value, BaseException)
        and value.__module__ == errors.__name__
        and not name.startswith("_")
    }
    assert classes
    assert classes <= headings(DOCS / "errors.md")


def test_every_status_has_a_section() -> None:
    """What stands in the table of attempts is explained."""
    assert {status.value for status in Status} <= headings(DOCS / "errors.md")


def test_the_tree_of_errors_is_that_of_the_code() -> None:
    """The page draws the classes as they derive from each other."""
    tree = DOCS.joinpath("errors.md").read_text().split("```text\n")[1].split("```")[0]
    drawn = re.findall(r"\w+(?=$| +[(\w])", re.sub(r"\(.*", "", tree), re.MULTILINE)
    told = re.findall(r"(\w+)(?: \(ValueError\))?", errors.__doc__.split("::\n")[1])
    assert [name for name in told if name in drawn] == drawn


def test_every_file_of_a_job_is_in_the_reference(tmp_path: Path) -> None:
    """Whatever a job with a failure leaves in its folder stands on the page of the job folder."""
    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        daskprs.parallel_run(
            pd.DataFrame({"n": range(10)}), _failing, job_dir=tmp_path / "job", keep_rows=True
        )
    assert caught.value.result is not None
    job = caught.value.result.job_dir
    files = [str(path.relative_to(job)) for path in job.rglob("*") if path.is_file()]
    page = DOCS.joinpath("reference/log-folder.md").read_text()
    patterns = [_pattern(path) for path in re.findall(r"`([\w.</>-]+)`", page) if path != "logs/"]
    assert len(files) > 10
    assert [file for file in files if not any(re.fullmatch(one, file) for one in patterns)] == []


def _failing(rows: pd.DataFrame) -> pd.DataFrame:
    daskprs.EntryScript().logger.info("about to fail")
    print("failing")
    raise ValueError(str(len(rows)))


def _pattern(path: str) -> str:
    path = re.escape(path)
    for name, form in [
        ("node", r"\d+"),
        ("process", r"process\d{3,}"),
        ("epoch", r"\d+"),
        ("date", r"\d{8}"),
    ]:
        path = path.replace(f"<{name}>", form)
    return path + (".*" if path.endswith("/") else "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOME)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    """The README is read without a build, so that nobody else would notice."""
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page} links to {target}"
