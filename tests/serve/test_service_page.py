"""The reference of the service has each option of the command."""

from __future__ import annotations

from tests.support.service_page import PAGE, written


def test_the_table_of_options_is_that_of_the_command() -> None:
    """``python -m tests.support.service_page`` writes it anew after an option has changed."""
    page = PAGE.read_text()
    assert page == written(page), "run python -m tests.support.service_page"
