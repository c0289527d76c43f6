"""Tables: the mini-batches put together are the input, in order, with one type for each column."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from daskprs._inputs.delimited.parser import DelimitedParser
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from daskprs.errors import InputError, LoadError, OptionError
from tests.support.cases import few_examples
from tests.support.put_together import together

if TYPE_CHECKING:
    from pathlib import Path

COUNTER = itertools.count()
CELLS = st.text(alphabet='ab1.,"\n\r é-', max_size=6)
SIZES = st.integers(1, 200)


@st.composite
def csv_texts(draw: st.DrawFn) -> str:
    """Draw a CSV file: quoted line breaks, CRLF, empty lines, no final newline."""
    columns = draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(CELLS, min_size=columns, max_size=columns), max_size=12))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    names = [f"column{number}" for number in range(columns)]
    lines = [",".join(names)]
    for row in rows:
        cells = ['"' + cell.replace('"', '""') + '"' if _quoted(cell) else cell for cell in row]
        lines.append(",".join(cells))
        lines.extend([""] * draw(st.integers(0, 1)))
    return end.join(lines) + (end if draw(st.booleans()) else "")


def _quoted(cell: str) -> bool:
    return any(char in cell for char in ',"\n\r') or not cell.strip()


@few_examples(2)
@given(text=csv_texts(), size=SIZES, bom=st.booleans())
def test_delimited_text_is_what_pandas_reads(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int, *, bom: bool
) -> None:
    """Values, types and order, for any size of mini-batch."""
    path = tmp_path_factory.getbasetemp() / f"text{next(COUNTER)}.csv"
    path.write_bytes(text.encode("utf-8-sig" if bom else "utf-8"))
    expected = pd.read_csv(path)
    assume(next(iter(expected.columns)).startswith("column"))
    got = together(open_source(path, ReadOptions(mini_batch_size=size)))
    pd.testing.assert_frame_equal(got, expected)
    path.unlink()


@few_examples(2)
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {"a": st.integers(-5, 2**60), "b": st.text(max_size=3)},
            optional={"c": st.floats(allow_nan=False), "d": st.lists(st.integers(), max_size=2)},
        ),
        min_size=1,
        max_size=12,
    ),
    size=SIZES,
    compress=st.booleans(),
)
def test_json_lines_are_what_a_frame_of_them_is(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], size: int, *, compress: bool
) -> None:
    """Missing keys are null, integers stay exact, nested values stay objects."""
    body = "\n".join(map(json.dumps, rows)).encode()
    name = f"rows{next(COUNTER)}.jsonl" + (".gz" if compress else "")
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(gzip.compress(body) if compress else body)
    got = together(open_source(path, ReadOptions(mini_batch_size=size)))
    expected = pd.DataFrame(rows)
    for column in [name for name in expected if expected[name].dtype.name == "object"]:
        expected[column] = expected[column].astype(object).where(expected[column].notna(), None)
    pd.testing.assert_frame_equal(got, expected)
    path.unlink()


@few_examples(2)
@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=3),
    group=st.integers(1, 12),
    size=SIZES,
)
def test_parquet_files_are_what_pandas_reads(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], group: int, size: int
) -> None:
    """Sliced inside row groups, never across files; a null anywhere types the column everywhere."""
    folder = tmp_path_factory.getbasetemp() / f"parquet{next(COUNTER)}"
    folder.mkdir()
    frames = []
    for number, length in enumerate(lengths):
        numbers = pd.Series(range(length), dtype="float64")
        frame = pd.DataFrame(
            {
                "number": numbers,
                "text": [f"t{row}" for row in range(length)],
                "whole": pd.array(range(length), dtype="int64"),
                "nullable": pd.array([None, *range(length)][:length], dtype="Int64"),
            }
        )
        frame["text"] = frame["text"].astype("str")
        frame.to_parquet(folder / f"{number}.parquet", row_group_size=group)
        frames.append(frame)
    got = together(open_source(folder, ReadOptions(mini_batch_size=size)))
    pd.testing.assert_frame_equal(got, pd.concat(frames, ignore_index=True))


def test_each_row_of_a_row_group_is_in_one_slice(tmp_path: Path) -> None:
    """Also where the slices do not divide the row group."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"row": range(100)}), path, row_group_size=40, compression="none")
    group_bytes = pq.read_metadata(path).row_group(0).total_byte_size
    for rows in (7, 20, 40):
        source = open_source(path, ReadOptions(mini_batch_size=-(-group_bytes * rows // 40)))
        assert list(together(source)["row"]) == list(range(100))
        sizes = [one.items for one in source.mini_batches()]
        assert sizes[0] == rows
        assert source.count() == len(sizes)


@pytest.mark.parametrize("size", [1, 100, 10**6])
def test_a_frame_comes_back_with_its_types(tmp_path: Path, size: int) -> None:
    """Categories, time zones, nullable types and strings that look like numbers."""
    frame = pd.DataFrame(
        {
            "text": ["007", None, "é"] * 20,
            "category": pd.Categorical(["u", "v", "u"] * 20, categories=["v", "u", "w"]),
            "moment": pd.date_range("2020-01-01", periods=60, tz="Europe/Berlin"),
            "nullable": pd.array([1, None, 3] * 20, dtype="Int64"),
            "number": np.linspace(-1, 1, 60),
        }
    )
    got = together(open_source(frame, ReadOptions(mini_batch_size=size)), tmp_path)
    pd.testing.assert_frame_equal(got, frame)


def test_a_frame_of_any_objects_comes_back(tmp_path: Path) -> None:
    """What Arrow cannot hold is pickled."""
    frame = pd.DataFrame({"thing": [{1, 2}, "text", None, 5j], 7: range(4)})
    got = together(open_source(frame, ReadOptions(mini_batch_size=1)), tmp_path)
    pd.testing.assert_frame_equal(got, frame)


def test_each_row_of_a_tensor_comes_without_the_others(tmp_path: Path) -> None:
    """PyTorch pickles the memory of all; and the size of a mini-batch counts the pickles."""
    torch: Any = pytest.importorskip("torch")
    rows = torch.rand(400, 50)
    source = open_source(pd.DataFrame({"t": list(rows)}), ReadOptions(mini_batch_size="1 MB"))
    got = together(source, tmp_path)
    assert all(map(torch.equal, got["t"], rows))
    assert len([*source.mini_batches()]) == 1
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.pickles")) < 1_000_000


def test_each_slice_of_arrow_comes_without_the_rows_beside_it(tmp_path: Path) -> None:
    """Also in an object, where Arrow pickles the memory of all rows."""
    table = pa.table({"n": pa.array(range(100_000))})
    cells: list[Any] = [{"rows": table.slice(at, 10)} for at in range(0, 1000, 10)]
    got = together(open_source(pd.DataFrame({"t": cells}), ReadOptions()), tmp_path)
    assert got["t"].tolist() == cells
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.pickles")) < 100_000


def test_an_arrow_table_comes_as_pandas_has_it(tmp_path: Path) -> None:
    """Cut by rows."""
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})
    got = together(open_source(table, ReadOptions(mini_batch_size=1)), tmp_path)
    pd.testing.assert_frame_equal(got, table.to_pandas())


KEYS = st.sampled_from(["a", "b", None])
NUMBERS = st.sampled_from([0.0, -0.0, 1.5, float("nan")])


@given(rows=st.lists(st.tuples(KEYS, NUMBERS), min_size=1, max_size=40))
def test_a_key_is_never_split_nor_doubled(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str | None, float]]
) -> None:
    """One mini-batch for each combination, in order of first appearance, rows in input order."""
    frame = pd.DataFrame(rows, columns=["text", "number"]).assign(row=range(len(rows)))
    scratch = tmp_path_factory.mktemp("scratch")
    source = open_source(frame, ReadOptions(partition_keys=("text", "number")))
    source.prepare(scratch)
    reader = source.reader()
    groups = [reader.load(one) for one in source.mini_batches()]
    expected = [
        group.reset_index(drop=True)
        for _, group in frame.groupby(["text", "number"], sort=False, dropna=False)
    ]
    assert len(groups) == len(expected)
    for group, other in zip(groups, expected, strict=True):
        pd.testing.assert_frame_equal(group, other)


