"""An output among the files of its input, which the next run would read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daskprs._inputs.files.listed_again import listing_of

if TYPE_CHECKING:
    from pathlib import Path

LISTS, REPLACES = False, True
CASES = {
    "a file in the folder": ("in", "in/out.csv", LISTS),
    "deep in it": ("in", "in/b/c/out.csv", LISTS),
    "an input of the folder": ("in", "in/a.csv", REPLACES),
    "the only input": ("in/a.csv", "in/a.csv", REPLACES),
    "one of several": (["x.csv", "in/a.csv"], "in/a.csv", REPLACES),
    "in a folder of several": (["x.csv", "in"], "in/out.csv", LISTS),
    "a folder of parts in it": ("in", "in/out/", LISTS),
    "the folder itself": ("in", "in/", REPLACES),
    "a folder above": ("in/a.csv", "in/", REPLACES),
    "by a link": ("link", "in/out.csv", LISTS),
    "into a link": ("in", "link/out.csv", LISTS),
    "an input by a link": ("link.csv", "in/a.csv", REPLACES),
    "by another name": ("./in/../in", "in/out.csv", LISTS),
    "the current folder": (".", "out.csv", LISTS),
    "a glob": ("*.csv", "out.csv", LISTS),
    "a glob of folders": ("i*", "in/b/out.csv", LISTS),
    "a deep glob": ("**/*.csv", "in/b/out.csv", LISTS),
    "a glob of parts": ("in/*/*.parquet", "in/out/", LISTS),
    "a glob of parts alone": ("in/*.csv", "in/", REPLACES),
    "a local URL": ("file://HERE/in", "in/out.csv", LISTS),
    "a folder of a store": ("s3://b/in/", "s3://b/in//out.csv", LISTS),
    "a glob of a store": ("s3://b/*/x-?.csv", "s3://b/in/x-1.csv", LISTS),
}
APART = {
    "beside": ("in", "out.csv"),
    "a like name": ("in", "in2/out.csv"),
    "a hidden name": ("in", "in/.runs/out.csv"),
    "an underscore": ("in", "in/_out/"),
    "another file": ("in/a.csv", "in/out.csv"),
    "another suffix": ("in/*.csv", "in/out.parquet"),
    "another depth": ("in/*.csv", "in/b/out.csv"),
    "folders alone": ("in/*/", "in/out.csv"),
    "a hidden match": ("in/*.csv", "in/_out.csv"),
    "another store": ("s3://b/in", "s3://c/in/out.csv"),
    "a path and a store": ("in", "s3://b/in/out.csv"),
    "rows": ([1, "in"], "in/out.csv"),
}


def found(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[object, ...], *, tables: bool
) -> tuple[str, bool] | None:
    """Return what is found of a case in a folder with an input."""
    monkeypatch.chdir(scratch)
    (scratch / "in").mkdir()
    (scratch / "in" / "a.csv").touch()
    (scratch / "link").symlink_to("in")
    (scratch / "link.csv").symlink_to("in/a.csv")
    data, output, *_ = case
    if isinstance(data, str):
        data = data.replace("HERE", str(scratch))
    output = str(output)
    file = f"{output}part-00000-0.parquet" if output.endswith("/") else output
    return listing_of(data, output.removesuffix("/"), file, skips_hidden=tables)


@pytest.mark.parametrize("name", CASES)
def test_an_output_among_its_input_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """However both are named."""
    there = found(tmp_path, monkeypatch, CASES[name], tables=True)
    assert there is not None
    assert there[1] is CASES[name][2]


@pytest.mark.parametrize("name", APART)
def test_an_output_apart_from_its_input_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As are hidden names where tables are read; lists of files have them."""
    assert found(tmp_path, monkeypatch, APART[name], tables=True) is None


def test_hidden_files_are_listed_where_paths_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output among them is so, too."""
    assert found(tmp_path, monkeypatch, APART["a hidden name"], tables=False) == ("in", False)
