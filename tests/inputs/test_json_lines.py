"""JSON lines: read all at once where nothing is odd, and line by line where something is."""

from __future__ import annotations

import json
import os
import pickle
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from daskprs._inputs.text.json_lines import clean_rows, parsed
from daskprs.errors import LoadError, OptionError
from tests.support.put_together import together

if TYPE_CHECKING:
    from pathlib import Path

VALUES = st.one_of(st.integers(), st.text(max_size=3), st.none(), st.lists(st.booleans()))
OBJECTS = st.dictionaries(st.sampled_from(["a", "b"]), VALUES).map(json.dumps)
ODD = st.sampled_from(
    [
        *("", " ", "{", '{"a":1},{"b":2}', '{"a":1', '"b":2}', "[]", "1", '{"c":1}', " {} "),
        *("\x0b{}", "\ufeff{}", "{}\r", "\x0c", '{"a":1,"a":2}'),
        *('{"a":"\\ud800"}', '{"a":"\\uD83D\\uDE00"}'),
    ]
)


@given(lines=st.lists(st.one_of(OBJECTS, ODD), max_size=5))
def test_all_lines_at_once_are_what_each_is(lines: list[str]) -> None:
    """Or, where one is odd, it is left to who looks at each."""
    body = "\n".join(lines).encode()
    rows = clean_rows(body, "utf-8", {"a", "b"})
    if rows is not None:
        assert rows == [parsed(line, "utf-8") for line in body.split(b"\n") if line.strip()]


def test_a_clean_body_is_read_at_once() -> None:
    """It is what makes reading fast."""
    assert clean_rows(b'{"a": 1}\r\n\n{"b": "\xc3\xa9"}', "utf-8", {"a", "b"}) == [
        {"a": 1},
        {"b": "é"},
    ]


