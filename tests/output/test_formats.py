"""What `run` returns, as text."""

from __future__ import annotations

import io
import zlib
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.support.polars_threads  # noqa: F401
from daskprs._output.rows.format_result import of_arrays
from daskprs._output.rows.result_tables import as_rows, one_frame, tables_of
from daskprs._output.rows.typed_rows import UNKNOWN, decode
from daskprs._output.spec import OutputSpec, SpoolSpec
from daskprs._output.spool import WRITE_BYTES, AgentSpool
from daskprs._system.seal import NO_KEY, Seal
from daskprs.errors import ReturnTypeError
from tests.support.formatted import format_result
from tests.support.frames_of_all_kinds import TEXTS, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPEC = OutputSpec(text=True, typed=False)
BOTH = OutputSpec(text=True, typed=True)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[AgentSpool]:
    """Yield the spool of an agent."""
    one = AgentSpool(SpoolSpec("agent", f"{tmp_path}/text", f"{tmp_path}/typed", synced=False))
    yield one
    one.forget()


def text_of(result: Any, **spec: Any) -> str:
    """Return the text of a small result."""
    rows = format_result(result, SPEC._replace(**spec))
    assert rows.text == (len(rows.payload), zlib.crc32(rows.payload), None)
    return rows.payload.decode()


def csv_of(frame: pd.DataFrame, separator: str = " ", *, header: bool = False) -> str:
    """Return what pandas writes."""
    return frame.to_csv(sep=separator, header=header, index=False, lineterminator="\n")


# ---- frames ----


@given(frame=frames(), separator=st.sampled_from(" ,;\t|"))
def test_a_frame_is_written_as_by_to_csv(frame: pd.DataFrame, separator: str) -> None:
    """Byte for byte, for every type, name and separator; the header apart."""
    rows = format_result(frame, SPEC._replace(header=True, separator=separator))
    assert rows.payload.decode() == csv_of(frame, separator)
    if len(frame):
        assert f"{rows.header}{csv_of(frame, separator)}" == csv_of(frame, separator, header=True)
    assert rows.succeeded == len(frame)


def test_a_frame_is_cut_where_pandas_cuts_it() -> None:
    """A date without a time is written so if its whole piece is midnights: a piece is pandas'."""
    dates = pd.Series(pd.date_range("1900-01-01", periods=120_000, freq="D", unit="s"))
    dates.iloc[110_000] += pd.Timedelta("1h")
    frame = pd.DataFrame({"date": dates, "n": range(120_000)})
    assert text_of(frame) == csv_of(frame)
    table = pa.Table.from_pandas(frame)
    assert text_of(table) == csv_of(frame)


def test_a_series_is_a_frame_of_one_column() -> None:
    """Nulls are quoted, as pandas writes them where a line would be empty."""
    series = pd.Series([1.5, None], name="x")
    assert text_of(series) == csv_of(series.to_frame()) == '1.5\n""\n'


SERIES_OF: dict[str, Callable[[str, list[int]], Any]] = {
    "pandas": lambda name, values: pd.Series(values, name=name),
    "polars": pl.Series,
}


@pytest.mark.parametrize("library", SERIES_OF)
def test_the_name_of_a_series_does_not_matter_without_a_header(library: str) -> None:
    """It is often a row's label or a key, as of ``rows.loc[3]``; with a header it is written."""
    two = [SERIES_OF[library]("a", [1]), SERIES_OF[library]("b", [2])]
    assert text_of(series for series in two) == "1\n2\n"
    with pytest.raises(ReturnTypeError, match="columns: 'a' and 'b'"):
        text_of((series for series in two), header=True)


