"""The built site: texts for programs, and versions beside each other."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import daskprs
from tests.support import site
from tests.support.site import FETCHED, navigation, publish, summary, twin

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_every_page_is_in_the_navigation_once() -> None:
    """Whoever adds a page adds its title."""
    named = [page.path for page in navigation()]
    docs = site.HOME / "docs"
    there = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    assert len(named) == len(set(named))
    assert set(named) == there


def test_the_text_of_the_python_page_has_the_docstrings() -> None:
    """The directives of the generator are for it alone."""
    text = twin("reference/api.md")
    assert ":::" not in text
    assert "## daskprs.parallel_run" in text
    assert str(daskprs.parallel_run.__doc__).splitlines()[0] in text
    assert "members:" not in text


def test_a_summary_is_the_first_paragraph() -> None:
    """Without headings, pictures and links."""
    text = "# Title\n\n![a](b.svg)\n\nIt is [one](a.md)\nthing.\n\nMore.\n"
    assert summary(text) == "It is one thing."
    assert all(summary(twin(page.path)) for page in navigation())


def test_the_newest_version_opens_by_itself_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that is published again takes the place of what was there."""
    built = tmp_path / "site"
    built.mkdir()
    for version in ("0.9.0", "1.0.0", "1.0.0"):
        monkeypatch.setattr(daskprs, "__version__", version)
        (built / "index.html").write_text(version)
        publish(built, tmp_path / "all")
    assert json.loads((tmp_path / "all/versions.json").read_text()) == ["1.0.0", "0.9.0"]
    assert (tmp_path / "all/0.9.0/index.html").read_text() == "0.9.0"
    assert "url=1.0.0/index.html" in (tmp_path / "all/index.html").read_text()
    versions = (tmp_path / "all/versions.html").read_text()
    assert re.findall(r'href="([^"]*)"', versions) == ["1.0.0/index.html", "0.9.0/index.html"]


def test_what_a_page_would_fetch_is_found() -> None:
    """The generator adds it to each page."""
    assert (
        FETCHED.sub("", 'a<script src="https://example.com/x" type="text/javascript"></script>b')
        == "ab"
    )
