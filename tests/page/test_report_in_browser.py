"""The report as a reader sees it: wide and narrow, light and dark, from disk and from a server."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pandas as pd
import pytest

import daskprs
from daskprs._cli.live_page import LivePage
from daskprs._folders.job_folder import JobFolder
from daskprs._job.report import write_report
from daskprs.errors import ParallelRunFailed
from tests.support.browser import CHROMIUM, VIEWS, Browser

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
    pytest.mark.usefixtures("inline"),
    pytest.mark.long,
]
WIDER = "document.scrollingElement.scrollWidth > innerWidth + 1"


def fail(rows: pd.DataFrame) -> pd.DataFrame:
    """Fail for one row."""
    if 7 in set(rows["a"]):
        msg = "seven " * 40
        raise ValueError(msg)
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    """Return the folder of a job that has failed."""
    rows = pd.DataFrame({"a": range(20)})
    with pytest.raises(ParallelRunFailed):
        daskprs.parallel_run(rows, fail, mini_batch_size="2 rows", job_dir=tmp_path / "job")
    return JobFolder(tmp_path / "job")


def test_the_page_shows_all_and_fetches_nothing(folder: JobFolder) -> None:
    """In each window."""
    address = write_report(folder).as_uri()
    with Browser() as browser:
        for view in VIEWS:
            browser.open(address, view)
            assert "First cause" in browser.value("document.body.innerText")
            assert not browser.complaints(address)
            assert not browser.value(WIDER), view


def test_the_live_page_keeps_up_and_keeps_what_is_open(folder: JobFolder) -> None:
    """It is the job that goes on, and not the reader's place that is lost."""
    with closing(LivePage(folder)) as page, Browser() as browser:
        thread = threading.Thread(target=page.serve)
        thread.start()
        try:
            browser.open(page.address, VIEWS[0])
            browser.value("document.querySelector('details').open = true")
            folder.master_log.write_text(folder.master_log.read_text() + LINE)
            browser.wait_for("document.body.innerText.includes('a new word')")
            assert browser.value("document.querySelector('details').open")
            assert not browser.complaints(page.address)
        finally:
            page.stop()
            thread.join()


LINE = "2030-01-01 00:00:00.000|WARNING|1|MainThread|a new word\n"
