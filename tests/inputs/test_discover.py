"""From names to files: each file once, in order, none left out in silence."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import fsspec
import pytest

from daskprs._inputs.files.discover import discover, visible
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from daskprs.errors import InputError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def memory() -> Iterator[str]:
    """Return the URL of a folder in fsspec's memory."""
    filesystem = fsspec.filesystem("memory")
    for name in ("part1.csv", "part2.csv", "key=1/part3.csv"):
        filesystem.pipe(f"/found/{name}", b"a\n1\n")
    yield "memory://found"
    filesystem.rm("/found", recursive=True)


def test_links_are_followed_but_never_in_a_circle(tmp_path: Path) -> None:
    """What is no file is not one: a pipe, a link to nothing."""
    (tmp_path / "data" / "inner").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data" / "a.csv").touch()
    (tmp_path / "elsewhere" / "b.csv").touch()
    (tmp_path / "data" / "inner" / "up").symlink_to("..")
    (tmp_path / "data" / "inner" / "other").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "nothing.csv").symlink_to("nowhere")
    os.mkfifo(tmp_path / "data" / "pipe.csv")
    for data in (tmp_path / "data", str(tmp_path / "dat?")):
        found = [file.relative.removeprefix("data/") for file in discover(data)[0]]
        assert found == ["a.csv", "inner/other/b.csv"]


OWN = ["b/job/job.json", "b/job/lock", "b/job/logs/l.csv", "b/job/output/o.csv"]
OWN += ["runs/pipeline.json", "runs/pipeline.lock", "runs/step.csv", "daskprs-results/r.csv"]
THEIRS = ["a.csv", "b/b.csv", "logs/job.json", "logs/lock", "z/pipeline.json"]
NAMED = {
    "*": THEIRS,
    "**/*.csv": ["a.csv", "b/b.csv"],
    "*/*/*/*": [],
    "*/*/*/o.csv": ["b/job/output/o.csv"],
    "b/*/output/*.csv": ["b/job/output/o.csv"],
    "**/output/*.csv": ["b/job/output/o.csv"],
    "b/*/lock": ["b/job/lock"],
    "b/job": [one for one in OWN if one.startswith("b/job")],
    "b/job/*": [one for one in OWN if one.startswith("b/job")],
    "": THEIRS,
}


@pytest.mark.parametrize("named", NAMED)
def test_what_daskprs_has_written_is_input_only_by_its_name(tmp_path: Path, named: str) -> None:
    """Folders of jobs, of pipelines, and of results; others may have files of these names."""
    for one in (*OWN, *THEIRS):
        (tmp_path / one).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / one).touch()
    if not NAMED[named]:
        with pytest.raises(InputError, match="matches nothing"):
            discover(tmp_path / named)
        return
    (files,) = discover(tmp_path / named)
    found = [os.path.relpath(file.path, tmp_path) for file in files]
    assert found == NAMED[named]


def test_a_file_that_is_named_twice_is_taken_once(tmp_path: Path) -> None:
    """By a folder, by a glob, by its own name: in the first of these places."""
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.csv").touch()
    data = [tmp_path / "b.csv", tmp_path, str(tmp_path / "*.csv"), tmp_path / "b.csv"]
    found = [[file.name for file in files] for files in discover(data)]
    assert found == [["b.csv"], ["a.csv"], []]


@pytest.mark.parametrize("name", ["a b\n.csv", "[1].csv", "é%20.csv", os.fsdecode(b"\xff.csv")])
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    """A name that is there is no glob."""
    (tmp_path / name).write_text("a\n1\n")
    for data in (tmp_path, tmp_path / name, f"file://{tmp_path / name}"):
        source = open_source(data, ReadOptions())
        reader = source.reader()
        assert [list(reader.load(one)["a"]) for one in source.mini_batches()] == [[1]]
        reader.close()


def test_a_path_that_is_no_text_is_no_value(tmp_path: Path) -> None:
    """Of a column, that is; it is refused with what is wrong."""
    (tmp_path / os.fsdecode(b"\xff.csv")).write_text("a\n1\n")
    with pytest.raises(InputError, match="not UTF-8"):
        open_source(tmp_path, ReadOptions(include_path_column=True))


