"""What the stories of this folder share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.copying import Place

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return files, a script and a job over them; there are none yet."""
    return Place(tmp_path)
