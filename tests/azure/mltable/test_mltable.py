"""MLTable: its mini-batches together are what its transformations say, whatever the size."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import daskprs
from daskprs._inputs.frames.inline_data import FarReader
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from daskprs.azure._mltable import form
from daskprs.azure._stand_ins.here import StandIns
from daskprs.azure._yaml_files.form import Effect, keys_of
from daskprs.errors import InputError, LoadError, OptionError, YamlError
from tests.support.mltables import mltable, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS = pd.DataFrame(
    {"number": range(100), "text": [f"t{number % 7}" for number in range(100)]},
)
READ_CSV: dict[str, Any] = {"read_delimited": {"delimiter": ","}}
SIZES = st.integers(10, 300)


def numbers_table(root: Path, *transformations: Any, files: int = 3) -> Path:
    """Return an MLTable of some CSV files."""
    parts = np.array_split(np.arange(100), files)
    return mltable(
        root,
        {
            "type": "mltable",
            "paths": [{"pattern": "./*.csv"}],
            "transformations": [*transformations],
        },
        {f"{at}.csv": NUMBERS.iloc[part].to_csv(index=False) for at, part in enumerate(parts)},
    )


# ---- any rows, any size ----

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.one_of(st.none(), st.integers(-3, 3)),
            "b": st.sampled_from(["x", "y", "a b", 'q"q', "zz"]),
            "c": st.integers(0, 9),
            "d": st.dates().map(lambda day: day.strftime("%d/%m/%Y")),
        }
    ),
    min_size=1,
    max_size=25,
)
CHANGES: dict[str, tuple[Any, Callable[[pd.DataFrame], pd.DataFrame]]] = {
    "filter": (
        {"filter": "col('c') > 3 and b != 'x'"},
        lambda rows: rows[(rows["c"] > 3) & (rows["b"] != "x")],
    ),
    "or": (
        {"filter": 'not (a == 1 or b in ["y", "zz"])'},
        lambda rows: rows[~((rows["a"] == 1) | rows["b"].isin(["y", "zz"]))],
    ),
    "take": ({"take": 7}, lambda rows: rows.head(7)),
    "many": ({"take": 20}, lambda rows: rows.head(20)),
    "skip": ({"skip": 3}, lambda rows: rows.iloc[3:]),
    "float": (
        {"convert_column_types": [{"columns": "c", "column_type": "float"}]},
        lambda rows: rows.astype({"c": "float64"}),
    ),
}


@pytest.mark.timeout(600)  # thousands of examples, where that is asked for
@given(
    rows=ROWS,
    chosen=st.lists(st.sampled_from(sorted(CHANGES)), max_size=5),
    kind=st.sampled_from(["csv", "gz", "parquet", "jsonl"]),
    split=st.integers(1, 3),
    size=SIZES,
)
def test_mini_batches_together_are_what_pandas_would_give(
    tmp_path: Path, rows: list[Any], chosen: list[str], kind: str, split: int, size: int
) -> None:
    """Filters, `take`, `skip` and types in any order, over files of every kind."""
    frame = pd.DataFrame(rows).astype({"b": "str", "d": "str"})
    frame["a"] = frame["a"].astype("float64")
    if kind == "jsonl" and frame["a"].isna().all():
        frame["a"] = pd.Series([None] * len(frame), dtype=object)  # as of a frame of these rows
    files: dict[str, str | bytes] = {}
    for at, places in enumerate(np.array_split(np.arange(len(frame)), split)):
        name, body = _file(frame.iloc[places], kind)
        files[f"{at}{name}"] = body
    if all(not body for body in files.values()):
        return
    read = {"parquet": "read_parquet", "jsonl": "read_json_lines"}.get(kind, "read_delimited")
    written = [{read: {}}, *(CHANGES[one][0] for one in chosen)]
    content = {"paths": [{"folder": "."}], "transformations": written}
    folder = mltable(tmp_path, content, files)
    expected = frame
    for one in chosen:
        expected = CHANGES[one][1](expected)
    got = rows_of(folder, mini_batch_size=size)
    pd.testing.assert_frame_equal(got, expected.reset_index(drop=True), check_dtype=len(got) > 0)


def _file(frame: pd.DataFrame, kind: str) -> tuple[str, bytes]:
    if kind == "parquet":
        buffer = io.BytesIO()
        frame.to_parquet(buffer, row_group_size=4)
        return ".parquet", buffer.getvalue()
    if kind == "jsonl":
        lines = frame.astype(object).to_dict("records")
        # NaN is what the reader gives for null where a column is one of floats.
        cells = [{k: None if v != v else v for k, v in row.items()} for row in lines]  # noqa: PLR0124
        return ".jsonl", "".join(f"{json.dumps(row)}\n" for row in cells).encode()
    text = frame.to_csv(index=False).encode()
    return (".csv.gz", gzip.compress(text)) if kind == "gz" else (".csv", text)


@pytest.mark.long
@settings(max_examples=15)
@given(size=SIZES, files=st.integers(1, 4), kind=st.sampled_from(["csv", "parquet", "jsonl"]))
def test_a_sample_is_the_same_for_every_size(
    tmp_path: Path, size: int, files: int, kind: str
) -> None:
    """It comes from where a row lies in its file."""
    parts = np.array_split(np.arange(100), files)
    named = [_file(NUMBERS.iloc[part], kind) for part in parts]
    read = {"parquet": "read_parquet", "jsonl": "read_json_lines"}.get(kind, "read_delimited")
    content = {
        "paths": [{"pattern": f"*.{kind}"}],
        "transformations": [read, {"take_random_sample": {"probability": 0.4, "seed": 7}}],
    }
    folder = mltable(
        tmp_path, content, {f"{at}{name}": body for at, (name, body) in enumerate(named)}
    )
    got = rows_of(folder, mini_batch_size=size)
    pd.testing.assert_frame_equal(got, rows_of(folder, mini_batch_size="1 GB"))
    assert 15 < len(got) < 70
    assert got["number"].is_monotonic_increasing


def test_files_of_one_name_in_two_folders_are_sampled_independently(tmp_path: Path) -> None:
    """Rows at the same place, and the files themselves, have chances of their own."""
    text = "a\n" + "".join(f"{number}\n" for number in range(100))
    folders = [{"folder": "one"}, {"folder": "two"}]
    half = {"take_random_sample": {"probability": 0.5}}
    read = {"read_delimited": {"include_path_column": True}}
    content = {"paths": folders, "transformations": [read, half]}
    files = {f"{folder}/{at}.csv": text for folder in ("one", "two") for at in range(20)}
    rows = rows_of(mltable(tmp_path, content, files))
    is_one = rows["Path"].str.contains("/one/")
    assert 800 < is_one.sum() < 1200
    assert list(rows["a"][is_one]) != list(rows["a"][~is_one])
    content["transformations"] = [half]
    source = open_source(mltable(tmp_path, content, files), ReadOptions(mini_batch_size=100))
    paths = [path for one in source.mini_batches() for path in source.reader().load(one)]
    kept = [{Path(one).name for one in paths if f"/{folder}/" in one} for folder in ("one", "two")]
    assert kept[0] != kept[1]


def test_a_second_sample_and_another_seed_draw_other_rows(tmp_path: Path) -> None:
    """Of half of the rows half; and nobody draws what another seed has drawn."""
    half = {"take_random_sample": {"probability": 0.5}}
    other = {"take_random_sample": {"probability": 0.5, "seed": 8}}
    once = rows_of(numbers_table(tmp_path, READ_CSV, half))
    twice = rows_of(numbers_table(tmp_path, READ_CSV, half, half))
    assert len(twice) < len(once)
    assert set(twice["number"]) < set(once["number"])
    assert set(rows_of(numbers_table(tmp_path, READ_CSV, other))["number"]) != set(once["number"])
    none = {"take_random_sample": {"probability": 0.0}}
    everything = {"take_random_sample": {"probability": 1.0}}
    assert len(rows_of(numbers_table(tmp_path, READ_CSV, none))) == 0
    assert len(rows_of(numbers_table(tmp_path, READ_CSV, everything))) == 100


def test_pieces_that_nothing_is_left_of_are_not_mini_batches(tmp_path: Path) -> None:
    """What is skipped or behind the last row that is taken is not read again; numbers are whole."""
    folder = numbers_table(tmp_path, READ_CSV, {"skip": 50}, {"take": 5})
    source = open_source(folder, ReadOptions(mini_batch_size=60))
    source.prepare(tmp_path)
    plan = list(source.mini_batches())
    assert [one.index for one in plan] == list(range(len(plan)))
    assert len(plan) <= 3
    assert plan == list(source.mini_batches())


def test_parquet_is_not_read_to_be_counted(tmp_path: Path) -> None:
    """Its footers know; so the plan knows rows and where they begin."""
    body = io.BytesIO()
    NUMBERS.to_parquet(body, row_group_size=10)
    content = {
        "paths": [{"file": "a.parquet"}],
        "transformations": ["read_parquet", {"skip": 15}, {"take": 30}],
    }
    folder = mltable(tmp_path, content, {"a.parquet": body.getvalue()})
    source = open_source(folder, ReadOptions(mini_batch_size="1 GB"))
    source.prepare(tmp_path)
    plan = [(one.items, one.row_lower_bound) for one in source.mini_batches()]
    assert plan == [(5, 0), (10, 5), (10, 15), (5, 25)]
    assert list(rows_of(folder)["number"]) == list(range(15, 45))


# ---- reading ----


def test_text_that_is_converted_first_is_converted_from_what_is_written(tmp_path: Path) -> None:
    """An inferred type would have made 7 of 007 before it is text again."""
    content = {
        "paths": [{"file": "a.csv"}],
        "transformations": [
            READ_CSV,
            {"filter": "age > 1"},
            {
                "convert_column_types": [
                    {"columns": ["id", "age"], "column_type": "string"},
                    {"columns": "day", "column_type": {"datetime": {"formats": ["%d%m%Y"]}}},
                ]
            },
        ],
    }
    body = "id,age,day\n007,1,01022020\n042,2,01022020\n"
    got = rows_of(mltable(tmp_path, content, {"a.csv": body}))
    assert got.to_dict("records") == [{"id": "042", "age": "2", "day": pd.Timestamp("2020-02-01")}]


@pytest.mark.parametrize(
    ("options", "body", "expected"),
    [
        ({"delimiter": ";"}, "a;b\n1;2\n", {"a": [1], "b": [2]}),
        ({"delimiter": "\\t"}, "a\tb\n1\t2\n", {"a": [1], "b": [2]}),
        ({"header": "no_header"}, "1,2\n", {"Column1": [1], "Column2": [2]}),
        ({"encoding": "UTF-8"}, "a\né\n", {"a": ["é"]}),
        ({"encoding": "latin1"}, "a\né\n".encode("latin-1"), {"a": ["é"]}),
        ({"encoding": "windows1252"}, "a\n€\n".encode("cp1252"), {"a": ["€"]}),
        ({"encoding": "utf16"}, "a\né\n".encode("utf-16"), {"a": ["é"]}),
        ({"encoding": "utf8bom"}, "a\né\n".encode("utf-8-sig"), {"a": ["é"]}),
        ({"infer_column_types": False}, "a,b\n01,x\n", {"a": ["01"], "b": ["x"]}),
        ({"support_multi_line": True}, 'a,b\n"x\ny",1\n', {"a": ["x\ny"], "b": [1]}),
        (
            {"empty_as_string": True},
            "a,b\n,\nx,2\nNA,3\n",
            {"a": ["", "x", "NA"], "b": [np.nan, 2, 3]},
        ),
        ({"empty_as_string": True}, "a,b\n,1\n,2\n", {"a": ["", ""], "b": [1, 2]}),
        (
            {"infer_column_types": {"column_type_overrides": {"a": "string"}}},
            "a\n01\n",
            {"a": ["01"]},
        ),
        ({"infer_column_types": {"sample_size": 5}}, "a\n1\n", {"a": [1]}),
    ],
)
def test_options_of_delimited_text(
    tmp_path: Path, options: dict[str, Any], body: str | bytes, expected: dict[str, list[Any]]
) -> None:
    """Each does what it says."""
    content = {"paths": [{"file": "./a.csv"}], "transformations": [{"read_delimited": options}]}
    got = rows_of(mltable(tmp_path, content, {"a.csv": body}), mini_batch_size=5)
    pd.testing.assert_frame_equal(got, pd.DataFrame(expected), check_dtype=False)


def test_a_quoted_line_break_is_an_error_where_it_was_not_said(tmp_path: Path) -> None:
    """Azure makes two misaligned records of it, with nulls."""
    folder = mltable(
        tmp_path,
        {"paths": [{"file": "a.csv"}], "transformations": [READ_CSV]},
        {"a.csv": 'a,b\n1,x\n2,"y\nz"\n'},
    )
    with pytest.raises(LoadError, match=r"a\.csv, line 3: a quoted field goes on"):
        rows_of(folder)


def test_lines_that_are_no_json_are_errors_or_left_out(tmp_path: Path) -> None:
    """By `invalid_lines`; a sample does not change the rest."""
    body = '{"a": 1}\nrubbish\n{"a": 2}\n'
    content: dict[str, Any] = {
        "paths": [{"file": "a.jsonl"}],
        "transformations": [{"read_json_lines": {"invalid_lines": "drop"}}],
    }
    assert list(rows_of(mltable(tmp_path, content, {"a.jsonl": body}))["a"]) == [1, 2]
    content["transformations"].append({"take_random_sample": {"probability": 1}})
    assert list(rows_of(mltable(tmp_path, content, {"a.jsonl": body}))["a"]) == [1, 2]
    content["transformations"] = ["read_json_lines"]
    with pytest.raises(LoadError, match=r"a\.jsonl, line 2: not JSON"):
        rows_of(mltable(tmp_path, content, {"a.jsonl": body}))


def test_the_path_of_a_row_is_a_column_of_any_name(tmp_path: Path) -> None:
    """First of all columns, and gone where it is dropped."""
    options = {"include_path_column": True, "path_column": "Source"}
    folder = mltable(
        tmp_path,
        {"paths": [{"file": "a.csv"}], "transformations": [{"read_delimited": options}]},
        {"a.csv": "a\n1\n"},
    )
    assert rows_of(folder).to_dict("list") == {"Source": [str(folder / "a.csv")], "a": [1]}


def test_a_column_of_the_files_keeps_its_name_where_no_path_is_asked_for(tmp_path: Path) -> None:
    """Also one that is called as that of paths would be."""
    read = {"read_delimited": {"path_column": "Source"}}
    content = {"paths": [{"file": "a.csv"}], "transformations": [read]}
    folder = mltable(tmp_path, content, {"a.csv": "Path,a\nx,1\n"})
    assert rows_of(folder).to_dict("list") == {"Path": ["x"], "a": [1]}


def test_a_value_is_not_true_and_false(tmp_path: Path) -> None:
    """Nobody could say which is meant."""
    boolean = {"true_values": ["yes", "1"], "false_values": ["no", "1"]}
    convert = {"columns": "a", "column_type": {"boolean": boolean}}
    steps = [READ_CSV, {"convert_column_types": [convert]}]
    content = {"paths": [{"file": "a.csv"}], "transformations": steps}
    with pytest.raises(YamlError, match="'1' is in true_values and in false_values"):
        rows_of(mltable(tmp_path, content, {"a.csv": "a\n1\n"}))


def test_columns_that_nothing_comes_of_are_not_read(tmp_path: Path) -> None:
    """So what is wrong in them does not matter; one that is only asked for is read."""
    content: dict[str, Any] = {
        "paths": [{"file": "a.csv"}],
        "transformations": [
            READ_CSV,
            {"filter": "asked > 0"},
            {"convert_column_types": [{"columns": "odd", "column_type": "int"}]},
            {"keep_columns": "kept"},
        ],
    }
    body = "odd,asked,kept,more\nx,1,5,1\ny,0,6,2\n"
    folder = mltable(tmp_path, content, {"a.csv": body})
    assert rows_of(folder).to_dict("list") == {"kept": [5]}
    content["transformations"][-1] = {"drop_columns": "(odd|asked|kept|more)"}
    folder = mltable(tmp_path, content, {"a.csv": body})
    assert rows_of(folder).shape == (1, 0)


def test_rows_that_cannot_be_read_are_counted_all_the_same(tmp_path: Path) -> None:
    """What is behind them keeps its place; they fail the mini-batch that they lie in alone."""
    folder = mltable(
        tmp_path,
        {"paths": [{"file": "a.csv"}], "transformations": [READ_CSV, {"take": 4}]},
        {"a.csv": "a,b\n1,1\n2,2,2\n3,3\n4,4\n5,5\n6,6\n"},
    )
    source = open_source(folder, ReadOptions(mini_batch_size=4))
    source.prepare(tmp_path)
    reader = source.reader()
    found: list[Any] = []
    for one in source.mini_batches():
        try:
            rows = reader.load(one)
            assert isinstance(rows, pd.DataFrame)
            found += list(rows["a"])
        except LoadError as error:
            found.append(str(error).partition("a.csv, ")[2])
    reader.close()
    assert found == [1, "line 3: 3 fields where 2 are expected: '2,2,2'.", 3, 4]


# ---- types ----


@pytest.mark.parametrize(
    ("column_type", "cells", "expected", "dtype"),
    [
        ("int", ["1", " 2", "3.0"], [1, 2, 3], "int64"),
        ("int", ["9007199254740993", "1"], [9007199254740993, 1], "int64"),
        ("int", ["9007199254740993.0", "1e3"], [9007199254740993, 1000], "int64"),
        ("int", ["1", ""], [1.0, np.nan], "float64"),
        ("float", ["1", "2.5"], [1.0, 2.5], "float64"),
        ("string", ["01", "x"], ["01", "x"], "str"),
        ("boolean", ["True", "0"], [True, False], "bool"),
        (
            {"boolean": {"true_values": ["yes"], "false_values": ["no"]}},
            ["yes", "", "no"],
            [True, np.nan, False],
            "object",
        ),
        (
            {
                "boolean": {
                    "true_values": ["yes"],
                    "false_values": ["no"],
                    "mismatch_as": "false",
                }
            },
            ["yes", "perhaps"],
            [True, False],
            "bool",
        ),
        (
            {"datetime": {"formats": ["%d/%m/%Y", "%Y-%m-%d"]}},
            ["31/01/2020", "2020-02-01"],
            [pd.Timestamp("2020-01-31"), pd.Timestamp("2020-02-01")],
            "datetime64[us]",
        ),
        (
            {"datetime": {"formats": "%H:%M", "date_constant": "2020-01-31"}},
            ["10:30"],
            [pd.Timestamp("2020-01-31 10:30")],
            "datetime64[us]",
        ),
        (
            {"datetime": {"formats": ["%Y-%m-%d %H:%M%z"]}},
            ["2020-01-31 10:30+0200"],
            [pd.Timestamp("2020-01-31 08:30", tz="UTC")],
            "datetime64[us, UTC]",
        ),
        (
            "datetime",
            ["2020-01-31T10:30:00Z"],
            [pd.Timestamp("2020-01-31 10:30")],
            "datetime64[us]",
        ),
    ],
)
def test_columns_become_other_types_exactly(
    tmp_path: Path, column_type: Any, cells: list[str], expected: list[Any], dtype: str
) -> None:
    """Where there are nulls, integers and booleans become what pandas has for these."""
    content = {
        "paths": [{"file": "a.csv"}],
        "transformations": [
            READ_CSV,
            {"convert_column_types": [{"columns": "a", "column_type": column_type}]},
        ],
    }
    body = "a,b\n" + "".join(f"{cell},1\n" for cell in cells)
    folder = mltable(tmp_path, content, {"a.csv": body})
    for size in (1, 1000):
        got = rows_of(folder, mini_batch_size=size)["a"]
        pd.testing.assert_series_equal(got, pd.Series(expected, name="a", dtype=dtype))


@pytest.mark.parametrize(
    ("column_type", "cell", "told"),
    [
        ("int", "1.5", "'1.5', which is no int"),
        ("int", "x", "'x', which is no int"),
        ("int", "inf", "'inf', which is no int"),
        ("int", "1e999999999", "'1e999999999', which is no int"),
        ("int", "9007199254740993.5", "'9007199254740993.5', which is no int"),
        ("float", "1_000.0", "'1_000.0', which is no float"),
        ("boolean", "perhaps", "'perhaps', which is no boolean"),
        (
            {"datetime": {"formats": ["%d/%m/%Y"]}},
            "31/02/2020",
            "which is not a date in the form %d/%m/%Y",
        ),
    ],
)
def test_a_value_that_does_not_become_its_type_is_an_error_with_its_place(
    tmp_path: Path, column_type: Any, cell: str, told: str
) -> None:
    """Azure makes a null of it, in silence."""
    content = {
        "paths": [{"file": "a.csv"}],
        "transformations": [
            READ_CSV,
            {"convert_column_types": [{"columns": "a", "column_type": column_type}]},
        ],
    }
    folder = mltable(tmp_path, content, {"a.csv": f"a,b\n,1\n{cell},2\n"})
    with pytest.raises(LoadError) as caught:
        rows_of(folder)
    assert str(caught.value) == f"{folder}/a.csv, line 3: column 'a' holds {_shown(cell, told)}."


def _shown(cell: str, told: str) -> str:
    return told if told.startswith("'") else f"{cell!r}, {told}"


def test_a_null_that_no_sample_has_shown_is_an_error(tmp_path: Path) -> None:
    """The type of a column is fixed before the first mini-batch: it cannot become one of floats."""
    lines = [f"{number},{'x' * 80}\n" for number in range(200_000)]
    lines[150_003] = f",{'x' * 80}\n"
    content = {
        "paths": [{"file": "a.csv"}],
        "transformations": [
            READ_CSV,
            {"convert_column_types": [{"columns": "a", "column_type": "int"}]},
        ],
    }
    folder = mltable(tmp_path, content, {"a.csv": "a,b\n" + "".join(lines)})
    with pytest.raises(LoadError, match=r"line 150005: column 'a' holds nothing, and int"):
        rows_of(folder)


def test_text_becomes_the_same_float_whatever_lies_beside_it(tmp_path: Path) -> None:
    """A column of plain numbers is converted at once, any other cell by cell."""
    content: dict[str, Any] = {
        "paths": [{"file": "a.csv"}],
        "transformations": [
            {"read_delimited": {"empty_as_string": True}},
            {"convert_column_types": [{"columns": "a", "column_type": "float"}]},
        ],
    }
    for beside in ("1", "0.5", "inf"):
        folder = mltable(tmp_path, content, {"a.csv": f"a,b\n-0,1\n{beside},2\n"})
        assert str(rows_of(folder)["a"][0]) == "-0.0"
        folder = mltable(tmp_path, content, {"a.csv": f"a,b\n,1\n{beside},2\n"})
        with pytest.raises(LoadError, match="line 2: column 'a' holds '', which is no float"):
            rows_of(folder)


def test_streams_are_the_paths_of_files(tmp_path: Path) -> None:
    """Relative ones begin at the folder of the MLTable; what lies elsewhere stays as it is."""
    content = {
        "paths": [{"file": "a.jsonl"}],
        "transformations": [
            "read_json_lines",
            {"convert_column_types": [{"columns": "image", "column_type": "stream_info"}]},
        ],
    }
    body = '{"image": "images/1.jpg"}\n{"image": "s3://bucket/2.jpg"}\n'
    folder = mltable(tmp_path, content, {"a.jsonl": body})
    assert list(rows_of(folder)["image"]) == [f"{folder}/images/1.jpg", "s3://bucket/2.jpg"]


# ---- paths ----


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"file": "./a.csv"}, [1]),
        ({"file": "a.csv"}, [1]),
        ({"file": "{folder}/a.csv"}, [1]),
        ({"file": "file://{folder}/a.csv"}, [1]),
        ({"folder": "./"}, [1, 2, 3]),
        ({"folder": "deep"}, [2, 3]),
        ({"pattern": "./deep/*.csv"}, [2]),
        ({"pattern": "**/*.csv"}, [1, 2, 3]),
        ({"pattern": "{folder}/[a-c].csv"}, [1]),
        ({"file": "memory://{name}/m.csv"}, [4]),
        ({"folder": "memory://{name}"}, [4]),
    ],
)
def test_paths_are_files_folders_and_patterns(
    tmp_path: Path, entry: dict[str, str], expected: list[int]
) -> None:
    """Relative to the MLTable, absolute, and by URL; the MLTable itself is no data."""
    import fsspec

    files: dict[str, str | bytes] = {
        "a.csv": "x\n1\n",
        "deep/b.csv": "x\n2\n",
        "deep/deeper/c.csv": "x\n3\n",
    }
    folder = mltable(tmp_path, "", files)
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/{folder.name}/m.csv", b"x\n4\n")
    named = {kind: path.format(folder=folder, name=folder.name) for kind, path in entry.items()}
    text = json.dumps({"paths": [named], "transformations": [READ_CSV]})
    (folder / "MLTable").write_text(text)
    assert list(rows_of(folder)["x"]) == expected
    assert list(rows_of(folder / "MLTable")["x"]) == expected
    memory.rm(f"/{folder.name}", recursive=True)


def test_an_mltable_may_lie_where_fsspec_reaches(tmp_path: Path) -> None:
    """Its relative paths are relative to where it lies."""
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe(
        "/remote/table/MLTable", b"paths: [{pattern: ./*.csv}]\ntransformations: [read_delimited]\n"
    )
    memory.pipe("/remote/table/a.csv", b"x\n4\n")
    for url in ("memory://remote/table", "memory://remote/table/MLTable"):
        source = open_source(url, ReadOptions())
        source.prepare(tmp_path)
        reader = source.reader()
        (one,) = source.mini_batches()
        loaded = reader.load(one)
        assert isinstance(loaded, pd.DataFrame)
        assert list(loaded["x"]) == [4]
        reader.close()
    memory.rm("/remote", recursive=True)


def test_files_come_in_the_order_of_the_paths_each_once(tmp_path: Path) -> None:
    """A pattern gives them in the order of their names."""
    content = {
        "paths": [{"file": "b.csv"}, {"pattern": "*.csv"}, {"file": "a.csv"}],
        "transformations": [READ_CSV],
    }
    files: dict[str, str | bytes] = {"a.csv": "x\n1\n", "b.csv": "x\n2\n", "c.csv": "x\n3\n"}
    assert list(rows_of(mltable(tmp_path, content, files))["x"]) == [2, 1, 3]


# ---- partitions ----

SALES: dict[str, str | bytes] = {
    f"{store}/{brand}/data.csv": f"week,sold\n1,{at}\n2,{at + 10}\n"
    for at, (store, brand) in enumerate([("1001", "a"), ("1001", "b"), ("0007", "a")])
}
FORMATS = [
    {"partition_format": "{Store}/{Brand}/{file_name}.{extension}"},
    {"partition_format": "{Store}/{Brand}/*.csv", "path_column": "Path", "ignore_errors": False},
    "{Store}/{Brand}/data.csv",
    "/{Store}/{Brand}/*.csv",
    "{Store}/{Brand}/{file}",
]


@pytest.mark.parametrize("partition_format", FORMATS)
def test_keys_in_paths_are_text_and_shuffle_nothing(tmp_path: Path, partition_format: Any) -> None:
    """One mini-batch for each combination; saved MLTables name the folders before they read."""
    read = {"read_delimited": {"include_path_column": True}}
    extract = {"extract_columns_from_partition_format": partition_format}
    is_saved = isinstance(partition_format, dict) and "path_column" in partition_format
    first = [extract, read] if is_saved else [read, extract]
    content = {
        "paths": [{"pattern": "./**/*.csv"}],
        "transformations": [*first, {"keep_columns": ["Brand", "sold", "Store"]}],
    }
    folder = mltable(tmp_path, content, SALES)
    source = open_source(folder, ReadOptions(partition_keys=("Store", "Brand")))
    assert type(source).__name__ == "FolderKeySource"
    source.prepare(tmp_path)
    found = {}
    reader = pickle.loads(pickle.dumps(source.reader()))
    for one in source.mini_batches():
        rows = reader.load(one)
        assert list(rows.columns) == ["Brand", "sold", "Store"]
        found[one.partition_key] = list(rows["sold"])
    reader.close()
    assert found == {
        (("Store", "0007"), ("Brand", "a")): [2, 12],
        (("Store", "1001"), ("Brand", "a")): [0, 10],
        (("Store", "1001"), ("Brand", "b")): [1, 11],
    }


def test_a_format_may_name_folders_and_dates(tmp_path: Path) -> None:
    """``{date:yyyy/MM}`` without quotes is a mapping to YAML, and yet a format."""
    content = (
        "paths: [{pattern: ./**/*.csv}]\ntransformations:\n- read_delimited\n"
        "- extract_columns_from_partition_format: {when:yyyy/MM}\n- filter: when >= '2020-02-01'\n"
    )
    files: dict[str, str | bytes] = {f"2020/0{month}/a.csv": f"x\n{month}\n" for month in (1, 2, 3)}
    got = rows_of(mltable(tmp_path, content, files))
    assert list(got["x"]) == [2, 3]
    assert got["when"].iloc[0] == pd.Timestamp("2020-02-01", tz="UTC")


def test_keys_that_are_columns_are_shuffled(tmp_path: Path) -> None:
    """Those that a transformation has changed, too."""
    folder = numbers_table(tmp_path, READ_CSV, {"filter": "number < 20"})
    source = open_source(folder, ReadOptions(partition_keys=("text",)))
    source.prepare(tmp_path)
    keys = [one.partition_key[0][1] for one in source.mini_batches()]
    assert keys == [f"t{number}" for number in range(7)]
    assert sum(one.items or 0 for one in source.mini_batches()) == 20


@settings(max_examples=7)
@given(wanted=st.sets(st.integers(0, 9), min_size=1), size=SIZES)
def test_partitions_are_pieces_of_files_whatever_a_mini_batch_holds(
    tmp_path: Path, wanted: set[int], size: int
) -> None:
    """Of text so many bytes: a row lies in the one that it begins in."""
    text = NUMBERS.to_csv(index=False)
    options = {"delimiter": ",", "partition_size": -(-len(text) // 10)}
    content = {
        "paths": [{"file": "a.csv"}],
        "transformations": [{"read_delimited": options}, {"select_partitions": sorted(wanted)}],
    }
    got = rows_of(mltable(tmp_path, content, {"a.csv": text}), mini_batch_size=size)
    begins = np.cumsum([0, *(len(line) for line in text.splitlines(keepends=True))])[1:-1]
    expected = NUMBERS[np.isin(begins // options["partition_size"], sorted(wanted))]
    pd.testing.assert_frame_equal(got, expected.reset_index(drop=True))


def test_without_options_a_partition_has_its_usual_size(tmp_path: Path) -> None:
    """A small file is one partition, as it is with empty options."""
    content: dict[str, Any] = {
        "paths": [{"pattern": "*.csv"}],
        "transformations": ["read_delimited", {"select_partitions": [1]}],
    }
    files: dict[str, str | bytes] = {f"{at}.csv": f"x\n{at}\n" for at in range(3)}
    assert list(rows_of(mltable(tmp_path, content, files))["x"]) == [1]
    for between, rows in [({"filter": "x > 1"}, []), ({"filter": "x < 2"}, [1])]:
        content["transformations"].insert(1, between)
        assert list(rows_of(mltable(tmp_path, content, files))["x"]) == rows
        del content["transformations"][1]
    content["transformations"].insert(1, {"take": 2})
    with pytest.raises(YamlError, match=r"select_partitions: take and skip before it count rows"):
        open_source(mltable(tmp_path, content, files), ReadOptions())


def test_row_groups_and_streams_are_partitions(tmp_path: Path) -> None:
    """And a number that there is not is an error that says which there are."""
    body = io.BytesIO()
    NUMBERS.to_parquet(body, row_group_size=30)
    content: dict[str, Any] = {
        "paths": [{"pattern": "*.parquet"}],
        "transformations": ["read_parquet", {"select_partitions": [3, 1]}],
    }
    folder = mltable(tmp_path, content, {"a.parquet": body.getvalue()})
    assert list(rows_of(folder)["number"]) == [*range(30, 60), *range(90, 100)]
    content["transformations"][1] = {"select_partitions": [4]}
    folder = mltable(tmp_path, content, {"a.parquet": body.getvalue()})
    with pytest.raises(InputError, match="partition 4 does not exist; there are 0 to 3"):
        rows_of(folder)
    content = {
        "paths": [{"pattern": "*.gz"}],
        "transformations": ["read_delimited", {"select_partitions": [1]}],
    }
    parts = {f"{at}.csv.gz": gzip.compress(f"x\n{at}\n".encode()) for at in range(3)}
    assert list(rows_of(mltable(tmp_path, content, dict(parts)))["x"]) == [1]


# ---- lists of files ----


def test_without_a_read_it_is_a_list_of_files(tmp_path: Path) -> None:
    """Whose transformations choose among files by their paths."""
    files: dict[str, str | bytes] = {
        f"{user}/{number}.wav": b"" for user in "ab" for number in range(3)
    }
    content: dict[str, Any] = {"paths": [{"folder": "."}]}
    folder = mltable(tmp_path, content, files)
    plan = daskprs.plan(folder, mini_batch_size=4)
    assert plan.unit == "file"
    assert [one.items for one in plan] == [4, 2]
    content["transformations"] = [
        {"extract_columns_from_partition_format": "{user}/{number}.wav"},
        {"filter": 'user == "b"'},
        {"skip": 1},
    ]
    folder = mltable(tmp_path, content, files)
    source = open_source(folder, ReadOptions(partition_keys=("number",)))
    found = [(one.partition_key, one.piece.paths) for one in source.mini_batches()]
    assert found == [
        ((("number", "1"),), (f"{folder}/b/1.wav",)),
        ((("number", "2"),), (f"{folder}/b/2.wav",)),
    ]
    content["transformations"] = [{"select_partitions": [0, 5]}]
    folder = mltable(tmp_path, content, files)
    (one,) = open_source(folder, ReadOptions()).mini_batches()
    assert one.piece.paths == (f"{folder}/a/0.wav", f"{folder}/b/2.wav")
    content["transformations"] = [{"skip": 1}, {"select_partitions": [0, 5]}, {"take": 1}]
    (one,) = open_source(mltable(tmp_path, content, files), ReadOptions()).mini_batches()
    assert [Path(path).name for path in one.piece.paths] == ["2.wav"]
    content["transformations"] = [{"take_random_sample": {"probability": 0.5, "seed": 1}}]
    drawn = [
        [
            path.removeprefix(str(folder))
            for one in open_source(folder, ReadOptions()).mini_batches()
            for path in one.piece.paths
        ]
        for folder in (mltable(tmp_path, content, files), mltable(tmp_path, content, files))
    ]
    assert drawn[0] == drawn[1]
    assert 0 < len(drawn[0]) < 6


def test_a_file_whose_path_does_not_become_its_type_is_named(tmp_path: Path) -> None:
    """There are no mini-batches yet that could fail with it."""
    conversion = {"convert_column_types": [{"columns": "n", "column_type": "int"}]}
    content = {
        "paths": [{"pattern": "./*.txt"}],
        "transformations": [{"extract_columns_from_partition_format": "/{n}.txt"}, conversion],
    }
    folder = mltable(tmp_path, content, {"1.txt": "", "x.txt": ""})
    with pytest.raises(InputError, match=r"x.txt: column 'n' holds 'x', which is no int"):
        open_source(str(folder), ReadOptions())


def test_the_caller_says_what_is_meant_and_is_told_where_it_does_not_fit(tmp_path: Path) -> None:
    """`input_type="files"` gives what lies there; what the MLTable says is not said twice."""
    table = numbers_table(tmp_path, READ_CSV)
    files = open_source(table, ReadOptions(input_type="files"))
    found = [path for one in files.mini_batches() for path in one.piece.paths]
    assert found == sorted(str(path) for path in Path(table).rglob("*") if path.is_file())
    assert str(Path(table, "MLTable")) in found
    assert open_source(table, ReadOptions(input_type="table")).unit == "row"
    columns = rows_of(table, columns=("text",)).columns
    assert list(columns) == ["text"]
    with pytest.raises(OptionError, match=r"input_type='table': .* has no read_"):
        open_source(numbers_table(tmp_path), ReadOptions(input_type="table"))
    with pytest.raises(
        OptionError, match="delimiter=';': not for an MLTable, which says it itself"
    ):
        open_source(table, ReadOptions(delimiter=";"))


# ---- mistakes ----


def test_all_mistakes_are_told_in_one_go_with_their_places(tmp_path: Path) -> None:
    """First those of the form."""
    content = """\