def test_keys_in_folder_names_are_not_shuffled(tmp_path: Path) -> None:
    """All files of a combination are one mini-batch; the folder's column comes last."""
    for key, number in [("x", 1), ("y", 2), ("x", 3)]:
        folder = tmp_path / f"key={key}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.csv").write_text(f"number\n{number}\n")
    source = open_source(tmp_path, ReadOptions(partition_keys=("key",)))
    reader = source.reader()
    loaded = [(one.partition_key, reader.load(one)) for one in source.mini_batches()]
    reader.close()
    assert [(key, list(frame["number"])) for key, frame in loaded] == [
        ((("key", "x"),), [1, 3]),
        ((("key", "y"),), [2]),
    ]
    assert list(loaded[0][1].columns) == ["number", "key"]


REFUSED = {
    "no match": ("*.csv", {}, "the glob .* matches nothing"),
    "no file": ("nosuch.csv", {}, "there is no file or folder"),
    "a mixture": (".", {}, "mixes kinds of files"),
    "no such column": ("good.csv", {"columns": ("aa",)}, "no column 'aa'. Near it: a"),
    "no such key": ("good.csv", {"partition_keys": ("aa",)}, "no column 'aa'"),
    "no such type": ("good.csv", {"dtypes": {"a": "int65"}}, "not a type of pandas"),
    "no such type of JSON": ("good.jsonl", {"dtypes": {"a": "int65"}}, "not a type of pandas"),
    "a type with numbers": (
        "good.csv",
        {"dtypes": {"a": "decimal128(9, 2)[pyarrow]"}},
        "not a type of pandas: .* construct an ArrowDtype",
    ),
    "a type of Arrow": ("good.csv", {"dtypes": {"a": pa.int32()}}, r"Give pd\.ArrowDtype\("),
    "cut short": ("cut.parquet", {}, "cut.parquet cannot be read as a Parquet file"),
    "other columns": ("two", {}, "disagree on their columns: b only in .*; c only in"),
    "other headers": ("heads", {}, "the header of .* is not that of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_before_anything_starts(tmp_path: Path, case: str) -> None:
    """With what is wrong, and what is near it."""
    where, reading, message = REFUSED[case]
    if case != "no match":
        (tmp_path / "good.csv").write_text("a,b\n1,2\n")
        (tmp_path / "good.jsonl").write_text('{"a": 1}\n')
    if case == "a mixture":
        (tmp_path / "picture.png").write_bytes(b"x")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    for name, columns in (("one", ["a", "b"]), ("other", ["a", "c"])):
        frame = pd.DataFrame(1, index=[0], columns=columns)
        (tmp_path / "two").mkdir(exist_ok=True)
        (tmp_path / "heads").mkdir(exist_ok=True)
        frame.to_parquet(tmp_path / "two" / f"{name}.parquet")
        frame.to_csv(tmp_path / "heads" / f"{name}.csv", index=False)
    with pytest.raises((InputError, OptionError), match=message):
        open_source(str(tmp_path / where), ReadOptions(**reading))


MISFITS = {
    "a value": (b"a,b\n" + b"1,2\n" * 9 + b"x,3\n", "line 11: column 'a' holds 'x'"),
    "a null": (b"a,b\n" + b"1,2\n" * 9 + b",3\n", "line 11: column 'a' holds nothing"),
    "too many": (b"a,b\n" + b"1,2\n" * 9 + b"1,2,3\n", "line 11: 3 fields where 2"),
    "no utf-8": (b"a,b\n" + b"1,2\n" * 9 + b"1,\xff\n", "line 11: .* not in the encoding utf-8"),
}


@pytest.mark.parametrize("case", MISFITS)
@pytest.mark.parametrize("size", [7, 10**6])
def test_what_does_not_fit_is_named(tmp_path: Path, case: str, size: int) -> None:
    """By file, line, column and value, whatever the mini-batch that it lies in."""
    body, message = MISFITS[case]
    path = tmp_path / "table.csv"
    path.write_bytes(body)
    source = open_source(path, ReadOptions(mini_batch_size=size, dtypes={"a": "int64"}))
    with pytest.raises(LoadError, match=message) as refused:
        together(source)
    assert refused.value.items == (2 if size == 7 else 10)


def test_lines_that_cannot_be_read_are_counted_all_the_same(tmp_path: Path) -> None:
    """All of a mini-batch have failed with the one that is bad; empty lines are none."""
    (tmp_path / "table.csv").write_bytes(b"a,b\n1,2\n\n1,2,3\n4,5\n")
    (tmp_path / "table.jsonl").write_bytes(b'{"a": 1}\n\n{"a": 2}\n{"a"\n')
    for name in ("table.csv", "table.jsonl"):
        with pytest.raises(LoadError) as refused:
            together(open_source(tmp_path / name, ReadOptions()))
        assert refused.value.items == 3


def test_a_quote_without_its_other_half_is_an_error_where_lines_are_records(tmp_path: Path) -> None:
    """`support_multi_line=False` says that fields hold no line breaks."""
    path = tmp_path / "table.csv"
    path.write_text('a,b\n1,"2\n3",4\n')
    source = open_source(path, ReadOptions(support_multi_line=False))
    with pytest.raises(LoadError, match="goes on after its line"):
        together(source)


def test_the_documented_example_of_byte_ranges(tmp_path: Path) -> None:
    """84,032 bytes in 75 long lines at 10 KB give 9, 9, 9, 9, 9, 9, 9, 10 and 1 rows."""
    header, rest = b"h" * 1121 + b"\n", 84_032 - 1122
    lines = [b"r" * (rest // 74 - 1) + b"\n"] * 73
    body = header + b"".join(lines)
    body += b"r" * (84_032 - len(body) - 1) + b"\n"
    path = tmp_path / "table.csv"
    path.write_bytes(body)
    source = open_source(path, ReadOptions(mini_batch_size="10 KB"))
    reader = source.reader()
    counts = [len(reader.load(one)) for one in source.mini_batches()]
    reader.close()
    assert (len(body), counts) == (84_032, [9, 9, 9, 9, 9, 9, 9, 10, 1])


def test_one_bad_line_among_many_is_found_in_a_few_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By halves: each line by itself would take longer than any timeout."""
    looks = []
    parse = DelimitedParser.parse

    def counted(self: DelimitedParser, body: bytes, names: Any, **more: Any) -> pd.DataFrame:
        looks.append(len(body))
        return parse(self, body, names, **more)

    monkeypatch.setattr(DelimitedParser, "parse", counted)
    path = tmp_path / "table.csv"
    path.write_bytes(b"a,b\n" + b"1,2\n" * 30_000 + b"1,2,3\n")
    with pytest.raises(LoadError, match="line 30002: 3 fields where 2"):
        together(open_source(path, ReadOptions()))
    assert len(looks) < 60
