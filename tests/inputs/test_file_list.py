"""Files as columns are the files that were put in; those of a folder come in order of path."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from daskprs._inputs.files.discover import discover
from daskprs._inputs.files.file_list import FileList
from daskprs._inputs.source.input_file import InputFile

if TYPE_CHECKING:
    from pathlib import Path

PARTS = st.text(st.characters(exclude_characters="\0/"), min_size=1, max_size=4)
FILES = st.builds(
    InputFile,
    st.lists(PARTS, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts)),
    st.none() | st.integers(0, 2**62),
    st.text(max_size=4),
    st.text(max_size=4),
) | st.builds(
    lambda folder, name: InputFile(f"/{folder}/{name}", 1, "1", name), PARTS, st.just("b\udcff.csv")
)


@given(st.lists(FILES))
def test_what_is_put_into_a_list_comes_out_of_it(files: list[InputFile]) -> None:
    """One by one, in slices, and from the end; whatever bytes their names are."""
    found = FileList(files)
    assert list(found) == files
    assert list(found.paths()) == [file.path for file in files]
    assert found[1:3] == files[1:3]
    assert [found[-1 - place] for place in range(len(files))] == files[::-1]


@given(st.lists(FILES))
def test_in_order_is_by_path_and_each_once(files: list[InputFile]) -> None:
    """Of those with the same path the first is taken."""
    first = {file.path: file for file in reversed(files)}
    assert list(FileList(files).in_order()) == [first[path] for path in sorted(first)]


def test_a_folder_is_walked_in_the_order_of_paths(tmp_path: Path) -> None:
    """A slash comes after a dot, and a folder may stand between two files that begin like it."""
    for name in ("a/x", "a.txt", "a", "a-/y", "a/b/c", "a/b.c", "b", "\U0001f600", "\uffee", "é/é"):
        file = tmp_path / (f"{name}_" if name == "a" else name)
        file.parent.mkdir(exist_ok=True, parents=True)
        file.touch()
    paths = [str(path) for path in tmp_path.rglob("*") if path.is_file()]
    assert [file.path for file in discover(tmp_path)[0]] == sorted(paths)
    assert [file.path for file in discover(f"{tmp_path}/*")[0]] == sorted(paths)
    relative = [path.removeprefix(f"{tmp_path}/") for path in sorted(paths)]
    assert [file.relative for file in discover(tmp_path)[0]] == relative


def test_inputs_that_overlap_have_each_file_once(tmp_path: Path) -> None:
    """In the first input that names it, wherever the others have it."""
    for name in ("a/1", "a/2", "b/1", "b/2"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    data = [tmp_path / "b", f"{tmp_path}/*/1", tmp_path, tmp_path / "a" / "2", tmp_path / "b"]
    found = [[file.path.removeprefix(f"{tmp_path}/") for file in one] for one in discover(data)]
    assert found == [["b/1", "b/2"], ["a/1"], ["a/2"], [], []]
    assert len(list(chain(*found))) == 4