paths:
- patern: ./**/*.csv
- a.csv
transformations:
- read_delimitd:
- take: -1
- take_random_sample: {probability: 2}
- convert_column_types:
  - columns: a
    column_type: integer
- filter: a > 1
  skip: 3
- keep_columns:
"""
    folder = mltable(tmp_path, content, {"a.csv": "a\n1\n"})
    with pytest.raises(YamlError) as caught:
        rows_of(folder)
    told = str(caught.value).replace(f"{folder}/", "").splitlines()
    expected = """\
MLTable:2:3: paths[0].patern: there is no key 'patern'; did you mean 'pattern'?
MLTable:3:3: paths[1]: say what it is: file, folder or pattern, as in `file: a.csv`
MLTable:5:3: transformations[0].read_delimitd: there is no key 'read_delimitd'; did you mean \
'read_delimited'?
MLTable:6:9: transformations[1].take: input should be greater than or equal to 0, not -1
MLTable:7:37: transformations[2].take_random_sample.probability: input should be less than or \
equal to 1, not 2
MLTable:10:18: transformations[3].convert_column_types[0].column_type: input should be 'int', \
'float', 'string', 'boolean', 'datetime' or 'stream_info', not 'integer'
MLTable:11:3: transformations[4]: each item of transformations is one transformation: begin each \
with a dash
MLTable:13:3: transformations[5]: keep_columns needs a value
"""
    assert told == expected.splitlines()


def test_then_all_paths_and_then_all_columns(tmp_path: Path) -> None:
    """With the nearest names."""
    content = """\
