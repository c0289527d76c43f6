"""Where the output goes: refused before anything starts where that can be known."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from daskprs._output.publish.output_file import (
    check_output_dir,
    check_output_file,
    name_of_another_format,
)
from daskprs.errors import OutputError, worded

if TYPE_CHECKING:
    from pathlib import Path


def test_an_output_folder_need_not_exist_and_is_not_made(tmp_path: Path) -> None:
    """What can be said is said of the nearest folder that does exist."""
    assert check_output_dir(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert not (tmp_path / "a").exists()
    assert check_output_dir("rows").is_absolute()


@pytest.mark.parametrize("url", ["s3://bucket/rows", "memory://rows", "abfss://c@a.net/x", "s3:/b"])
def test_a_url_is_never_taken_for_a_folder_here(url: str) -> None:
    """Rather than made as a local folder called ``s3:``: of a `Path` only one slash is left."""
    with pytest.raises(OutputError, match="a URL is given as text, not as a Path"):
        check_output_dir(url)


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    """Itself, or in place of a folder above it."""
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path / "file", tmp_path / "file" / "deeper", tmp_path / "dangling"):
        with pytest.raises(OutputError, match="is not a folder"):
            check_output_dir(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    """Its permissions say so."""
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OutputError, match="cannot be written by this user"):
            check_output_dir(tmp_path / "deeper")
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_is_never_replaced_by_the_output_file(tmp_path: Path) -> None:
    """Not even with overwrite."""
    with pytest.raises(OutputError, match="is a folder"):
        check_output_file(tmp_path, overwrite=True)
    (tmp_path / "rows.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match="exists"):
        check_output_file(tmp_path / "rows.txt", overwrite=False)
    check_output_file(tmp_path / "rows.txt", overwrite=True)


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("a.parquet", "output_format='parquet', or use a name for text, such as {}='a.txt'"),
        ("a.b.PQ", "output_format='parquet', or use a name for text, such as {}='a.b.txt'"),
        ("a.arrow", "output_format='arrow', or use a name for text, such as {}='a.txt'"),
        ("a.feather", "output_format='arrow', or use a name for text, such as {}='a.txt'"),
        ("a.json", "output_format='jsonl' and {0}='a.jsonl', or use a name for text, such as {0}"),
        ("a.parquet.gz", "output_format='parquet', or use a name for text, such as {}='a.txt'"),
        ("a.parquet.GZ", "output_format='parquet', or use a name for text, such as {}='a.txt'"),
        ("a.xlsx", "can read. Use a name for text, such as {}='a.txt'"),
    ],
)
def test_a_name_of_another_format_is_no_name_for_text(name: str, ways: str) -> None:
    """The message has the format to ask for, where there is one, and a name to write."""
    told = worded(name_of_another_format(name))
    assert told.startswith(f"append_row_file_name={name!r}: the output is lines of text")
    assert ways.format("append_row_file_name") in told
    assert "output_format" not in name_of_another_format(name, may_be_dataset=False)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.txt", "a.dat", "a", "parquet"])
def test_any_other_name_is_one_for_text(name: str) -> None:
    """Lines of text may be JSON, or fields with any separator."""
    assert not name_of_another_format(name)
