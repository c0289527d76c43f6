"""The reference of Azure's files says what the code does with each key."""

from __future__ import annotations

from tests.support.reference_page import PAGE, written


def test_the_tables_are_those_of_the_forms() -> None:
    """``python -m tests.support.reference_page`` writes them anew after a form has changed."""
    page = PAGE.read_text()
    assert page == written(page), "run python -m tests.support.reference_page"
