"""The table of partitions in the job folder, as a loss of power may leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daskprs._inputs.collections.partition_table import PartitionCut, PartitionTable

if TYPE_CHECKING:
    from pathlib import Path

HEADER = {"token": "of the collection", "count": 3}


@pytest.mark.parametrize("damage", [b"\0\0\0", b'[2, 1, 1, 8, "\xef\xff"]', b"[2, 1"])
def test_what_lies_before_a_damaged_line_is_known(tmp_path: Path, damage: bytes) -> None:
    """The other partitions are computed again."""
    path, cut = tmp_path / "partitions.jsonl", PartitionCut(1, 1, 8, "a digest")
    table = PartitionTable(path, HEADER)
    table.begin()
    for number in range(2):
        table.add(number, cut)
    table.close()
    path.write_bytes(path.read_bytes() + damage + b"\n")
    again = PartitionTable(path, HEADER)
    assert again.is_same
    assert again.before == {0: cut, 1: cut}
