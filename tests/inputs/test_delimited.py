"""Delimited text: mini-batches put together are what `pandas.read_csv` makes of the whole."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import pickle
import tracemalloc
import zipfile
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from daskprs._inputs.delimited.null_words import EMPTY
from daskprs._inputs.delimited.null_words import NULLS as WORDS_FOR_NULL
from daskprs._inputs.delimited.parser import (
    HOLDS_ARROW_TEXT,
    ROUND_TRIP,
    DelimitedParser,
    Dialect,
    may_hold_nulls,
)
from daskprs._inputs.delimited.schema import BOOL_OR_NULL, TEXT, TextColumn
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from daskprs.errors import InputError, LoadError, OptionError
from tests.support.cases import mostly_long
from tests.support.put_together import together
from tests.support.versions import IS_PANDAS_2, of_pandas_3

if TYPE_CHECKING:
    from pathlib import Path

COUNTER = itertools.count()
NULLS = ["", "NA", "nan", "NULL", "<NA>", "None", "n/a", "-1.#IND"]
TEXTS = st.one_of(
    st.sampled_from([*NULLS, "True", "1", " lead", "#c", "\ufeffx", "a\0b", "\u2028", "x\ny", "'"]),
    st.text(alphabet='ab1.,"\n\r é;\t-', max_size=6),
)
INTEGERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.sampled_from(["007", "+3", " 7", "7 ", "-0", "0x1F", "1_0"]),
)
FLOATS = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.decimals(-1000, 1000, places=2).map(str),
    st.sampled_from(
        [*NULLS, "1.", ".5", "1E-3", "+1.5", "INF", "-inf", "Infinity", "1e400", "NAN"]
    ),
)
BOOLEANS = st.sampled_from(["True", "TRUE", "true", "False", "FALSE", "false", " True", ""])
CELLS = [TEXTS, INTEGERS, FLOATS, BOOLEANS]


@st.composite
def csv_texts(draw: st.DrawFn, delimiter: str) -> str:
    """Draw a CSV file of columns of all kinds, quoted where it has to be, or everywhere."""
    kinds = draw(st.lists(st.sampled_from(CELLS), min_size=1, max_size=4))
    rows = draw(st.lists(st.tuples(*kinds), max_size=8))
    always = draw(st.booleans())
    end = draw(st.sampled_from(["\n", "\r\n"]))
    lines = [delimiter.join(f"column{number}" for number in range(len(kinds)))]
    for row in rows:
        lines.append(delimiter.join(_quoted(cell, delimiter, always=always) for cell in row))
        lines.extend([""] * draw(st.integers(0, 1)))
    return end.join(lines) + draw(st.sampled_from([end, ""]))


def _quoted(cell: str, delimiter: str, *, always: bool = False) -> str:
    special = any(char in cell for char in f'{delimiter}"\r\n') or not cell.strip()
    return '"' + cell.replace('"', '""') + '"' if always or special else cell


def _written(folder: Path, body: bytes, suffix: str = ".csv") -> Path:
    path = folder / f"text{next(COUNTER)}{suffix}"
    path.write_bytes(gzip.compress(body) if suffix.endswith(".gz") else body)
    return path


@given(
    data=st.data(),
    delimiter=st.sampled_from([",", "\t", ";", " "]),
    encoding=st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16", "cp1252"]),
    suffix=st.sampled_from([".csv", ".csv", ".csv.gz"]),
    size=st.integers(1, 80),
)
def test_mini_batches_are_what_pandas_reads(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    delimiter: str,
    encoding: str,
    suffix: str,
    size: int,
) -> None:
    """In any encoding that holds it, with any delimiter, plain or compressed, cut anywhere."""
    text = data.draw(csv_texts(delimiter))
    body = text.encode(encoding, "replace")
    path = _written(tmp_path_factory.getbasetemp(), body, suffix)
    expected = pd.read_csv(path, sep=delimiter, encoding=encoding, low_memory=False, **ROUND_TRIP)
    reading = ReadOptions(mini_batch_size=size, delimiter=delimiter, encoding=encoding)
    pd.testing.assert_frame_equal(together(open_source(path, reading)), expected, check_exact=True)
    path.unlink()


ARROW_COLUMNS = {
    TEXT: TEXTS,
    "int64": INTEGERS,
    "uint64": INTEGERS,
    "int8": st.one_of(st.integers(-128, 127).map(str), INTEGERS),
    "float64": FLOATS,
    "bool": BOOLEANS,
    BOOL_OR_NULL: st.one_of(BOOLEANS, st.sampled_from(NULLS)),
}


@given(data=st.data(), kind=st.sampled_from(list(ARROW_COLUMNS)), is_clean=st.booleans())
def test_what_arrow_reads_is_what_pandas_reads(
    data: st.DataObject, kind: str, *, is_clean: bool
) -> None:
    """Bit by bit, or Arrow leaves it to pandas, which reads or refuses it."""
    cells = data.draw(st.lists(ARROW_COLUMNS[kind], min_size=1, max_size=3))
    lines = [f"{_quoted(cell, ',') if is_clean else cell},x" for cell in cells]
    body = "\n".join(lines).encode()
    dialect = Dialect(",", "utf-8", multi_line=True)
    scan = dialect.new_scan()
    scan.skip(body)
    assume(not scan.is_quoted)  # such a body is never shown to Arrow
    parsed = kind if kind in (TEXT, BOOL_OR_NULL) else pd.api.types.pandas_dtype(kind)
    columns = [TextColumn("a", parsed), TextColumn("b", TEXT)]
    parser = DelimitedParser(dialect, {column.name: column for column in columns}, ["a", "b"])
    by_arrow = parser.by_arrow(body, ["a", "b"], columns)
    if by_arrow is not None:
        by_pandas = parser.by_pandas(body, ["a", "b"], columns)
        pd.testing.assert_frame_equal(by_arrow, by_pandas, check_exact=True)


@pytest.mark.skipif(not HOLDS_ARROW_TEXT, reason="text is Python's objects before pandas 3")
def test_a_clean_table_is_read_by_arrow() -> None:
    """It is what makes reading fast."""
    columns = [TextColumn("a", pd.api.types.pandas_dtype("int64")), TextColumn("b", TEXT)]
    parser = DelimitedParser(Dialect(",", "utf-8", multi_line=True), {}, [])
    frame = parser.by_arrow(b'1,x\n2,"y,z"\n', ["a", "b"], columns)
    assert frame is not None
    assert frame.to_dict("list") == {"a": [1, 2], "b": ["x", "y,z"]}


GZIP = gzip.compress(b"a,b\n1,x\n2,y\n")
ZSTD = bytes(pa.compress(b"a,b\n1,x\n2,y\n", codec="zstd", asbytes=True))
MORE_ZSTD = bytes(pa.compress(b"3,z\n", codec="zstd", asbytes=True))
READ: dict[str, tuple[dict[str, bytes], dict[str, Any], dict[str, list[Any]]]] = {
    "an empty file among others": (
        {"1.csv": b"a\n1\n", "2.csv": b"", "3.csv": b"a\n3\n"},
        {},
        {"a": [1, 3]},
    ),
    "a header alone": ({"1.csv": b"a,b"}, {}, {"a": [], "b": []}),
    "nothing": ({"1.csv": b"", "2.csv": b"\n \n"}, {}, {}),
    "padding of gzip": ({"1.csv.gz": GZIP + bytes(512)}, {}, {"a": [1, 2]}),
    "members of gzip": ({"1.csv.gz": GZIP + gzip.compress(b"3,z\n")}, {}, {"a": [1, 2, 3]}),
    "frames of zstd": ({"1.csv.zst": ZSTD + MORE_ZSTD}, {}, {"b": ["x", "y", "z"]}),
    "a row longer than a range": (
        {"1.csv": b"a,b\n1," + b"x" * 99 + b"\n2,y\n"},
        {},
        {"a": [1, 2]},
    ),
    "carriage returns alone": ({"1.csv": b'a,b\r1,"x\ry"\r2,z'}, {}, {"b": ["x\ry", "z"]}),
    "tabs alone are a row": (
        {"1.tsv": b"a\tb\n\t\n1\tx\n"},
        {"dtypes": {"a": "Int64"}},
        {"a": [pd.NA, 1]},
    ),
    "a suffix in capital letters": ({"1.CSV.GZ": GZIP}, {}, {"a": [1, 2]}),
    "another suffix within a name": ({"1.tsv.csv": b"a,b\n1,x\n"}, {}, {"b": ["x"]}),
    "two suffixes": (
        {"1.csv": b"a;b\n1;x\n", "2.tsv": b"a;b\n2;y\n"},
        {"delimiter": ";"},
        {"b": ["x", "y"]},
    ),
    "other headers": (
        {"1.csv": b"a,b\n1,True\n", "2.csv": b"b,c\nFalse,x\n"},
        {"header": "all_files_different_headers", "columns": ("b", "c")},
        {"b": [True, False]},
    ),
    "days before months": (
        {"1.csv": b"a,b\n1,01/02/2020\n2,25/12/2020\n"},
        {"dtypes": {"b": "datetime64[ns]"}},
        {"b": [pd.Timestamp(2020, 2, 1), pd.Timestamp(2020, 12, 25)]},
    ),
    "what is not wanted": (
        {"1.csv": b"a,b\n1,2\n3,no number\n"},
        {"dtypes": {"b": "int64"}, "columns": ("a",)},
        {"a": [1, 3]},
    ),
}


@pytest.mark.parametrize("case", READ)
def test_odd_files_are_read(tmp_path: Path, case: str) -> None:
    """At a size at which every row is a mini-batch of its own."""
    files, reading, expected = READ[case]
    for name, body in files.items():
        (tmp_path / name).write_bytes(body)
    got = together(open_source(tmp_path, ReadOptions(mini_batch_size=3, **reading)))
    assert {name: list(got[name]) for name in expected} == expected
    assert len(got) == len(next(iter(expected.values()), []))


def test_files_that_stand_for_two_delimiters_are_refused(tmp_path: Path) -> None:
    """By one of them, each row of the others would be a single cell."""
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.tsv.gz").write_bytes(gzip.compress(b"a\tb\n1\t2\n"))
    said = r"mixes kinds of files: .*1\.csv' and .*2\.tsv\.gz'.* give the delimiter of all"
    with pytest.raises(InputError, match=said):
        open_source(tmp_path, ReadOptions(header="all_files_different_headers"))


def test_a_zero_keeps_its_sign_among_integers(tmp_path: Path) -> None:
    """In a column of floats, where pandas takes a piece of it for integers."""
    path = _written(tmp_path, b"a\n0.5\n-0\n1\n0\n")
    got = together(open_source(path, ReadOptions(mini_batch_size=4)))
    assert list(map(str, got["a"])) == ["0.5", "-0.0", "1.0", "0.0"]


GOOD = b"1,2\n" * 9
REFUSED: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "too few": (GOOD + b"1\n", {}, "line 11: 1 field where 2 are expected: '1'"),
    "too few, quoted": (GOOD + b'"1,1\n"\n', {}, "line 11: 1 field where 2"),
    "too many, all": (b"1,2,\n" * 3, {}, "line 2: 3 fields where 2 are expected: '1,2,'"),
    "an open quote": (GOOD + b'1,"2\n3,4\n', {}, "line 11: a quoted field .* never closed"),
    "an open quote in a line": (
        GOOD + b'1,"2',
        {"support_multi_line": False},
        "line 11: a quoted field goes on after its line",
    ),
    "True for 1": (GOOD + b"True,3\n", {"dtypes": {"a": "int64"}}, "'a' holds 'True'"),
    "a half": (GOOD + b"1.5,3\n", {"dtypes": {"a": "int64"}}, "'a' holds '1.5'"),
    "no ASCII": (GOOD + "1,é\n".encode(), {"encoding": "ascii"}, "line 11: .* not in the encoding"),
    "too large": (GOOD + b"9" * 20 + b",3\n", {"dtypes": {"a": "int64"}}, "'a' holds '9999"),
    "not exact": (GOOD + b"9007199254740993.0,3\n", {"dtypes": {"a": "int64"}}, "'a' holds '90071"),
    "no float32": (GOOD + b"1e300,3\n", {"dtypes": {"a": "float32"}}, "'a' holds '1e300'"),
    "no category": (
        GOOD + b"3,3\n",
        {"dtypes": {"a": pd.CategoricalDtype([1])}},
        "line 11: column 'a' holds '3', which does not fit category",
    ),
    "no date": (
        b"1,2020-01-02\n2,2020-13-01\n",
        {"dtypes": {"b": "datetime64[ns]"}},
        "line 3: column 'b' holds '2020-13-01'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("size", [7, 10**6])
def test_what_does_not_fit_is_refused(tmp_path: Path, case: str, size: int) -> None:
    """Never filled up with nulls, cut off, rounded, or taken for something near it."""
    body, reading, message = REFUSED[case]
    path = _written(tmp_path, b"a,b\n" + body)
    source = open_source(path, ReadOptions(mini_batch_size=size, **reading))
    with pytest.raises(LoadError, match=message):
        together(source)


UNUSABLE: dict[str, tuple[str, bytes, dict[str, Any], str]] = {
    "cut short": (".csv.gz", GZIP[:12], {}, "csv.gz: the gzip stream ends early, after 12 bytes"),
    "of no bytes": (".csv.gz", b"", {}, "csv.gz: the gzip stream ends early, after 0 bytes"),
    "of no zstd": (".csv.zst", b"", {}, "csv.zst: the zstd stream ends early, after 0 bytes"),
    "wrong checksum": (".csv.gz", GZIP[:-5] + b"\0" * 5, {}, "cannot be read beyond .*data check"),
    "no utf-8": (".csv", b"a,\xff\n", {}, "the header .* cannot be read"),
    "no utf-16": (".csv", "a\n1\n".encode("utf-16") + b"\0\xd8", {"encoding": "utf-16"}, "line 3"),
    "no ASCII": (".csv", b"a\n", {"delimiter": "§"}, "delimiter='§'"),
    "any category": (".csv", b"a\n1\n", {"dtypes": {"a": "category"}}, "Name them"),
    "no unit": (".csv", b"a\n1\n", {"dtypes": {"a": "datetime64"}}, "lacks its unit"),
    "no text": (".csv", b"a\n1\n", {"dtypes": {"a": "Sparse[int]"}}, "cannot read"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_cannot_be_read_at_all_is_refused_at_once(tmp_path: Path, case: str) -> None:
    """Before any agent starts."""
    suffix, body, reading, message = UNUSABLE[case]
    path = tmp_path / f"text{suffix}"
    path.write_bytes(body)
    with pytest.raises((InputError, OptionError), match=message):
        open_source(path, ReadOptions(**reading))


@pytest.mark.parametrize("size", [5, 10**6])
@pytest.mark.parametrize(
    "cells", [["9" * 20, "1"], ["1", "", "-" + "9" * 20], ["18446744073709551616", "007", "+3"]]
)
def test_integers_beyond_64_bits_are_objects(tmp_path: Path, cells: list[str], size: int) -> None:
    """As pandas has them, in whatever mini-batch they lie."""
    path = _written(tmp_path, "".join(f"{cell},x\n" for cell in ("a", *cells)).encode())
    got = together(open_source(path, ReadOptions(mini_batch_size=size)))
    pd.testing.assert_frame_equal(got, pd.read_csv(path))
    assert {type(cell) for cell in got["a"].dropna()} == {str if IS_PANDAS_2 else int}


@pytest.mark.parametrize("size", [5, 10**6])
@pytest.mark.parametrize(
    "cell",
    ["9007199254740993", of_pandas_3("-9223372036854775808", why="it is null beside nulls")],
)
def test_an_integer_that_would_be_rounded_beside_a_null_is_refused(
    tmp_path: Path, cell: str, size: int
) -> None:
    """With the type that holds it; Arrow and pandas would read it as the nearest float."""
    path = _written(tmp_path, f"a,b\n{cell},x\n,y\n7,z\n".encode())
    with pytest.raises(LoadError, match=f"line 2: column 'a' holds '{cell}'.*'Int64'"):
        together(open_source(path, ReadOptions(mini_batch_size=size)))
    got = together(open_source(path, ReadOptions(mini_batch_size=size, dtypes={"a": "Int64"})))
    assert list(got["a"]) == [int(cell), pd.NA, 7]


@pytest.mark.parametrize(
    ("dtype", "cell"),
    [
        ("int8", "300"),
        ("uint32", "-1"),
        ("int64", "9223372036854775808"),
        ("uint64", "-1"),
        ("Int16", "70000"),
        ("UInt64", "-1"),
        ("Int8", "1e3"),
        ("Int8", "1.5"),
    ],
)
def test_an_integer_that_its_type_does_not_hold_is_refused(
    tmp_path: Path, dtype: str, cell: str
) -> None:
    """What is left of its bits would be another number."""
    reading = ReadOptions(mini_batch_size=10**6, dtypes={"a": dtype})
    rows = [f"{row},y\n" for row in range(100)]
    path = _written(tmp_path, f"a,b\n{''.join(rows)}".encode())
    got = together(open_source(path, reading))
    assert got["a"].dtype == dtype
    assert got["a"].tolist() == [*range(100)]
    path = _written(tmp_path, f"a,b\n{''.join(rows)}{cell},x\n".encode())
    with pytest.raises(LoadError, match=rf"line 102: column 'a' holds '{cell}'"):
        together(open_source(path, reading))


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]"])
def test_a_large_integer_of_a_given_type_is_exact_beside_nulls(tmp_path: Path, dtype: str) -> None:
    """And so are nulls alone."""
    path = _written(tmp_path, b"a,b\n9007199254740993,x\n,y\n,z\n")
    for size in (5, 10**6):
        got = together(open_source(path, ReadOptions(mini_batch_size=size, dtypes={"a": dtype})))
        assert got["a"].dtype == dtype
        assert got["a"].tolist() == [9007199254740993, pd.NA, pd.NA]


@pytest.mark.parametrize("size", [5, 10**6])
@pytest.mark.parametrize(
    "cells",
    [
        ["9007199254740992", ""],
        ["9007199254740993", "", "1.5"],
        ["9007199254740993.0", "", "1"],
        ["1e300", "", "1"],
        ["9007199254740993", "7"],
    ],
)
def test_other_large_numbers_are_read_as_pandas_reads_them(
    tmp_path: Path, cells: list[str], size: int
) -> None:
    """Integers that floats hold or no null stands beside, and columns with other numbers."""
    path = _written(tmp_path, "".join(f"{cell},x\n" for cell in ("a", *cells)).encode())
    got = together(open_source(path, ReadOptions(mini_batch_size=size)))
    pd.testing.assert_frame_equal(got, pd.read_csv(path, **ROUND_TRIP), check_exact=True)


@pytest.mark.parametrize("dtype", ["float64", "Float64", "double[pyarrow]"])
def test_a_float_in_dtypes_is_the_nearest_to_its_text(tmp_path: Path, dtype: str) -> None:
    """Whatever stands beside it in its mini-batch."""
    path = _written(tmp_path, b"a,b\n9007199254740993,x\n1.5,y\n")
    for size in (5, 10**6):
        got = together(open_source(path, ReadOptions(mini_batch_size=size, dtypes={"a": dtype})))
        assert got["a"].dtype == dtype
        assert got["a"].tolist() == [2.0**53, 1.5]


def test_an_integer_beside_a_file_without_its_column_is_not_rounded(tmp_path: Path) -> None:
    """The rows of that file are null in the column."""
    (tmp_path / "1.csv").write_text("a,b\n9007199254740993,1\n")
    (tmp_path / "2.csv").write_text("b\n2\n")
    reading = ReadOptions(header="all_files_different_headers")
    with pytest.raises(LoadError, match=r"1\.csv, line 2: .*'Int64'"):
        together(open_source(str(tmp_path), reading))


@pytest.mark.parametrize("cell", mostly_long([b"1_0", b"1.5", b"x"], suite=[b"1_0"]))
@pytest.mark.skipif(IS_PANDAS_2, reason="pandas 2: such integers are text, as is any other cell")
def test_what_is_no_integer_among_those_beyond_64_bits_is_named(
    tmp_path: Path, cell: bytes
) -> None:
    """Beyond the samples; Python's own way of writing integers is none of pandas'."""
    rows = b"9" * 20 + b",x\n"
    path = _written(tmp_path, b"")
    path.write_bytes(b"a,b\n" + rows * 90_000 + cell.ljust(20) + b",x\n" + rows * 209_999)
    source = open_source(path, ReadOptions())
    with pytest.raises(LoadError, match=r"line 90002: column 'a' holds .* of any size"):
        together(source)


LINES = [b"%d,%d\n" % (number, number * 7919 % 10007) for number in range(300)]


def zipped(**members: bytes) -> bytes:
    """Return an archive."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return body.getvalue()