@pytest.mark.parametrize("library", SERIES_OF)
def test_a_series_has_the_column_of_any_frame_of_one_column_without_a_header(library: str) -> None:
    """Two such frames have different columns, though, and so has a frame of two."""
    one, a, b = (SERIES_OF[library](name, [1]) for name in "nab")
    frames = [a.to_frame(), b.to_frame()]
    assert text_of(some for some in [one, frames[0], one]) == "1\n1\n1\n"
    with pytest.raises(ReturnTypeError, match="columns: 'a' and 'b'"):
        text_of(some for some in [one, *frames])
    wide = pd.DataFrame({"a": [1], "b": [2]})
    with pytest.raises(ReturnTypeError, match="columns: a Series and 'a b'"):
        text_of(some for some in [one, wide])


def test_integers_beside_nulls_stay_integers_in_an_arrow_table() -> None:
    """As floats, large ones would become others."""
    table = pa.table({"n": [2**60 + 1, None, 3], "b": [True, None, False]})
    assert text_of(table) == f"{2**60 + 1} True\n \n3 False\n"


class Exporter:
    """Rows of a library that nobody has heard of."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        """Export the rows."""
        return self._table.__arrow_c_stream__(schema)


FROM_TABLE: dict[str, Callable[[pa.Table], Any]] = {
    "a frame of polars": pl.from_arrow,
    "a generator of such frames": lambda table: (one for one in [pl.from_arrow(table)]),
    "a stream of batches": lambda table: table.to_reader(),
    "an object that exports a stream": Exporter,
}


@pytest.mark.parametrize("kind", FROM_TABLE)
@pytest.mark.parametrize("rows", [0, 3])
def test_frames_of_arrow_are_written_as_its_tables_are(kind: str, rows: int) -> None:
    """Text, header and count, with large integers beside nulls; typed rows keep their own types."""
    table = pa.table(
        {
            "n": pa.array([2**60 + 1, None, 3][:rows], pa.int64()),
            "text": pa.array(["x y", None, "z"][:rows], pa.string()),
            "at": pa.array([1, None, 2][:rows], pa.timestamp("us")),
        }
    )
    spec = OutputSpec(text=True, typed=False, header=True)
    got, wanted = format_result(FROM_TABLE[kind](table), spec), format_result(table, spec)
    if rows or not kind.startswith("a stream"):  # which has no batch at all
        assert got[:4] == wanted[:4]
        assert got.payload == wanted.payload


def test_views_of_lists_are_written_where_they_are_a_slice() -> None:
    """Of which Arrow itself makes null after null."""
    table = pa.table({"a": pa.array([[1], None, [2], [3]], pa.list_view(pa.int64()))})
    assert text_of(table.slice(1)) == '""\n[2]\n[3]\n'


def test_a_series_of_polars_is_a_frame_of_one_column() -> None:
    """As one of pandas is."""
    assert text_of(pl.Series("n", [1, 2])) == "1\n2\n"


def test_a_dict_of_arrays_is_a_frame() -> None:
    """Of one column for each; an array of two dimensions has an array in each cell."""
    arrays = {
        "n": np.array([1, 2]),
        "pair": np.array([[1, 2], [3, 4]]),
        "text": np.array(["a", "b"]),
    }
    rows = format_result(arrays, SPEC._replace(header=True))
    assert rows.payload.decode() == "1 [1 2] a\n2 [3 4] b\n".replace("[1 2]", '"[1 2]"').replace(
        "[3 4]", '"[3 4]"'
    )
    assert (rows.header, rows.succeeded) == ("n pair text\n", 2)


INDEX = pd.Index([1, 2], name="n")


@pytest.mark.parametrize(
    "column",
    [
        *(pa.array([1, 2]), pa.chunked_array([[1], [2]]), pd.array([1, 2]), INDEX, range(1, 3)),
        *({1: "a", 2: "b"}.keys(), {"a": 1, "b": 2}.values()),
    ],
    ids=lambda column: type(column).__name__,
)
def test_what_is_as_plainly_a_column_as_a_series_is_written(column: Any) -> None:
    """Under the name that elements of lists have."""
    made = format_result(as_rows(column), SPEC._replace(header=True, tabular=True, separator=","))
    assert (made.payload, made.header, made.succeeded) == (b"1\n2\n", "result\n", 2)


def test_what_is_masked_is_null() -> None:
    """In an array of one dimension or two, and in a dict; integers stay integers."""
    large = 2**60 + 1
    array = np.ma.array([large, 7], mask=[False, True])
    assert as_rows(array) == [large, None]
    pairs = np.ma.array([[large, 2], [3, 4]], mask=[[False, True], [False, False]])
    assert as_rows(pairs).astype(object).to_numpy().tolist() == [[large, pd.NA], [3, 4]]
    assert of_arrays({"x": array})["x"].tolist() == [large, pd.NA]
    flags = np.ma.array([True, False], mask=[False, True])
    assert of_arrays({"x": flags})["x"].tolist() == [True, pd.NA]


class Tensor:
    """Another package's array."""

    def __array__(self) -> np.ndarray[Any, Any]:
        return np.array([1])

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize("values", [[1], Tensor()])
def test_a_dict_of_lists_is_refused_with_what_to_make_of_it(values: Any) -> None:
    """A dict of arrays is a frame, and one of anything else is often a mistake."""
    with pytest.raises(ReturnTypeError, match=r"returned a dict\. .* Make arrays of its values"):
        format_result({"a": values}, SPEC)


