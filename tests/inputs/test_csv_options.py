"""The option `csv_options`, and the words for null in delimited text."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from click.testing import CliRunner

import daskprs
from daskprs._cli import main
from daskprs._inputs.delimited.null_words import DEFAULT, null_words
from daskprs._inputs.delimited.parser import DelimitedParser, Dialect
from daskprs._inputs.delimited.schema import TextColumn
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from daskprs.errors import JobChanged, LoadError, OptionError
from tests.support.put_together import together
from tests.support.versions import IS_PANDAS_2

if TYPE_CHECKING:
    from pathlib import Path


def kept(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows as they are."""
    return rows


SIZES = pytest.mark.parametrize("size", [None, "8 B"], ids=["one mini-batch", "many"])
WORDS = "country,n\nNA,1\nPE,2\nnull,3\n,4\n"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "no default words": (WORDS, {"keep_default_na": False}),
    "a word more": (WORDS, {"na_values": "PE"}),
    "a word more and no default words": (WORDS, {"na_values": ["PE"], "keep_default_na": False}),
    "words by column": (WORDS, {"na_values": {"country": ["PE"]}}),
    "words by column alone": (WORDS, {"na_values": {"n": [3]}, "keep_default_na": False}),
    "a number": ("a,b\n1,-999\n2,-999.0\n3,4\n", {"na_values": -999}),
    "a decimal comma": ('a;b\n"1,5";x\n2;y\n-0,25;z\n', {"decimal": ","}),
    "thousands": ('a;b\n"1.234,5";x\n7;y\n', {"decimal": ",", "thousands": "."}),
    "whole thousands": ("a;b\n1'234;x\n7;y\n", {"thousands": "'"}),
    "thousands in quotes": ('a,b\n"1,234",x\n"12,345,678",y\n7,z\n', {"thousands": ","}),
    "a decimal comma in quotes": ('a,b\n"2,5",x\n7,y\n', {"decimal": ","}),
}


@SIZES
@pytest.mark.parametrize("case", CASES)
def test_cells_are_read_as_pandas_reads_them(tmp_path: Path, case: str, size: Any) -> None:
    """Whatever the cut is."""
    text, options = CASES[case]
    path = tmp_path / "a.csv"
    path.write_text(text)
    sep = ";" if ";" in text else ","
    given = daskprs.RunOptions(mini_batch_size=size, csv_options=options, delimiter=sep)
    seen = together(open_source(path, given.reading()), tmp_path)
    pd.testing.assert_frame_equal(seen, pd.read_csv(io.StringIO(text), sep=sep, **options))


@SIZES
@pytest.mark.parametrize("dtype", ["str", str, "string", "string[pyarrow]"], ids=str)
def test_a_column_of_text_in_dtypes_keeps_the_words_for_null(
    tmp_path: Path, dtype: Any, size: Any
) -> None:
    """An empty cell is null; a column of numbers beside it has the words of pandas."""
    path = tmp_path / "a.csv"
    path.write_text("country,n\nNA,1\nnull,NA\n,3\n")
    seen = together(open_source(path, ReadOptions(mini_batch_size=size, dtypes={"country": dtype})))
    assert seen["country"].isna().tolist() == [False, False, True]
    assert seen["country"].tolist()[:2] == ["NA", "null"]
    assert seen["n"].fillna(-1).tolist() == [1, -1, 3]


def test_default_words_that_are_asked_for_are_null_in_text(tmp_path: Path) -> None:
    """The option comes before the type."""
    path = tmp_path / "a.csv"
    path.write_text("country,n\nNA,1\n-,2\n")
    reading = ReadOptions(
        dtypes={"country": "str"}, csv_options={"keep_default_na": True, "na_values": ["-"]}
    )
    assert together(open_source(path, reading))["country"].isna().all()