PACKED = {
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zip": lambda body: zipped(table=body),
    ".zst": lambda body: bytes(pa.compress(body, codec="zstd", asbytes=True)),
}


@pytest.mark.parametrize("suffix", PACKED)
def test_compressed_text_is_read_where_python_can(tmp_path: Path, suffix: str) -> None:
    """By the suffix behind that of the table."""
    frame = pd.DataFrame({"a": range(9_000), "b": "text"})
    body = frame.to_csv(index=False).encode()
    (tmp_path / f"1.csv{suffix}").write_bytes(PACKED[suffix](body))
    source = open_source(str(tmp_path), ReadOptions(mini_batch_size="2 KB"))
    assert len([*source.mini_batches()]) > 40
    pd.testing.assert_frame_equal(together(source), pd.read_csv(io.BytesIO(body)))


@pytest.mark.parametrize("between", [b"", bytes(4), bytes(8)])
def test_all_streams_of_an_xz_file_are_read(tmp_path: Path, between: bytes) -> None:
    """The format allows padding between streams and at the end."""
    body = lzma.compress(b"a\n1\n") + between + lzma.compress(b"2\n3\n") + between
    (tmp_path / "1.csv.xz").write_bytes(body)
    read = together(open_source(str(tmp_path), ReadOptions()))
    assert read["a"].tolist() == [1, 2, 3]