paths:
- file: nowhere.csv
- folder: a.csv
- file: azureml://datastores/d/paths/x
- file: "*.csv"
- file: wasbs://c@a.blob.core.windows.net/x
transformations:
- take: 1
- read_delimited
- read_parquet
"""
    folder = mltable(tmp_path, content, {"a.csv": "name,age\nx,1\n"})
    with pytest.raises(YamlError, match=r"daskprs\[azure\]: abfss://c@a\.dfs\.") as caught:
        rows_of(folder)
    places = [line.split(": ")[0] for line in str(caught.value).splitlines()]
    assert [place.removeprefix(f"{folder}/") for place in places] == [
        "MLTable:2:9",
        "MLTable:3:11",
        "MLTable:4:9",
        "MLTable:5:9",
        "MLTable:6:9",
        "MLTable:9:3",
        "MLTable:10:3",
    ]
    content = """\
paths: [{file: a.csv}]
transformations:
- read_delimited
- keep_columns: [nam, age]
- filter: age > "x"
- filter: age >
- extract_columns_from_partition_format: "{a}/{b}/{c}.tsv"
"""
    folder = mltable(tmp_path, content, {"a.csv": "name,age\nx,1\n"})
    with pytest.raises(YamlError, match=r"MLTable:7:42: .*a\.csv does not match '\{a\}/\{b\}"):
        rows_of(folder)
    (folder / "MLTable").write_text(content.rpartition("- extract")[0])
    with pytest.raises(YamlError) as caught:
        rows_of(folder)
    told = str(caught.value).replace(f"{folder}/", "").splitlines()
    assert told[0] == (
        "MLTable:4:17: transformations[1].keep_columns: "
        "the column 'nam' does not exist; near it: name"
    )
    assert told[1].startswith(
        "MLTable:5:11: transformations[2].filter: 'age > \"x\"': age is a number"
    )
    assert told[2].startswith("MLTable:6:11: transformations[3].filter: invalid syntax")


def test_scripts_load_an_mltable_without_its_package(tmp_path: Path) -> None:
    """All of its rows, or the paths of a list of files; what else the package has is refused."""
    spec = StandIns().find_spec("mltable", None)
    assert spec is not None
    package = importlib.util.module_from_spec(spec)
    StandIns().exec_module(package)
    files: dict[str, str | bytes] = {"a.csv": "n\n1\n2\n", "b.csv": "n\n"}
    rows = package.load(
        mltable(tmp_path, "paths: [{pattern: ./*.csv}]\ntransformations: [read_delimited]\n", files)
    )
    assert rows.to_pandas_dataframe().to_dict("list") == {"n": [1, 2]}
    assert rows.show(1)["n"].tolist() == [1]
    assert rows.paths == [{"pattern": "./*.csv"}]
    with pytest.raises(
        AttributeError, match=r"LoadedTable\.take: .*add - take: … to the .*MLTable"
    ):
        rows.take(1)
    with pytest.raises(AttributeError, match=r"save: .* read a table: change the rows in pandas"):
        rows.save("there")
    paths = package.load(mltable(tmp_path, "paths: [{pattern: ./*.csv}]\n", files))
    names = [Path(one).name for one in paths.to_pandas_dataframe()["Path"]]
    assert names == ["a.csv", "b.csv"]
    with pytest.raises(InputError, match=r"no MLTable in .*Give the path of the folder"):
        package.load(tmp_path)
    with pytest.raises(AttributeError, match=r"mltable.from_paths: .*use mltable.load"):
        package.from_paths([])


def test_the_page_names_every_transformation_and_option() -> None:
    """Those of the form."""
    page = (Path(__file__).parents[3] / "docs/reference/mltable.md").read_text()
    forms = [form.PathEntry, form.Transformation, form.ReadDelimited, form.ReadParquet]
    forms += [form.ReadJsonLines, form.ReadDeltaLake, form.TakeRandomSample, form.ConvertEntry]
    forms += [form.ExtractColumns]
    names = [key.name for one in forms for key in keys_of(one) if key.effect is not Effect.REFUSED]
    told = set(re.findall(r"[`.](\w+|\$schema)`", page))
    assert [name for name in names if name not in told] == []


def test_a_node_that_does_not_see_the_files_says_so(tmp_path: Path) -> None:
    """Readers travel; what they read has to be where the node is."""
    folder = numbers_table(tmp_path, READ_CSV, {"filter": "number > 3"})
    source = open_source(folder, ReadOptions())
    source.prepare(tmp_path)
    reader = FarReader(pickle.loads(pickle.dumps(source.reader())))
    first, second, *_ = source.mini_batches()
    assert len(reader.load(first)) == 30
    (folder / "1.csv").unlink()
    with pytest.raises(LoadError, match=r"1\.csv is not visible from the node"):
        reader.load(second)
    reader.close()