def test_a_tensor_is_refused_with_what_to_make_of_it() -> None:
    """A number has no rows, though one of NumPy could be made an array."""
    with pytest.raises(ReturnTypeError, match=r"Tensor\. .* by numpy\.asarray\."):
        format_result(Tensor(), SPEC)
    with pytest.raises(ReturnTypeError, match=r"or lines\.$"):
        format_result(np.float32(1), SPEC)


def test_arrays_of_different_lengths_are_refused() -> None:
    """With the length of each."""
    with pytest.raises(ReturnTypeError, match=r"different lengths \('a': 1, 'b': 2\)"):
        format_result({"a": np.array([1]), "b": np.array([1, 2])}, SPEC)


def test_record_batches_are_blocks_of_rows() -> None:
    """Their rows are counted, one by one or from a generator."""
    batch = pa.record_batch({"n": [1, 2]})
    rows = format_result((batch for _ in range(3)), SPEC)
    assert (rows.succeeded, rows.payload) == (6, b"1\n2\n" * 3)
    assert text_of(batch) == "1\n2\n"


@pytest.mark.parametrize("dtype", [pl.Object, pl.Int128])
def test_frames_of_polars_that_arrow_cannot_hold_are_refused(dtype: pl.DataType) -> None:
    """Of objects, polars gives Arrow the addresses."""
    frame = pl.DataFrame({"a": [1], "b": pl.Series([1], dtype=dtype)})
    with pytest.raises(ReturnTypeError, match=f"column 'b' is {dtype}, which Arrow cannot hold"):
        format_result(frame, SPEC)


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("other", [["b", "a"], ["a", "c"], ["a"]])
def test_a_generator_whose_frames_have_different_columns_is_refused(
    other: list[str], *, header: bool
) -> None:
    """With and without a header: the lines would mix the values of two columns."""
    two = [pd.DataFrame({"a": [1], "b": [2]}), pd.DataFrame({name: [3] for name in other})]
    with pytest.raises(ReturnTypeError, match=f"columns: 'a b' and '{' '.join(other)}'. Return"):
        text_of((frame for frame in two), header=header)


def test_a_frame_without_rows_may_have_any_columns() -> None:
    """It has no line that could be wrong, before or after frames with rows."""
    frames = [pd.DataFrame(), pd.DataFrame({"a": [1]}), pd.DataFrame({"b": []})]
    rows = format_result((frame for frame in frames), SPEC)
    assert (rows.payload, rows.header) == (b"1\n", "a\n")
    assert format_result(frames[0], SPEC).header is None


