"""Part files: every type comes back from each format, and memory does not grow with a part."""

from __future__ import annotations

import base64
import json
import math
import tempfile
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from daskprs._arrow.exact_casts import cast_exactly
from daskprs._output.dataset import part_file
from daskprs._output.dataset.part_file import RowsFile, Sources, write_part
from daskprs._output.rows import part_formats
from daskprs._output.rows.part_formats import RowsInOrder, check_writable
from daskprs.errors import JournalError, ReturnTypeError
from tests.support.arrow_of_all_kinds import FLAT, TYPES, tables
from tests.support.datasets import part_plan
from tests.support.versions import ARROW

is_ = pa.types


def is_same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Say whether two columns hold the same values; a NaN is one."""
    return repr(one.to_pylist()) == repr(other.to_pylist())


@pytest.mark.parametrize("format_", ["parquet", "arrow"])
@given(table=tables(TYPES, min_columns=1))
def test_every_value_comes_back(format_: str, table: pa.Table) -> None:
    """Of every type, nested ones too; a file may have a coarser type that holds the same values."""
    has_lists = any(is_.is_fixed_size_list(one) for one in table.schema.types)
    assume(ARROW >= 26 or format_ != "parquet" or not has_lists)
    with tempfile.TemporaryDirectory() as base:
        (made,) = write_part(part_plan(Path(base), [table, table], format_)).files
        assert made.counts == [table.num_rows] * 2
        path = Path(base, "set", made.name)
        back = (
            pq.read_table(path)
            if format_ == "parquet"
            else ds.dataset(path, format="arrow").to_table()
        )
        assert back.column_names == table.column_names
        for name in table.column_names:
            twice = pa.chunked_array([*table[name].chunks, *table[name].chunks], table[name].type)
            assert is_same(cast_exactly(back[name], table[name].type), twice)


def test_a_column_of_the_right_type_is_not_cast() -> None:
    """Arrow's cast of fixed-size lists of nulls to their own type makes an invalid column."""
    lists = pa.FixedSizeListArray.from_arrays(pa.nulls(2), 2)
    coarser = pa.array(["a"]).dictionary_encode()
    table = pa.table({"lists": lists, "coarser": coarser})
    with tempfile.TemporaryDirectory() as base:
        (made,) = write_part(part_plan(Path(base), [table, table], "arrow")).files
        back = ds.dataset(Path(base, "set", made.name), format="arrow").to_table()
    assert back["lists"].to_pylist() == [[None, None]] * 2


@given(table=tables(FLAT, min_columns=1))
def test_every_value_can_be_told_from_json(table: pa.Table) -> None:
    """Numbers as numbers, with all their digits; the rest as text of a standard form."""
    with tempfile.TemporaryDirectory() as base:
        (made,) = write_part(part_plan(Path(base), [table], "jsonl")).files
        lines = Path(base, "set", made.name).read_text().split("\n")
    assert lines.pop() == ""
    assert made.counts == [len(lines)] == [table.num_rows]
    for line, row in zip(lines, table.to_pylist(), strict=True):
        told = json.loads(line, parse_constant=pytest.fail)
        assert list(told) == list(row)
        for name, value in row.items():
            is_number = isinstance(value, float) and not math.isfinite(value)
            expected = None if is_number else value
            assert value_of(told[name], table.schema.field(name).type) == expected


def value_of(told: Any, type_: pa.DataType) -> Any:
    """Return what JSON tells of a value of a type."""
    readers: list[tuple[Any, Any]] = [
        (is_.is_decimal, Decimal),
        (lambda one: is_.is_binary(one) or is_.is_fixed_size_binary(one), base64.b64decode),
        (is_.is_date, date.fromisoformat),
        (is_.is_time, time.fromisoformat),
        (is_.is_timestamp, pd.Timestamp),
        (is_.is_duration, pd.Timedelta),
    ]
    for fits, read in readers:
        if told is not None and fits(type_):
            return read(told)
    return told


@pytest.mark.parametrize("format_", ["parquet", "arrow", "jsonl"])
def test_each_format_holds_every_type(format_: str) -> None:
    """None of those above is refused."""
    for type_, _ in TYPES:
        check_writable(pa.schema([("x", type_)]), format_, ())


