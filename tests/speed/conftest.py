"""The benchmark's own parts, at a scale of seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.session import Session

if TYPE_CHECKING:
    from pathlib import Path

SCALE = 0.001


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Return a session in which nothing takes long; its data are made once."""
    home: Path = tmp_path_factory.mktemp("bench")
    return Session(peers=[], workloads=[], scale=SCALE, repeats=1, limit_s=60, home=home)
