"""Records of delimited text: cut anywhere, put together again, exactly as pandas has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daskprs._inputs.delimited.parser import Dialect
from daskprs._inputs.text import records as text_records
from daskprs._inputs.text.records import EvenGoals, TextRecords

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = st.text(alphabet='a,"\n\r', max_size=60).map(str.encode)


class InMemory:
    """Bytes that are read like a file."""

    path = "in memory"

    def __init__(self, body: bytes) -> None:
        self.body = body

    def read(self, start: int, length: int) -> bytes:
        """Return some of them."""
        return self.body[start : start + length]


def records_one_by_one(body: bytes) -> list[tuple[int, int]]:
    """Return the bounds of records, found byte by byte: the rule, written down plainly."""
    starts, quoted, field_start, after_quote = [0], False, True, False
    at = 0
    while at < len(body):
        char = chr(body[at])
        if quoted:
            quoted, after_quote = char != '"', char == '"'
        elif char == '"' and (field_start or after_quote):
            quoted, after_quote = True, False
        elif char in "\r\n":
            at += body[at : at + 2] == b"\r\n"
            starts.append(at + 1)
            after_quote = False
        else:
            after_quote = False
        field_start = not quoted and not after_quote and char in ",\r\n"
        at += 1
    ends = starts[1:] + ([len(body)] if starts[-1] != len(body) else [])
    return list(zip(starts, ends, strict=False))


@pytest.fixture(params=[1, 3, 1 << 20])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read in pieces of some size: a piece may end between any two bytes."""
    monkeypatch.setattr(text_records, "CHUNK_BYTES", request.param)
    monkeypatch.setattr(text_records, "TAIL_BYTES", request.param)
    return


@pytest.mark.usefixtures("_chunks")
@given(body=TEXT, size=st.integers(1, 20), seed=st.integers(0, 99))
@example(body=b"a\nb\nc\nd\n", size=4, seed=3)  # the second range is asked for first
def test_a_record_belongs_to_the_range_it_starts_in(body: bytes, size: int, seed: int) -> None:
    """Whatever the order in which ranges are asked for."""
    records = TextRecords(InMemory(body), 0, Dialect(",", "utf-8", multi_line=True).new_scan)  # type: ignore[arg-type]
    ranges = [(start, min(start + size, len(body))) for start in range(0, len(body), size)]
    expected = {
        (start, stop): b"".join(
            body[first:end] for first, end in records_one_by_one(body) if start <= first < stop
        )
        for start, stop in ranges
    }
    for start, stop in np.random.default_rng(seed).permutation(ranges).tolist():
        assert records.starting_in(start, stop).body == expected[start, stop]


@pytest.mark.usefixtures("_chunks")
@given(
    body=st.text(alphabet='a,"\n\r ', max_size=60).map(str.encode),
    rows=st.integers(1, 4),
    begin=st.integers(0, 3),
)
def test_ranges_by_rows_have_so_many_rows(body: bytes, rows: int, begin: int) -> None:
    """All but the last; blank records count nowhere, and nothing is lost."""
    dialect = Dialect(",", "utf-8", multi_line=True)
    begin = min(begin, len(body))
    records = TextRecords(InMemory(body), begin, dialect.new_scan)  # type: ignore[arg-type]
    ranges = list(records.cut_rows(EvenGoals(rows), dialect.blanks))
    assert [count for _, _, count in ranges[:-1]] == [rows] * (len(ranges) - 1)
    for start, stop, count in ranges:
        assert len(dialect.starts_of_rows(records.between(start, stop).body)) == count
    bounds = [begin, *(stop for _, stop, _ in ranges)]
    assert [start for start, _, _ in ranges] == bounds[:-1]
    assert dialect.is_blank(body[bounds[-1] :])


@pytest.mark.usefixtures("_chunks")
@given(body=TEXT, size=st.integers(1, 20))
def test_a_stream_is_cut_at_record_ends(body: bytes, size: int) -> None:
    """Its pieces are the whole, and each begins where a record does."""
    pieces = list(
        TextRecords(InMemory(body), 0, Dialect(",", "utf-8", multi_line=True).new_scan).cut(size)
    )  # type: ignore[arg-type]
    assert b"".join(body[start:stop] for start, stop in pieces) == body
    starts = {start for start, _ in records_one_by_one(body)}
    assert {start for start, _ in pieces} <= starts
