"""The documentation is true: its code runs, its links hold, and nothing is left out."""

from __future__ import annotations

import inspect
import re
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

import daskprs
import tests.support.polars_threads  # noqa: F401
from daskprs import errors
from daskprs._core.outcomes import Status
from tests.support.cases import mostly_long
from tests.support.pages import blocks, run_page

HOME = Path(__file__).parents[1]
DOCS = HOME / "docs"
PACKAGE = Path(daskprs.__file__).parent  # the installed one, where the wheel is tested
PAGES = [HOME / "README.md", *sorted(DOCS.rglob("*.md"))]
RUN = ("python", "console")
WITH_CODE = [page for page in PAGES if any(one.language in RUN for one in blocks(page.read_text()))]
COMMANDS_NOT_RUN = {
    "README.md",
    "docs/how-to/azure-v1.md",
    "docs/how-to/azure-v2.md",
    "docs/how-to/batch-deployments.md",
    "docs/how-to/clusters.md",
    "docs/how-to/detached-jobs.md",
    "docs/how-to/interpreters.md",
    "docs/how-to/machines.md",
    "docs/how-to/object-storage.md",
    "docs/how-to/progress.md",
    "docs/how-to/serve.md",
    "docs/how-to/tidy.md",
    "docs/reference/azure-samples.md",
    "docs/reference/command-line.md",
}
"""Pages whose commands stand for those of a reader: their files and addresses are not there."""


def headings(page: Path) -> set[str]:
    """Return the text of all headings of a page."""
    return set(re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE))


SUITE = {
    "README.md",
    "docs/index.md",
    "docs/install.md",
    "docs/tutorials/first-job.md",
    *(f"docs/how-to/{name}.md" for name in ("background", "failures", "results", "azure-v1")),
    *(f"docs/how-to/problems/{name}.md" for name in ("rerun", "secret", "slow")),
    "docs/coming-from/daft.md",
    "docs/coming-from/spark.md",
    "docs/explanation/when-not.md",
}
"""Pages with jobs that the suite plays, some of each section; `make test-long` plays them all.

So does the suite with each page that starts no job, or whose outputs prove what it says.
"""
JOBS = re.compile(
    r"parallel_run\(|map_batches|daskprs (?:run|submit|serve)|create_or_update|\.(?:submit|start)\("
)
PROVES = "docs/reference"


def is_played(page: Path) -> bool:
    """Say whether the suite plays a page."""
    name = str(page.relative_to(HOME))
    starts = any(JOBS.search(one.text) for one in blocks(page.read_text()) if one.language in RUN)
    return name in SUITE or name.startswith(PROVES) or not starts


@pytest.mark.parametrize(
    "page",
    mostly_long(WITH_CODE, suite=filter(is_played, WITH_CODE)),
    ids=lambda page: str(page.relative_to(HOME)),
)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """A reader may run the blocks one after the other in an empty folder, and sees what it shows.

    ``python -m tests.support.pages PAGE`` writes anew what a page shows.
    """
    outputs = run_page(page, tmp_path, commands=str(page.relative_to(HOME)) not in COMMANDS_NOT_RUN)
    for output in outputs:
        assert output.is_right, "\n".join([output.where, *output.shown, "came:", *output.came])


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
    page = DOCS.joinpath("errors.md").read_text()
    links = set(re.findall(r"\[`(\w+)`\]\(reference/errors-[a-z-]+\.md#", page))
    details = set().union(*map(headings, (DOCS / "reference").glob("errors-*.md")))
    assert links == classes & details
    assert classes - details - {"DaskprsError"} == classes & headings(DOCS / "errors.md")


def test_pages_name_modules_that_exist() -> None:
    """A dotted name in backticks is a module, or a name in one."""
    modules = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")
    }
    packages = {name.rpartition(".")[0] for name in modules}
    pages = sorted((DOCS / "explanation").glob("inside-*.md"))
    text = "".join(page.read_text() for page in pages)
    dotted = re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", text)
    named = {name for name in dotted if name.partition(".")[0] in packages}
    assert len(named) > 40
    there = modules | packages
    assert {name for name in named if not {name, name.rpartition(".")[0]} & there} == set()


def test_no_page_says_a_thing_twice() -> None:
    """Two versions of a paragraph are left when both sides of a merge are kept."""
    for page in [*PAGES, HOME / "CHANGELOG.md"]:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        lines = [line[:TELLING] for line in text.splitlines() if len(line) > TELLING]
        lines = [line for line in lines if not line.startswith("|")]
        near = [*pairwise(lines), *zip(lines, lines[2:], strict=False)]
        assert [one for one, other in near if one == other] == [], page


TELLING = 60
"""Two lines near each other do not begin with as many equal characters by chance."""


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


NOT_OF_THE_SITE = [HOME / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]


@pytest.mark.parametrize(
    "page", sorted({*PAGES, *NOT_OF_THE_SITE}), ids=lambda page: str(page.relative_to(HOME))
)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    """Nobody else would notice in pages that are read without a build of the site."""
    for target, anchor in re.findall(r"\]\((?!https?:|#)([^)#]+)#?([^)]*)", page.read_text()):
        assert (page.parent / target).exists(), f"{page} links to {target}"
        if anchor and page in NOT_OF_THE_SITE:
            words = {re.sub(r"[^\w -]", "", one.lower()) for one in headings(page.parent / target)}
            assert anchor in {one.replace(" ", "-") for one in words}, f"{page}: {target}#{anchor}"