def test_a_name_that_is_not_text_does_not_matter_without_a_header() -> None:
    """It is not written: only a header with it cannot be UTF-8."""
    frame = pd.DataFrame([[1]], columns=pd.Index(["\udc80"], dtype=object))
    rows = format_result(frame, SPEC)
    assert (rows.payload, rows.header) == (b"1\n", "\\udc80\n")
    with pytest.raises(ReturnTypeError, match="cannot be written as UTF-8"):
        format_result(frame, SPEC._replace(header=True))


def test_many_columns_are_shown_from_the_first_that_differs() -> None:
    """A message with all of ten thousand names would hide the one that matters."""
    names = [f"column{number}" for number in range(10_000)]
    one = pd.DataFrame([range(10_000)], columns=names)
    other = one.rename(columns={"column7000": "seventh"})
    with pytest.raises(ReturnTypeError) as refused:
        text_of(frame for frame in (one, other))
    assert " column7000 column7001" in str(refused.value)
    assert " seventh column7001" in str(refused.value)
    assert len(str(refused.value)) < 1_000


# ---- lists, tuples, arrays, generators ----


@given(elements=st.lists(st.integers() | st.floats() | TEXTS | st.none() | st.tuples(TEXTS)))
@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_each_element_is_a_line(kind: Any, elements: list[Any]) -> None:
    """It is ``str(element)``, and each counts as one."""
    rows = format_result(kind(elements), SPEC)
    assert rows.payload.decode() == "".join(f"{element!s}\n" for element in elements)
    assert rows.succeeded == len(elements)


def test_arrays_in_elements_are_written_in_full() -> None:
    """Neither shortened nor wrapped, inside a tuple or a dict too; the script's options stay."""
    numbers = np.arange(3000)
    line = f"[{' '.join(f'{number:4d}' for number in numbers)}]\n"
    assert text_of([numbers]) == line
    assert text_of([("a", numbers)]).count("\n") == 1
    assert "..." not in text_of([{"a": numbers}])
    assert text_of(str(array) for array in [numbers]) == str(numbers) + "\n"


@pytest.mark.parametrize(
    "kind", ["f8", "f4", "f2", ">f8", "longdouble", "i2", "u8", "?", "c8", "U5"]
)
@pytest.mark.parametrize("rows", [3, 100])
def test_each_number_of_an_array_is_a_line(kind: str, rows: int) -> None:
    """It is ``str(number)``, NaN included, whether they are few or many."""
    numbers = np.resize([0.1, 1e-7, 0, -0.0, 3e4, np.nan, np.inf], rows)
    array = (numbers if np.dtype(kind).kind in "fcU" else np.arange(rows)).astype(kind)
    assert text_of(array) == "".join(f"{number!s}\n" for number in array)


@given(elements=st.lists(st.sampled_from([1, "a", 0.5, None, (1,), np.float32(0.1), np.arange(3)])))
def test_a_long_list_has_its_lines_in_order(elements: list[Any]) -> None:
    """Longer than what becomes lines at once, with any mixture of types."""
    many = elements * 40
    assert text_of(many) == "".join(f"{element!s}\n" for element in many)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([1.5, 2, np.nan]), "1.5\n2.0\nnan\n"),
        (np.array([0.1], dtype="float32"), "0.1\n"),
        (np.array(["x", "yz"]), "x\nyz\n"),
        (np.array([{"a": 1}, None], dtype=object), "{'a': 1}\nNone\n"),
        (np.array(["2020-01-02"], dtype="datetime64[D]"), "2020-01-02\n"),
        (np.array([(1, 2.5)], dtype=[("a", int), ("b", float)]), "(1, 2.5)\n"),
        (np.ma.masked_array([1, 2], [False, True]), "1\n--\n"),
        (np.array([[1, 2], [3, 4]]), "1 2\n3 4\n"),
        (np.zeros((0, 3)), ""),
        (np.array([]), ""),
    ],
)
def test_an_array_has_a_line_for_each_element_or_row(array: Any, text: str) -> None:
    """One dimension as a list, two as a frame."""
    assert text_of(array) == text
    assert format_result(array, SPEC).succeeded == len(array)


