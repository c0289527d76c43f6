"""YAML files, and the places of what is in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from daskprs.azure._yaml_files.document import Document
from daskprs.errors import YamlError

TEXT = """\
# a pipeline
name: score
version: 2024-01-01
jobs:
  one: &one
    size: 10
    steps: [a, {b: 2}]
  two:
    <<: *one
    size: 20
"""


def test_values_are_plain_and_have_places() -> None:
    """Dates are text, and aliases are resolved."""
    document = Document(TEXT, "p.yml")
    one = {"size": 10, "steps": ["a", {"b": 2}]}
    assert document.content == {
        "name": "score",
        "version": "2024-01-01",
        "jobs": {"one": one, "two": {**one, "size": 20}},
    }
    assert str(document.place(("jobs", "one", "size"))) == "p.yml:6:11"
    assert str(document.place(("jobs", "one", "size"), of_key=True)) == "p.yml:6:5"
    assert str(document.place(("jobs", "one", "steps", 1, "b"))) == "p.yml:7:20"
    assert str(document.place(("jobs", "two", "none"))) == "p.yml:9:5"
    assert str(document.place(("nothing",))) == "p.yml:1:1"


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]\n"
    for below, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\na: 3\n", "p.yml:3:1: a: this key is in line 1 already"),
        ("a: [1, 2\n", "p.yml:2:1: it cannot be read as YAML: "),
        ("a: &a\n  b: *a\n", "its aliases make it grow without bounds"),
        (LAUGHS, "its aliases make it grow without bounds"),
        ("? [a]\n: 1\n", "a key has to be text"),
        ("a: !!python/object:os.system x\n", "could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", "expected a single document"),
        ("a: 1\nb: \x07\n", "p.yml:2:4: it cannot be read as YAML: special characters"),
    ],
)
def test_what_is_no_yaml_of_ours_is_refused_with_its_place(text: str, told: str) -> None:
    """Line and column are those of an editor."""
    with pytest.raises(YamlError) as caught:
        Document(text, "p.yml")
    assert told in str(caught.value)


MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{below}'] * 9)}]}}\n"
    for below, name in zip("abcdefghij", "bcdefghijk", strict=True)
)
ALIASES = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 5000))
WIDE = f"a: &a {{{', '.join(f'k{n}: 1' for n in range(1000))}}}\n"
MERGED_WIDE = f"{WIDE}b: {{<<: [{', '.join(['*a'] * 1000)}]}}\n"

MERGED_DEEP = ", ".join(["&a0 {x: 1}", *(f"&a{n} {{<<: *a{n - 1}}}" for n in range(1, 3000))])


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"<<: [{MERGED_DEEP}]\n", "mappings and lists are inside one another"),
        (MERGED_WIDE, "p.yml:2:9: it cannot be read as YAML: its aliases make it grow"),
        ("a: &a\n  <<: *a\n", "p.yml:1:4: it cannot be read as YAML: its aliases make it grow"),
        ("a: {<<: [1]}\n", "p.yml:1:10: it cannot be read as YAML: while merging mappings"),
        (
            "a:\n  b: !!int junk\n",
            "p.yml:2:6: it cannot be read as YAML: 'junk' is not of the type",
        ),
        ("a: !!int ''\n", "p.yml:1:4: it cannot be read as YAML: '' is not of the type !!int"),
        ("a: !!float x\n", "p.yml:1:4: it cannot be read as YAML: 'x' is not of the type !!float"),
        ("a: !!bool x\n", "p.yml:1:4: it cannot be read as YAML: 'x' is not of the type !!bool"),
        ("a: 1\nb: " + "9" * 5000, "p.yml:2:4: it cannot be read as YAML: this integer has 5000"),
        ("a: 0x" + "f" * 5000, "p.yml:1:4: it cannot be read as YAML: this integer has 5002"),
        (
            "a: 1" + ":59" * 500_000,
            "p.yml:1:4: it cannot be read as YAML: this integer has 1500001",
        ),
        ("a: 1" + ":59" * 500_000 + ".5", "p.yml:1:4: it cannot be read as YAML: this number has"),
        ("a: 1" + ":59" * 300 + ".5", "p.yml:1:4: it cannot be read as YAML: '1:59"),
        ("a: " + "[" * 20_000, "p.yml:1:103: it cannot be read as YAML: more than"),
        ("a: " + "{a: " * 20_000, "mappings and lists are inside one another"),
        ("- " * 20_000, "mappings and lists are inside one another"),
        (ALIASES, "mappings and lists are inside one another"),
        ('a: "\\UFFFFFFFF"\n', "p.yml:1:"),
        ("%YAML " + "9" * 5000 + ".1\n---\na: 1\n", "p.yml:1:"),
    ],
)
def test_a_file_made_to_stall_or_crash_is_refused_with_its_place(text: str, told: str) -> None:
    """Each costs a few thousand steps, however it grows."""
    with pytest.raises(YamlError) as caught:
        Document(text, "p.yml")
    assert told in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.timeout(60)
def test_mappings_that_merge_others_many_times_are_merged_once() -> None:
    """Nine times ten levels: each has what all have."""
    assert Document(MERGES, "p.yml").content == {name: {"x": 1} for name in "abcdefghijk"}


def test_merged_mappings_mean_what_yaml_says() -> None:
    """The own value wins, then the first of a list; places are those of the value that is there."""
    text = """\
a: &a {x: 1, y: 1}
b: &b {y: 2, z: 2}
c: {<<: [*a, *b], x: 3}
d:
  q: 4
  <<: *b
e: &e {<<: *a, w: 5}
f: {<<: *e, v: 6}
g: {"<<": 7}
"""
    document = Document(text, "p.yml")
    assert document.content == {
        "a": {"x": 1, "y": 1},
        "b": {"y": 2, "z": 2},
        "c": {"x": 3, "y": 1, "z": 2},
        "d": {"q": 4, "y": 2, "z": 2},
        "e": {"x": 1, "y": 1, "w": 5},
        "f": {"x": 1, "y": 1, "w": 5, "v": 6},
        "g": {"<<": 7},
    }
    assert document.content == yaml.safe_load(text)
    orders = ["".join(map(str, one)) for one in document.content.values()]
    assert orders == ["xy", "yz", "yzx", "yzq", "xyw", "xywv", "<<"]  # own keys come last
    assert str(document.place(("c", "x"))) == "p.yml:3:22"
    assert str(document.place(("c", "y"))) == "p.yml:1:17"


def test_a_path_that_no_system_takes_is_refused() -> None:
    """As one that does not exist."""
    with pytest.raises(YamlError, match="it cannot be read: "):
        Document.read("a\0.yml")


def test_values_in_python_are_a_document_whose_messages_name_keys(tmp_path: Path) -> None:
    """Paths become text; what no file can have is refused with its key."""
    given = {"jobs": {"a": {"code": Path("src"), "keys": ("x", 1)}}}
    document = Document.of_values(given, "scoring", tmp_path)
    assert document.content == {"jobs": {"a": {"code": "src", "keys": ["x", 1]}}}
    assert document.folder == tmp_path
    assert str(document.mistake(("jobs", "a"), "it is wrong")) == "scoring: jobs.a: it is wrong"
    with pytest.raises(YamlError, match=r"^scoring: jobs\.a\[0\]: it has to be text, .*object"):
        Document.of_values({"jobs": {"a": [object()]}}, "scoring", tmp_path)