def test_hidden_files_are_no_tables_unless_they_are_named(tmp_path: Path) -> None:
    """A leading underscore hides as a dot does."""
    for name in ("a.csv", "_b.csv", ".c.csv"):
        (tmp_path / name).write_text("a\n1\n")
    assert [file.name for file in visible(discover(tmp_path)[0])] == ["a.csv"]
    assert [file.name for file in visible(discover(tmp_path / "_b.csv")[0])] == ["_b.csv"]


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("", ["key=1/part3.csv", "part1.csv", "part2.csv"]),
        ("/part*", ["part1.csv", "part2.csv"]),
        ("/part?.csv", ["part1.csv", "part2.csv"]),
        ("/part[12].csv", ["part1.csv", "part2.csv"]),
        ("/*/*.csv", ["key=1/part3.csv"]),
    ],
)
def test_globs_of_urls_match_as_those_of_paths(memory: str, glob: str, names: list[str]) -> None:
    """Below the last folder without a wildcard."""
    found = visible(discover(memory + glob)[0])
    assert [file.relative for file in found] == names


def files_of_years(root: Path) -> None:
    """Write files of two years, and of folders that the literal names would match as patterns."""
    for name in ("a/data[2024]", "a/data2", "a/data4", "b/data[2024]", "b/data0", "c/data2"):
        (root / name).mkdir(parents=True)
        for file in ("x[1].csv", "x1.csv", "y.csv"):
            (root / name / file).write_text("a\n1\n")


@pytest.mark.parametrize(
    ("pattern", "root", "names"),
    [
        ("a/data[2024]/*.csv", "a/data[2024]/", ["x1.csv", "x[1].csv", "y.csv"]),
        ("a/data[2024]/x[12].csv", "a/data[2024]/", ["x1.csv"]),
        ("a/data[24]/x[1].csv", "a/", ["data2/x[1].csv", "data4/x[1].csv"]),
        ("a/data[24]/x[12].csv", "a/", ["data2/x1.csv", "data4/x1.csv"]),
        ("*/data[2024]/y.csv", "", ["a/data[2024]/y.csv", "b/data[2024]/y.csv", "c/data2/y.csv"]),
        (
            "**/data[2024]/[y].csv",
            "",
            ["a/data[2024]/y.csv", "b/data[2024]/y.csv", "c/data2/y.csv"],
        ),
        ("a/data[[]2024]/y.csv", "a/", ["data[2024]/y.csv"]),
    ],
)
def test_a_part_that_exists_as_it_is_written_is_no_pattern(
    tmp_path: Path, pattern: str, root: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else files of other folders would be read; what a script gets is below the first pattern."""
    files_of_years(tmp_path)
    monkeypatch.chdir(tmp_path)
    for data in (pattern, str(tmp_path / pattern), f"file://{tmp_path / pattern}"):
        (found,) = discover(data)
        assert [file.path for file in found] == [f"{tmp_path}/{root}{name}" for name in names]
        assert [file.relative for file in found] == names


@pytest.mark.parametrize("pattern", ["data[2024]/*.csv", "data[2024]/x[1].csv", "data[2024]"])
def test_a_part_of_a_url_that_exists_as_it_is_written_is_no_pattern(pattern: str) -> None:
    """As on a disk."""
    filesystem = fsspec.filesystem("memory")
    for name in ("data[2024]/x[1].csv", "data2/x1.csv", "data4/x[1].csv"):
        filesystem.pipe(f"/years/{name}", b"a\n1\n")
    try:
        (found,) = discover(f"memory://years/{pattern}")
        assert [file.path for file in found] == ["memory:///years/data[2024]/x[1].csv"]
    finally:
        filesystem.rm("/years", recursive=True)


def test_the_files_of_a_list_of_urls_are_one_input(memory: str) -> None:
    """As those of a list of paths."""
    data = [f"{memory}/part2.csv", f"{memory}/part1.csv"]
    assert [[file.name for file in files] for files in discover(data)] == [
        ["part1.csv", "part2.csv"]
    ]


def test_a_date_in_a_format_has_parts_of_a_date(tmp_path: Path) -> None:
    """A typing error is no date of 1900."""
    (tmp_path / "foo.csv").write_text("a\n1\n")
    with pytest.raises(OptionError, match="'foo' is not a date"):
        open_source(tmp_path, ReadOptions(partition_format="{day:foo}.csv"))