def test_a_generator_may_mix_frames_and_lines() -> None:
    """They stand in the order in which they came."""

    def rows() -> Iterator[Any]:
        yield "first"
        yield pd.DataFrame({"a": [1, 2]})
        yield "last"

    rows_of_it = format_result(rows(), SPEC)
    assert (rows_of_it.payload, rows_of_it.succeeded) == (b"first\n1\n2\nlast\n", 4)


def test_what_a_generator_raises_passes_through(spool: AgentSpool) -> None:
    """It is the script's own error; what was put into the spool until then is taken back."""

    def rows() -> Iterator[str]:
        yield "x" * (WRITE_BYTES + 1)
        assert spool.text.end > WRITE_BYTES
        yield "y"
        raise KeyError("the script's")

    format_result(["before"], BOTH, spool)
    ends = spool.text.end, spool.typed.end
    with pytest.raises(KeyError, match="the script's"):
        format_result(rows(), BOTH, spool)
    assert (spool.text.end, spool.typed.end) == ends


# ---- what is refused ----


@pytest.mark.parametrize(
    "result",
    ["text", b"bytes", {"a": 1}, {1}, 1, 2.5, True, object(), pd.Index([1]), pa.array([1]), len],
)
def test_other_types_are_refused_with_what_is_allowed(result: Any) -> None:
    """The error names the type with its package, and all that may be returned."""
    package = type(result).__module__.partition(".")[0]
    name = type(result).__name__ if package == "builtins" else f"{package}.{type(result).__name__}"
    shown = f", {result!r}" if isinstance(result, str) else ""
    with pytest.raises(
        ReturnTypeError, match=rf"returned a {name}{shown}\. Return a pandas or polars"
    ):
        format_result(result, SPEC)


def test_a_frame_of_another_package_is_named_with_the_package() -> None:
    """Several packages have a DataFrame; the next step is to convert the frame."""
    modin = type("DataFrame", (), {"__module__": "modin.pandas.dataframe", "to_pandas": len})()
    with pytest.raises(ReturnTypeError, match=r"returned a modin\.DataFrame\. .*its to_pandas\(\)"):
        format_result(modin, SPEC)


def test_a_lazy_frame_is_refused_with_what_computes_it() -> None:
    """Its computing belongs into `run`, where time and failures count."""
    with pytest.raises(ReturnTypeError, match=r"returned a polars\.LazyFrame\. .*its collect\(\)"):
        format_result(pl.LazyFrame({"a": [1]}), SPEC)


def test_an_open_file_is_refused() -> None:
    """It would be an iterator of lines with their line breaks."""
    with (
        Path(__file__).open(encoding="utf-8") as file,
        pytest.raises(ReturnTypeError, match="TextIOWrapper"),
    ):
        format_result(file, SPEC)


@pytest.mark.parametrize("element", [pd.DataFrame(), pd.Series(dtype=float), pa.table({})])
def test_a_frame_in_a_list_is_refused_with_advice(element: Any) -> None:
    """A list of rows from `iterrows` is the likely case."""
    with pytest.raises(ReturnTypeError, match=r"Put frames together with pandas.concat, or yield"):
        format_result(["a", element], SPEC)


@pytest.mark.parametrize("shape", [(), (1, 1, 1)])
def test_arrays_of_other_dimensions_are_refused(shape: tuple[int, ...]) -> None:
    """Neither a number nor a cube has rows."""
    with pytest.raises(ReturnTypeError, match=f"an array of {len(shape)} dimensions"):
        format_result(np.zeros(shape), SPEC)


