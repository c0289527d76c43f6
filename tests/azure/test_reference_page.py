"""The reference of Azure's files says what the code does with each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.reference_page import PAGES, written

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_are_those_of_the_forms(page: Path) -> None:
    """``python -m tests.support.reference_page`` writes them anew after a form has changed."""
    assert page.read_text() == written(page), "run python -m tests.support.reference_page"