def test_a_zst_file_may_begin_with_a_frame_to_be_skipped(tmp_path: Path) -> None:
    """Programs that compress with several threads write one."""
    packed = bytes(pa.compress(b"a\n1\n", codec="zstd", asbytes=True))
    (tmp_path / "1.csv.zst").write_bytes(b"\x50\x2a\x4d\x18\x04\0\0\0size" + packed)
    assert together(open_source(str(tmp_path), ReadOptions()))["a"].tolist() == [1]


OTHERWISE = {
    "xz with rubbish behind it": (
        "1.csv.xz",
        lzma.compress(b"a\n1\n") + b"AAAA" + lzma.compress(b"2\n"),
        "cannot be read beyond byte 4",
    ),
    "xz with two zeros behind it": (
        "1.csv.xz",
        lzma.compress(b"a\n1\n") + bytes(2),
        "2 zeros stand behind a stream",
    ),
    "gzip without its suffix": ("1.csv", GZIP, "compressed, as .gz files are"),
    "bzip2 without its suffix": ("1.csv", bz2.compress(b"a\n1\n"), "compressed, as .bz2 files"),
    "no gzip": ("1.csv.gz", b"a,b\n1,x\n", r"begins with b'a,b\\n1,x\\n', and not as .gz files do"),
    "zip as gzip": ("1.csv.gz", zipped(a=b"a\n"), "begins as .zip files do, and not as .gz"),
    "an archive of two": ("1.csv.zip", zipped(a=b"a\n", b=b"b\n"), "has one file in it, and this"),
    "half an archive": ("1.csv.zip", zipped(a=b"a\n")[:40], "cannot be read beyond byte 0"),
    "xz cut short": ("1.csv.xz", lzma.compress(b"a,b\n" * 9)[:40], "the xz stream ends early"),
    "UTF-16": ("1.csv", "a,b\n1,2\n".encode("utf-16"), "UTF-16. Say encoding='utf-16'"),
    "UTF-32": ("1.csv", "a,b\n1,2\n".encode("utf-32"), "UTF-32. Say encoding=.utf-32"),
    "UTF-16 without a mark": ("1.csv", "a,b\n1,2\n".encode("utf-16-le"), "encoding='utf-16'"),
    "JSON in UTF-16": ("1.jsonl", '{"a": 1}\n'.encode("utf-16"), "encoding='utf-16'"),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_text_that_is_something_else_is_named(tmp_path: Path, case: str) -> None:
    """The message says what it is, and what to do."""
    name, body, message = OTHERWISE[case]
    (tmp_path / name).write_bytes(body)
    with pytest.raises((InputError, LoadError), match=message):
        together(open_source(str(tmp_path), ReadOptions()))


def test_a_name_of_a_column_may_begin_as_a_packed_file_does(tmp_path: Path) -> None:
    """Letters alone are no sign."""
    (tmp_path / "1.csv").write_text("BZhour,PAR1\n1,2\n")
    assert list(together(open_source(str(tmp_path), ReadOptions()))) == ["BZhour", "PAR1"]


@pytest.mark.parametrize(
    ("ends", "encoding", "suffix"),
    mostly_long(
        itertools.product([".csv", ".jsonl"], ["utf-8", "utf-16"], [".gz", ".zst"]),
        suite=[(".csv", "utf-8", ".gz"), (".jsonl", "utf-16", ".zst")],
    ),
)
def test_a_stream_that_is_cut_short_is_good_up_to_its_last_mini_batch(
    tmp_path: Path, suffix: str, encoding: str, ends: str
) -> None:
    """Wherever it ends: all mini-batches before it are those of the whole file."""
    lines = (
        [b"a,b\n", *LINES]
        if ends == ".csv"
        else [b'{"a": %s, "b": %s}\n' % tuple(line.strip().split(b",")) for line in LINES]
    )
    text = b"".join(lines).decode().encode(encoding)
    other = tmp_path / f"a{ends}"
    other.write_bytes(b"".join(lines).decode().encode(encoding))
    path = tmp_path / f"b{ends}{suffix}"
    reading = ReadOptions(mini_batch_size=200, encoding=encoding)

    def plan(compressed: bytes) -> tuple[list[Any], Any]:
        path.write_bytes(compressed)
        source = open_source([other, path], reading)
        pieces = [one for one in source.mini_batches() if source.where(one).paths == (str(path),)]
        return pieces, source.reader()

    compressed = _compressed(text, suffix)
    whole, reader = plan(compressed)
    rows = [reader.load(one) for one in whole]
    reader.close()
    seen = set()
    for length in range(0, len(compressed), max(1, len(compressed) // 40)):
        (*good, last), reader = plan(compressed[:length])
        seen.add(len(good))
        assert [one.piece for one in good] == [one.piece for one in whole[: len(good)]]
        for one, frame in zip(good, rows, strict=False):
            pd.testing.assert_frame_equal(reader.load(one), frame)
        with pytest.raises(LoadError, match=rf"b{ends}{suffix}, line \d+: the .* after {length} b"):
            reader.load(last)
        reader.close()
    assert suffix == ".zst" or len(seen) > 5


def _compressed(body: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(body)
    packed: bytes = pa.Codec("zstd").compress(body, asbytes=True)
    return packed


def test_an_integer_beyond_the_samples_that_does_not_fit_is_named(tmp_path: Path) -> None:
    """One schema for the whole input: later rows do not change it."""
    path = _written(tmp_path, b"a,b\n" + b"1,2\n" * 1_400_000 + b"1.5,2\n" + b"1,2\n" * 1_400_000)
    source = open_source(path, ReadOptions())
    reader = source.reader()
    piece = next(one for one in source.mini_batches() if one.piece[2] > 5_600_004)
    with pytest.raises(
        LoadError, match=r"line 1400002: column 'a' holds '1.5', which does not fit"
    ) as caught:
        reader.load(piece)
    assert "say dtypes={'a': ...} (--dtype a=TYPE on the command line)" in str(caught.value)
    reader.close()


@pytest.mark.parametrize(
    ("ends", "other"), [(".csv", b"1.5,2\n"), (".jsonl", b'{"a": 1.5, "b": 2}\n')]
)
def test_compressed_text_is_sampled_as_plain_text_is(
    tmp_path: Path, ends: str, other: bytes
) -> None:
    """All files of a small input are samples as a whole: the size of their text counts."""
    head, line = (b"a,b\n", b"1,2\n") if ends == ".csv" else (b"", b'{"a": 1, "b": 2}\n')
    for place in range(10):
        body = head + line * 20_000 + (other if place == 6 else b"")
        (tmp_path / f"{place}{ends}.gz").write_bytes(gzip.compress(body))
    one = open_source(str(tmp_path / f"6{ends}.gz"), ReadOptions())
    assert list(one.meta().dtypes) == ["float64", "int64"]
    several = open_source(str(tmp_path), ReadOptions())
    assert list(several.meta().dtypes) == ["float64", "int64"]


def test_as_many_bytes_of_a_large_compressed_file_are_sampled(tmp_path: Path) -> None:
    """They lie at its beginning, since its end costs all that is before."""
    body = b"a,b\n" + b"1,2\n" * 150_000 + b"1.5,2\n" + b"1,2\n" * 1_400_000
    (tmp_path / "1.csv.gz").write_bytes(gzip.compress(body))
    source = open_source(str(tmp_path), ReadOptions())
    assert list(source.meta().dtypes) == ["float64", "int64"]


def test_a_reader_travels_and_keeps_little(tmp_path: Path) -> None:
    """A range at the end of a large file costs the memory of a few ranges."""
    path = _written(tmp_path, b"a,b\n" + b'1,"x\ny"\n' * 3_000_000)
    source = open_source(path, ReadOptions(mini_batch_size="64 KB"))
    *_, last = source.mini_batches()
    reader = pickle.loads(pickle.dumps(source.reader()))
    tracemalloc.start()
    frame = reader.load(last)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    reader.close()
    assert set(frame["b"]) == {"x\ny"}
    assert peak < 12 << 20


def test_every_word_for_null_is_looked_for() -> None:
    """Text without a certain letter is read without them."""
    assert all(may_hold_nulls(word.encode()) for word in WORDS_FOR_NULL if word not in EMPTY)