REFUSED: dict[str, tuple[bytes, str]] = {
    "half a character": (b'{"a": "\\ud800"}', "line 2: half a surrogate pair"),
    "another key": (b'{"c": 1}', "line 2: the key 'c' was in no sample"),
    "two objects": (b'{"a": "x"}, {"a": "y"}', "line 2: not JSON"),
    "another type": (b'{"a": 1}', "line 2: column 'a' holds 1, which does not fit str"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_named(tmp_path: Path, case: str) -> None:
    """By its line, beyond the samples too."""
    line, message = REFUSED[case]
    path = tmp_path / "rows.jsonl"
    good = b'{"a": "x"}\n'
    path.write_bytes(good * 450_000)
    found = path.stat()
    source = open_source(path, ReadOptions())
    path.write_bytes(good + line.ljust(3 * len(good) - 1) + b"\n" + good * (450_000 - 4))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    with pytest.raises(LoadError, match=message):
        together(source)


@pytest.mark.parametrize("size", [5, 10**6])
def test_an_integer_that_would_be_rounded_beside_a_null_is_refused(
    tmp_path: Path, size: int
) -> None:
    """With the type that holds it, whether the other value is null or missing."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1, "b": 2}\n{"a": null}\n{"a": 9007199254740993}\n')
    with pytest.raises(LoadError, match=r"line 3: column 'a' holds 9007199254740993\. .*'Int64'"):
        together(open_source(path, ReadOptions(mini_batch_size=size)))
    got = together(open_source(path, ReadOptions(mini_batch_size=size, dtypes={"a": "Int64"})))
    assert got["a"].iloc[2] == 9007199254740993


def test_an_integer_among_floats_is_read_as_pandas_reads_it(tmp_path: Path) -> None:
    """So is one that a float holds."""
    path = tmp_path / "rows.jsonl"
    for values in ([1.5, 9007199254740993], [None, 9007199254740992]):
        path.write_text("".join(json.dumps({"a": value}) + "\n" for value in values))
        got = together(open_source(path, ReadOptions()))
        assert got["a"].iloc[1] == 9007199254740992.0


@pytest.mark.parametrize("size", [3, "1 row", 10**6])
def test_objects_without_a_key_are_rows(tmp_path: Path, size: int | str) -> None:
    """As many in mini-batches of any size, and with the values of their path."""
    path = tmp_path / "one" / "rows.jsonl"
    path.parent.mkdir()
    path.write_text("{}\n{}\n")
    assert len(together(open_source(path, ReadOptions(mini_batch_size=size)))) == 2
    reading = ReadOptions(mini_batch_size=size, partition_format="{kind}/*")
    got = together(open_source(str(tmp_path), reading))
    assert list(got["kind"]) == ["one", "one"]


def test_keys_that_nobody_wants_need_not_be_known(tmp_path: Path) -> None:
    """With `columns`, a row may hold whatever else it likes."""
    rows: list[dict[str, Any]] = [{"a": number, f"b{number}": number} for number in range(50)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    got = together(open_source(path, ReadOptions(mini_batch_size=100, columns=("a",))))
    assert list(got["a"]) == list(range(50))


def test_a_key_in_no_sample_is_a_column_where_columns_and_dtypes_name_it(tmp_path: Path) -> None:
    """By one of these options alone it may be a slip."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a":3}          \n')
    found = path.stat()
    reading = ReadOptions(columns=("late", "a"), dtypes={"late": "Int64"})
    source = open_source(path, reading)
    path.write_text('{"a": 1}\n{"a": 2}\n{"a":3, "late":4}\n')
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    wanted = pd.DataFrame({"late": pd.array([None, None, 4], "Int64"), "a": [1, 2, 3]})
    pd.testing.assert_frame_equal(together(source), wanted)
    path.write_text('{"a": 1}\n')
    for alone in (ReadOptions(columns=("late", "a")), ReadOptions(dtypes={"late": "Int64"})):
        with pytest.raises(OptionError, match="the input has no column 'late'"):
            open_source(path, alone)


def test_a_key_that_comes_up_late_matters_only_without_columns(tmp_path: Path) -> None:
    """Also to `columns` that name all keys of the samples: the message names that option."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a":3}          \n')
    found = path.stat()
    sources = [open_source(path, ReadOptions(columns=columns)) for columns in (None, ("a",))]
    path.write_text('{"a": 1}\n{"a": 2}\n{"a":3, "late":4}\n')
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    with pytest.raises(LoadError, match="Name the wanted keys by columns="):
        together(sources[0])
    assert list(together(sources[1])["a"]) == [1, 2, 3]


def nested(depth: int) -> str:
    """Return a row with a list of lists."""
    return f'{{"k": 1, "a": {"[" * depth}{"]" * depth}}}'


def too_deep_to_pickle() -> int:
    """Return a depth that this Python reads as JSON, and does not pickle."""
    for depth in range(900, 100_000, 100):
        try:
            pickle.dumps(json.loads(nested(depth)))
        except RecursionError:
            return depth
    raise AssertionError


@pytest.mark.parametrize("drops", [False, True])
def test_a_row_that_is_nested_too_deeply_is_named(tmp_path: Path, drops: bool) -> None:  # noqa: FBT001 - a case
    """It is JSON, so that dropping invalid lines keeps it; the other rows give the columns."""
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{nested(1)}\n{nested(100_000)}\n")
    source = open_source(path, ReadOptions(drop_invalid_lines=drops))
    with pytest.raises(LoadError, match=r"rows\.jsonl, line 2: nested too deeply"):
        together(source)


def test_the_rows_of_a_refused_mini_batch_are_counted_without_dropped_lines(tmp_path: Path) -> None:
    """The `take` of an MLTable counts the rows that a whole mini-batch would have."""
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{nested(1)}\nnot JSON\n{nested(100_000)}\n")
    source = open_source(path, ReadOptions(drop_invalid_lines=True))
    reader = source.reader()
    with pytest.raises(LoadError) as caught:
        reader.load(next(source.mini_batches()))
    reader.close()
    assert caught.value.items == 2


def test_a_row_that_cannot_be_moved_to_its_key_is_refused(tmp_path: Path) -> None:
    """Values that are read may be nested too deeply to be written."""
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{nested(1)}\n{nested(too_deep_to_pickle())}\n")
    assert len(together(open_source(path, ReadOptions()))) == 2
    source = open_source(path, ReadOptions(partition_keys=("k",)))
    with pytest.raises(LoadError, match=r"partition_keys: .* nested too deeply .* by columns"):
        source.prepare(tmp_path)