def test_a_category_is_not_null(tmp_path: Path) -> None:
    """Whatever it is called."""
    path = tmp_path / "a.csv"
    path.write_text("region,n\nNA,1\nEU,2\nnull,3\n")
    regions = pd.CategoricalDtype(["EU", "NA"])
    seen = together(open_source(path, ReadOptions(dtypes={"region": regions})))
    assert seen["region"].tolist()[:2] == ["NA", "EU"]
    assert seen["region"].isna().tolist() == [False, False, True]


@pytest.mark.skipif(IS_PANDAS_2, reason="text is Python's objects in pandas 2, which reads all")
def test_arrow_and_pandas_read_the_same_words() -> None:
    """In text with words of its own, beside other text and numbers."""
    schema = {name: TextColumn(name, "str") for name in "ab"}
    schema["n"] = TextColumn("n", pd.Series([1.5]).dtype)
    for options, dtypes in [({}, {"a": "str"}), ({"keep_default_na": False}, {}), ({}, {})]:
        dialect = Dialect(",", "utf-8", True, null_words=null_words(options, dtypes))
        parser = DelimitedParser(dialect, schema, list(schema))
        for body in (b"NA,NA,1\n,,2\n", b'"NA",x,1.5\nnull,"",2\n', b"x,y,1\n"):
            arguments = (body, list(schema), list(schema.values()))
            fast = parser.by_arrow(*arguments)
            assert fast is not None
            pd.testing.assert_frame_equal(fast, parser.by_pandas(*arguments))


@pytest.mark.usefixtures("inline")
def test_a_key_may_be_called_as_null_is(tmp_path: Path) -> None:
    """Namibia is a mini-batch of its own."""
    path = tmp_path / "a.csv"
    path.write_text("country,n\nNA,1\nPE,2\nNA,3\n,4\n")
    result = daskprs.parallel_run(
        path,
        lambda rows: rows.assign(total=rows["n"].sum()),
        partition_keys="country",
        csv_options={"keep_default_na": False},
        job_dir=tmp_path / "job",
        progress=False,
    )
    assert result.to_pandas()["total"].tolist() == [4, 4, 2, 4]
    assert result.to_pandas()["country"].tolist() == ["NA", "NA", "PE", ""]


@pytest.mark.usefixtures("inline")
def test_a_resume_with_other_words_for_null_is_refused(tmp_path: Path) -> None:
    """The finished rows were read by the old ones."""
    path = tmp_path / "a.csv"
    path.write_text(WORDS)
    call: dict[str, Any] = {"job_dir": tmp_path / "job", "progress": False}
    daskprs.parallel_run(path, kept, csv_options={"na_values": ["PE"]}, **call)
    was = "input words for null country was \"those of pandas, 'PE'\" and is \"those of pandas, 'x'"
    with pytest.raises(JobChanged, match=f"(?s){was}.*csv_options of na_values was"):
        daskprs.parallel_run(path, kept, csv_options={"na_values": ["x"]}, resume=True, **call)
    daskprs.parallel_run(path, kept, csv_options={"na_values": ["PE"]}, resume=True, **call)


def test_the_fingerprint_has_what_changes_rows(tmp_path: Path) -> None:
    """And is the one of earlier versions where nothing does."""
    path = tmp_path / "a.csv"
    path.write_text(WORDS)
    readings = [
        ReadOptions(),
        ReadOptions(dtypes={"country": "str"}),
        ReadOptions(dtypes={"country": "str"}, csv_options={"keep_default_na": True}),
        ReadOptions(csv_options={"na_values": ["PE"]}),
        ReadOptions(csv_options={"thousands": "'"}),
    ]
    found = [open_source(path, reading).fingerprint() for reading in readings]
    assert all(one not in found[:at] for at, one in enumerate(found) if at != 2)
    assert found[2] == found[0]
    assert found[0].keys() == {"kind", "files", "schema", "types of paths"}
    assert null_words({}, {}) == DEFAULT


