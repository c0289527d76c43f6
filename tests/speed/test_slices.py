"""Those who cut by hand cut right: put together, the pieces are the input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.slices import load, pieces

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("size_bytes", range(8, 40))
def test_each_row_of_text_is_in_one_range(size_bytes: int, tmp_path: Path) -> None:
    """A row that starts where a range does is in that range alone."""
    text = "id,x0\n" + "".join(f"{number},{number % 7}\n" for number in range(50))
    (tmp_path / "part.csv").write_text(text)
    found = [number for piece in pieces(str(tmp_path), size_bytes) for number in load(piece)["id"]]
    assert found == list(range(50))
