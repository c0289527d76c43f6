"""YAML files, and the places of what is in them."""

from __future__ import annotations

import pytest

from daskprs.errors import YamlError
from daskprs.yaml_files.document import Document

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
        ("a: \x07\n", "p.yml:1:1: "),
    ],
)
def test_what_is_no_yaml_of_ours_is_refused_with_its_place(text: str, told: str) -> None:
    """Line and column are those of an editor."""
    with pytest.raises(YamlError) as caught:
        Document(text, "p.yml")
    assert told in str(caught.value)