def test_json_tells_nanoseconds_of_times(tmp_path: Path) -> None:
    """Those of Python have none."""
    times = pa.array([3_600_000_000_001, None], pa.time64("ns"))
    table = pa.table({"t": times, "l": pa.ListArray.from_arrays([0, 1, 2], times)})
    (made,) = write_part(part_plan(tmp_path, [table], "jsonl")).files
    text = (tmp_path / "set" / made.name).read_text()
    assert [json.loads(line) for line in text.splitlines()] == [
        {"t": "01:00:00.000000001", "l": ["01:00:00.000000001"]},
        {"t": None, "l": [None]},
    ]


@pytest.mark.parametrize("format_", ["parquet", "arrow", "jsonl"])
@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
def test_views_are_put_into_folders(tmp_path: Path, kind: str, format_: str) -> None:
    """Arrow itself does not take rows from them."""
    text, values = getattr(pa, kind)(), pa.array([b"one", None, b"three" * 9])
    columns = {
        "k": pa.array(["a", "b", "a"], pa.string_view()),
        "v": values.cast(text),
        "l": pa.array([[one] for one in values.to_pylist()], pa.list_(pa.binary())).cast(
            pa.list_(text)
        ),
    }
    plan = part_plan(tmp_path, [pa.table(columns)], format_)._replace(partition_by=("k",))
    files = write_part(plan).files
    assert [one.name for one in files] == ["k=a/part", "k=b/part"]
    assert [one.rows for one in files] == [2, 1]
    if format_ != "jsonl":
        found = ds.dataset(tmp_path / "set" / "k=a", format=format_).to_table()
        assert found["v"].cast("binary").to_pylist() == [b"one", b"three" * 9]


@pytest.mark.parametrize("format_", ["parquet", "arrow", "jsonl"])
@pytest.mark.parametrize("kind", ["string_view", "large_string"])
def test_categories_that_are_views_are_put_into_folders(
    tmp_path: Path, kind: str, format_: str
) -> None:
    """As those of polars may be; also as the values that make the folders."""
    names = pa.array(["a", "b"], getattr(pa, kind)())
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), names)
    columns = {
        "k": coded,
        "v": coded,
        "l": pa.ListArray.from_arrays([0, 1, 2, 3], coded),
        "s": pa.StructArray.from_arrays([coded], ["x"]),
    }
    plan = part_plan(tmp_path, [pa.table(columns)], format_)._replace(partition_by=("k",))
    files = write_part(plan).files
    assert [one.name for one in files] == ["k=a/part", "k=b/part"]
    assert [one.rows for one in files] == [2, 1]
    path = tmp_path / "set" / "k=a" / "part"
    if format_ == "jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        rows = ds.dataset(path, format=format_).to_table().to_pylist()
    assert rows == [{"v": "a", "l": ["a"], "s": {"x": "a"}}] * 2


@given(cut=st.integers(1, 50), format_=st.sampled_from(["parquet", "arrow", "jsonl"]))
def test_rows_of_an_earlier_part_are_those_that_it_had(cut: int, format_: str) -> None:
    """Wherever row groups end."""
    frames = [pd.DataFrame({"n": range(10 * i, 10 * i + i), "s": "x"}) for i in range(8)]
    with tempfile.TemporaryDirectory() as base, pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_file, "ROW_GROUP_BYTES", cut)
        plan = part_plan(Path(base), frames, format_)
        (made,) = write_part(plan).files
        assert list(made.counts) == list(range(8))
        path = Path(base, "set", made.name)
        sources, before = Sources.none(), 0
        for index, count in enumerate(made.counts):
            if index % 3:
                sources.add(index, 0, before, count, 0)
            before += count
        again = plan._replace(name="again", files=[RowsFile(str(path), "")], sources=sources)
        (kept,) = write_part(again).files
        frames = [frame for index, frame in enumerate(frames) if index % 3]
        Path(base, "new").mkdir()
        (direct,) = write_part(part_plan(Path(base, "new"), frames, format_)).files
        assert kept.counts == direct.counts
        found = [
            Path(base, folder, "set", one.name) for folder, one in (("", kept), ("new", direct))
        ]
        rows = [one.read_text() if format_ == "jsonl" else values_in(one, format_) for one in found]
        assert rows[0] == rows[1]


