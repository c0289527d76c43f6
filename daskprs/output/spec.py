"""What becomes of what `run` returns."""

from __future__ import annotations

from typing import NamedTuple


class OutputSpec(NamedTuple):
    """Which forms of the rows are kept."""

    text: bool
    """Format rows as lines for the append_row file."""
    typed: bool
    """Keep rows with their types for `to_pandas`."""
    header: bool = False
    separator: str = " "
