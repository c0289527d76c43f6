"""What the stories of this folder share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from copying import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return files, a script and a job over them; there are none yet."""
    return Place(tmp_path)