@pytest.mark.parametrize("format_", ["parquet", "arrow", "jsonl"])
@pytest.mark.parametrize("most_kept", [part_file.MOST_KEPT_BYTES, 0])
def test_rows_of_an_earlier_part_are_read_once(
    tmp_path: Path, format_: str, most_kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is opened for each row group, not for each mini-batch; JSON lines are gone through."""
    frames = [pd.DataFrame({"k": ["a", "b"], "n": [i, -i]}) for i in range(30)]
    plan = part_plan(tmp_path, frames, format_)._replace(partition_by=("k",))
    made = write_part(plan).files
    files = [RowsFile(str(tmp_path / "set" / one.name), one.name[:3]) for one in made]
    sources = Sources.none()
    for index in range(30):
        sources.add(index, 0, index, 1, 0)
        sources.add(index, 1, index, 1, 0)
    opened: list[Any] = []
    real = part_formats._opened

    def noted(*what: Any) -> Any:
        opened.append(what)
        return real(*what)

    monkeypatch.setattr(part_formats, "_opened", noted)
    monkeypatch.setattr(part_file, "MOST_KEPT_BYTES", most_kept)
    again = write_part(plan._replace(name="again", files=files, sources=sources)).files
    assert [one.checksum for one in again] == [one.checksum for one in made]
    if format_ != "jsonl":
        assert len(opened) == (2 if most_kept else 60)


def test_lines_that_were_read_are_not_read_again(tmp_path: Path) -> None:
    """Not even to be skipped: here they are there no more."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"0\n11\n2\n3\n4\n")
    rows = RowsInOrder("jsonl", path)
    assert list(rows.lines(0, 2)) == [b"0\n", b"11\n"]
    path.write_bytes(b"-----2\n3\n4\n")
    assert list(rows.lines(3, 2)) == [b"3\n", b"4\n"]


def values_in(path: Path, format_: str) -> dict[str, Any]:
    """Return the columns of a file."""
    values: dict[str, Any] = ds.dataset(path, format=format_).to_table().to_pydict()
    return values


def test_row_groups_have_a_size_and_rows_pass_through_in_pieces(tmp_path: Path) -> None:
    """A large frame becomes batches in the agent, and row groups of 8 MB in the part."""
    frame = pd.DataFrame({"n": range(10_000_000)})
    plan = part_plan(tmp_path, [frame], "parquet")
    before = pa.total_allocated_bytes()
    (made,) = write_part(plan).files
    assert pa.total_allocated_bytes() == before
    groups = pq.ParquetFile(tmp_path / "set" / made.name).metadata
    sizes = [groups.row_group(i).num_rows * 8 for i in range(groups.num_row_groups)]
    assert sum(sizes) == 80_000_000
    assert max(sizes) < 13 << 20
    assert min(sizes[:-1]) >= 8 << 20


@pytest.mark.parametrize(
    ("format_", "type_"),
    [
        ("parquet", pa.timestamp("s")),
        *(("jsonl", one) for one in (pa.timestamp("us"), pa.duration("s"), pa.date64())),
    ],
)
def test_values_that_a_format_cannot_hold_are_named(
    tmp_path: Path, format_: str, type_: pa.DataType
) -> None:
    """With the column, and the mini-batches whose rows were written together."""
    numbers = [pa.array([value], pa.int64()) for value in (1, 2, 1 << 62)]
    results = [pa.table({"n": [1], "late": one.cast(type_)}) for one in numbers]
    plan = part_plan(tmp_path, results, format_)
    said = r"column 'late' \(.*\) has a value in mini-batches 0 to 2 that output_format"
    with pytest.raises(ReturnTypeError, match=said):
        write_part(plan)


def test_damaged_bytes_are_never_written(tmp_path: Path) -> None:
    """The error names the mini-batch."""
    plan = part_plan(tmp_path, [pd.DataFrame({"n": [1]}), pd.DataFrame({"n": [2]})], "parquet")
    spool = tmp_path / "spool"
    content = bytearray(spool.read_bytes())
    content[-20] ^= 1
    spool.write_bytes(content)
    with pytest.raises(JournalError, match="the rows of mini-batch 1 are not those"):
        write_part(plan)
    spool.unlink()
    with pytest.raises(JournalError, match="the rows of mini-batch 0 are not those"):
        write_part(plan)