@pytest.mark.parametrize("kind", [list, lambda cells: pd.DataFrame({"a": cells}, dtype=object)])
def test_text_that_is_not_utf8_is_refused(kind: Any) -> None:
    """Half a surrogate pair cannot be written; a retry would not mend it."""
    result = kind(["fine", "\ud800"])
    with pytest.raises(ReturnTypeError, match="cannot be written as UTF-8"):
        format_result(result, SPEC)


# ---- where rows are put ----


def test_in_a_spool_are_the_same_bytes(spool: AgentSpool, tmp_path: Path) -> None:
    """Text and typed rows go into a file each, behind what is there; nothing travels."""
    texts = [f"some text to make row {row} longer" for row in range(300_000)]
    frame = pd.DataFrame({"n": range(300_000), "text": texts})
    first = format_result(["first"], BOTH, spool)
    rows = format_result(frame, BOTH, spool)
    spool.flush()
    assert (first.payload, rows.payload) == (b"", b"")
    assert first.text == (6, zlib.crc32(b"first\n"), 0)
    written = (tmp_path / "text").read_bytes()[6:]
    assert written.decode() == csv_of(frame)
    assert rows.text == (len(written), zlib.crc32(written), 6)
    assert rows.typed.offset == first.typed.length
    assert rows.typed.offset + rows.typed.length == (tmp_path / "typed").stat().st_size


def test_only_what_is_wanted_is_made() -> None:
    """For summary_only the rows are counted, and nothing is kept."""
    nothing = OutputSpec(text=False, typed=False)
    assert format_result(["a", "b"], nothing) == (2, None, None, None, b"")
    stamp = [datetime(2020, 1, 1)]  # noqa: DTZ001 - as scripts make them
    assert format_result(iter(stamp), nothing).succeeded == 1


# ---- tables whose notes name an index ----

NOTED = pa.Table.from_pandas(
    pd.DataFrame({"id": ["a", "b"], "n": [1, 2]}, index=[5, 6]).set_index("id", append=True)
)
"""A table in whose notes the column `id` is an index of pandas, beside one without a name."""
KINDS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "batch": lambda table: table.to_batches()[0],
    "stream": lambda table: table.to_reader(),
    "pieces": lambda table: iter([table]),
}


@pytest.mark.parametrize("schema", [None, '{"n": "int64", "id": "large_string"}'])
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_is_kept_though_notes_call_it_an_index(kind: str, schema: str | None) -> None:
    """As text, with types and in a data set; only an index without a name is left out."""
    made = {
        form: format_result(
            KINDS[kind](NOTED),
            OutputSpec(text=form != "typed", typed=form == "typed", format=format_, schema=schema),
        ).payload
        for form, format_ in [("text", "text"), ("typed", "text"), ("data set", "parquet")]
    }
    assert made["text"] == b"1 a\n2 b\n"
    (piece,) = decode(io.BytesIO(made["typed"]), len(made["typed"]), Seal(NO_KEY))
    (table,) = tables_of([piece], 0)
    frame = one_frame([(0, piece)])
    with pa.ipc.open_stream(made["data set"]) as stream:
        whole = stream.read_all()
    for one in (table, frame, whole):
        assert one is not None
        assert list(getattr(one, "column_names", one.columns)) == ["n", "id"]
        assert list(map(str, one["id"])) == ["a", "b"]


def test_the_labels_of_rows_come_from_the_index_without_a_name_alone() -> None:
    """A named index beside it says nothing of rows, and is not lost."""
    frame = pd.DataFrame({"n": [9, 2, 4], "x": 1}, index=[5, 7, 6])
    numbers = []
    for one in (frame, frame.set_index("n"), frame.rename_axis("k")):
        rows = format_result(pa.Table.from_pandas(one), BOTH._replace(text=False)).payload
        numbers += [piece.numbers for piece in decode(io.BytesIO(rows), len(rows), Seal(NO_KEY))]
    assert list(numbers[0]) == [5, 7, 6]
    assert numbers[1:] == [UNKNOWN, UNKNOWN]
