"""What a caller is told while an input is listed, which takes minutes for a store of many keys."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import pandas as pd

from daskprs._inputs.files.discover import discover
from daskprs._inputs.files.listing import Listing, counted_pages, watched_listing
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest


class Watched(Listing):
    """Remembers each thing that it could have said."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def count(self, entries: Any) -> Any:
        """Remember what is said after each entry."""
        for entry in super().count(entries):
            self.said.append(self.how_far)
            yield entry


def test_files_of_a_folder_are_counted_as_they_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what all names of the input stand for is known at the end."""
    monkeypatch.setattr("daskprs._inputs.files.listing.Listing", Watched)
    for name in "abc":
        (tmp_path / name).touch()
    with watched_listing() as listing:
        discover([str(tmp_path), str(tmp_path / "a"), str(tmp_path / "*")])
    assert isinstance(listing, Watched)
    assert listing.said[:3] == [f"listing {tmp_path}: {n} so far" for n in (1, 2, 3)]
    assert listing.said[3:] == [f"listing {tmp_path}/*: {n} so far" for n in (1, 2, 3)]
    assert listing.listed == 7
    assert listing.how_far == ""


def test_footers_are_counted_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a request to the store: fifty thousand of them take longer than the listing."""
    monkeypatch.setattr("daskprs._inputs.files.listing.Listing", Watched)
    for name in "ab":
        pd.DataFrame({"x": [1]}).to_parquet(tmp_path / f"{name}.parquet")
    with watched_listing() as listing:
        open_source(str(tmp_path), ReadOptions())
    assert isinstance(listing, Watched)
    assert listing.said[2:] == [f"reading the footers of files: {n} of 2" for n in (1, 2)]


def test_keys_are_counted_while_a_store_still_sends_them() -> None:
    """The whole listing comes at its end, and the store is as it was afterwards."""
    listing = Listing()
    seen = []

    class Store:
        async def _iterdir(self, bucket: str) -> AsyncIterator[str]:
            for number in range(3):
                seen.append(listing.how_far)
                yield f"{bucket}/{number}"

        async def find(self, bucket: str) -> list[str]:
            return [key async for key in self._iterdir(bucket)]

    store = Store()
    listing.begin("s3://bucket")
    with counted_pages(store, listing):
        assert asyncio.run(store.find("bucket")) == ["bucket/0", "bucket/1", "bucket/2"]
    assert seen == ["listing s3://bucket", *(f"listing s3://bucket: {n} so far" for n in (1, 2))]
    assert vars(store) == {}


def test_large_counts_are_grouped() -> None:
    """As in all that is said of a job."""
    listing = Listing()
    listing.begin("s3://bucket")
    deque(listing.count(range(12_000)), maxlen=0)
    assert listing.how_far == "listing s3://bucket: 12,000 so far"