def test_the_command_line_repeats_csv_option_for_each_value(tmp_path: Path) -> None:
    """A word for null as often as there are words."""
    (tmp_path / "a.csv").write_text("a;b\nNA;1,5\n-;2\n?;3\n")
    (tmp_path / "score.py").write_text("def run(rows):\n    return rows\n")
    words = ["na_values=-", "na_values=?", "keep_default_na=false", "decimal=,"]
    options = [part for word in words for part in ("--csv-option", word)]
    made = CliRunner().invoke(
        main,
        [
            *("run", str(tmp_path / "score.py"), str(tmp_path / "a.csv"), "--delimiter", ";"),
            *("--output-dir", str(tmp_path / "out"), "--job-dir", str(tmp_path / "job")),
            *("--quiet", *options),
        ],
    )
    assert made.exit_code == 0, made.output
    written = (tmp_path / "out" / "parallel_run_step.txt").read_text()
    assert written.splitlines() == ["NA 1.5", " 2.0", " 3.0"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sep": ";"}, "some of the names na_values, keep_default_na, decimal, thousands, as in"),
        ({"decimal": "x"}, "a mapping in which decimal is a single ASCII character"),
        ({"na_values": {"contry": ["-"]}}, "csv_options.*no column 'contry'. Near it: country"),
    ],
)
def test_a_wrong_csv_option_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    """Before anything starts, with what there is."""
    path = tmp_path / "a.csv"
    path.write_text(WORDS)
    with pytest.raises(OptionError, match=message):
        daskprs.plan(path, csv_options=options)
    with pytest.raises(OptionError, match=r"csv_options=.*: not for a frame"):
        daskprs.plan(pd.DataFrame({"a": [1]}), csv_options={"decimal": ","})


def test_none_is_not_given() -> None:
    """As the defaults of pandas are."""
    nothing = {"thousands": None, "decimal": None, "na_values": None}
    assert daskprs.RunOptions(csv_options=nothing).csv_options is None
    given = daskprs.RunOptions(csv_options={"thousands": None, "decimal": ","})
    assert given.csv_options == {"decimal": ","}


@pytest.mark.parametrize("cell", ["1,000.5", "x", "1.000,5.5"])
def test_a_number_with_marks_in_wrong_places_is_refused(tmp_path: Path, cell: str) -> None:
    """With a type that holds nulls, too, which pandas gives to no parser that knows marks."""
    path = tmp_path / "t.csv"
    reading = ReadOptions(
        csv_options={"decimal": ",", "thousands": "."}, dtypes={"a": "Float64"}, delimiter=";"
    )
    path.write_text("a;b\n1.000,5;x\n-2;y\n;z\n")
    assert together(open_source(str(path), reading))["a"].tolist() == [1000.5, -2, pd.NA]
    path.write_text(f"a;b\n1.000,5;x\n{cell};y\n")
    with pytest.raises(LoadError, match=f"line 3: column 'a' holds '{cell}'"):
        together(open_source(str(path), reading))


def test_a_number_with_marks_that_its_type_does_not_hold_is_refused(tmp_path: Path) -> None:
    """It is not read as if the mark for thousands were that for decimals."""
    path = tmp_path / "t.csv"
    path.write_text("a;b\n100;x\n1.000;y\n")
    options = {"decimal": ",", "thousands": "."}
    reading = ReadOptions(csv_options=options, dtypes={"a": "UInt8"}, delimiter=";")
    with pytest.raises(LoadError, match=r"line 3: column 'a' holds '1\.000'"):
        together(open_source(str(path), reading))


@pytest.mark.parametrize("name", ["decimal", "thousands"])
def test_a_mark_that_is_the_delimiter_separates_cells_outside_of_quotes(
    tmp_path: Path, name: str
) -> None:
    """A row with such a number has a field too many; with `dtypes`, a quoted one is a number."""
    path = tmp_path / "a.csv"
    path.write_text('a,b\n"1,234",2\n1,234,2\n')
    reading = ReadOptions(csv_options={name: ","}, dtypes={"a": "Float64"})
    with pytest.raises(LoadError, match="line 3: 3 fields where 2 are expected"):
        together(open_source(path, reading))
    path.write_text('a,b\n"1,234",2\n')
    expected = {"decimal": 1.234, "thousands": 1234}[name]
    assert together(open_source(path, reading))["a"].tolist() == [expected]
