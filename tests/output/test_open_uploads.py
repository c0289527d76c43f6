"""Whatever strikes a publication in a store of objects, readers see the old data set or the new."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.failing_store import HOW
from tests.support.object_store import ObjectStore, object_store

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).with_name("strike_uploads.py")
SHORT = {"kill before": (4, 12), "kill after": (17, 10), "500": (9, 9), "gone": (16, 20)}
"""Which request is struck first, and at which stride others are; `make test-long` takes all."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Yield a store that takes pieces of any size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S3_UPLOAD_PART_MIN_SIZE", "1")
        with object_store(tmp_path_factory.mktemp("store") / "log") as one:
            yield one


def strike(store: ObjectStore, folder: Path, how: str, first: int, stride: int) -> int:
    """Strike a job at its requests, and return how many it went through."""
    words = [str(folder), store.endpoint, how, str(first), str(stride)]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words],
        env={**os.environ, **store.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[0])


@pytest.mark.parametrize("how", SHORT)
def test_a_reader_by_the_manifest_sees_the_old_data_set_or_the_new(
    store: ObjectStore, tmp_path: Path, how: str
) -> None:
    """A resume finishes the publication without a call of `run`, and leaves no upload open."""
    assert strike(store, tmp_path, how, *SHORT[how]) > 20


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", [*HOW, "gone", "cleaned"])
def test_the_same_at_any_request(store: ObjectStore, tmp_path: Path, how: str) -> None:
    """None is left out."""
    assert strike(store, tmp_path, how, 1, 1) > 20
