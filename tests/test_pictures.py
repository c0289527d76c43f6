"""The pictures of the documentation show what daskprs does today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pictures import FIXED, IMAGES, notebook

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("name", FIXED)
def test_a_picture_is_drawn_from_the_code_of_today(name: str) -> None:
    """``python -m tests.support.pictures`` draws it anew."""
    assert (IMAGES / f"{name}.svg").read_text() == FIXED[name]()


def test_the_picture_of_a_notebook_has_the_lines_of_a_result() -> None:
    """All but the time are those of a run of today."""
    shown, drawn = (IMAGES / "notebook.svg").read_text(), notebook()
    assert re.sub(r"[\d.]+.s<", "<", shown) == re.sub(r"[\d.]+.s<", "<", drawn)


def test_each_picture_is_on_a_page() -> None:
    """A picture that no page shows is left over."""
    pages = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    assert [path.name for path in IMAGES.iterdir() if f"images/{path.name}" not in pages] == []
