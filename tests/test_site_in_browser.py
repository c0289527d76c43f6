"""The built site as readers see it: wide and narrow, light and dark, from a server and a disk."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import CHROMIUM, HIDDEN, VIEWS, Browser, View, served, wrong_with
from tests.support.cases import mostly_long
from tests.support.cloning import copy_clone

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
    pytest.mark.long,
]
SOME = [
    "index.html",
    "reference/azure-pipeline-files.html",
    "tutorials/first-job.html",
]
FAULTY = """<!doctype html><meta name="viewport" content="width=device-width">
<body data-md-color-scheme="default" style="margin: 0"><div class="md-content">
<div style="overflow: hidden; width: 300px"><table><tr><td><div style="width: 900px">hidden</table>
</div><div style="overflow: auto; width: 300px"><table><tr><td><div style="width: 900px">scrolls
</table></div><p style="width: 2000px">wide</p>
<script>console.error("oh no")</script><script src="http://192.0.2.1/far.js" async></script>
"""
SEARCH = "document.querySelector('.md-search__button').click()"
BEYOND = """[...document.querySelectorAll(".md-content table")]
    .map(one => one.getBoundingClientRect().right).filter(right => right > innerWidth)"""
"""The right ends of tables that one has to scroll to."""
BOX = "document.activeElement?.shadowRoot"
"""The search is an element of its own, with a tree of its own."""
FOUND = f"{BOX}.textContent.includes('took longer than run_invocation_timeout')"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site in a copy of the clone."""
    pytest.importorskip("zensical", reason="the group docs is not installed")
    clone = tmp_path_factory.mktemp("clone")
    copy_clone(clone)
    words = [sys.executable, "-m", "tests.support.site"]
    subprocess.run(words, cwd=clone, check=True, env={**os.environ, "PYTHONPATH": str(clone)})
    return clone / "site"


@pytest.mark.long
def test_some_pages_show_all_that_is_on_them(site: Path, tmp_path: Path) -> None:
    """Nothing is cut off, wrong on the console, or fetched from elsewhere."""
    with served(site) as address, Browser() as browser:
        assert [
            line for page in SOME for line in wrong_with(browser, address, page, tmp_path)
        ] == []
    assert len(list(tmp_path.glob("*.png"))) == len(SOME) * len(VIEWS)


@pytest.mark.parametrize("width", [400, 500, 700])
def test_tables_of_options_do_not_run_off_the_screen(site: Path, width: int) -> None:
    """Their cells stand below each other on a phone, and in a narrow window of a desktop."""
    with served(site) as address, Browser() as browser:
        browser.open(f"{address}reference/options.html", View(width, 900, "light"))
        browser.wait_for("document.querySelectorAll('.md-content table').length > 5")
        assert browser.value(BEYOND) == []


@pytest.mark.long
def test_all_pages_show_all_that_is_on_them(site: Path) -> None:
    """As above."""
    pages = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    with served(site) as address, Browser() as browser:
        assert [line for page in pages for line in wrong_with(browser, address, page)] == []


@pytest.mark.parametrize("from_disk", mostly_long([False, True], suite=[False]))
def test_the_search_finds_a_word(site: Path, *, from_disk: bool) -> None:
    """Also on pages that were opened from a disk, where a browser starts no workers."""
    with served(site) as address, Browser() as browser:
        start = f"file://{site}/" if from_disk else address
        browser.open(f"{start}how-to/failures.html", VIEWS[0])
        assert browser.value(HIDDEN) == []
        browser.value(SEARCH)
        browser.wait_for(f"{BOX}?.activeElement?.tagName === 'INPUT'")
        assert not browser.value(FOUND)
        browser.call("Input.insertText", text="timeout")
        browser.wait_for(FOUND)
        assert browser.complaints(start) == []


@pytest.mark.long
def test_what_is_wrong_with_a_page_is_found(tmp_path: Path) -> None:
    """A table that is cut off, a page that scrolls sideways, errors, scripts of others, colours."""
    (tmp_path / "faulty.html").write_text(FAULTY)
    with served(tmp_path) as address, Browser() as browser:
        found = wrong_with(browser, address, "faulty.html")
    for words in [
        "at 390 px, light: the page scrolls sideways",
        "at 390 px, light: cut off: TABLE hidden",
        "at 1280 px, light: cut off: P wide",
        "at 1280 px, light: on the console: ['oh no']",
        "at 1280 px, light: fetched from elsewhere: http://192.0.2.1/far.js",
        "at 1280 px, dark: the other colours are shown",
    ]:
        assert f"faulty.html {words}" in found
    assert not [line for line in found if "scrolls\n" in line or line.endswith("scrolls")]
