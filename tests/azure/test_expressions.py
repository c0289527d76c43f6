"""Expressions: what is one is filled in, and all other text stays as it is."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs.azure._expressions import (
    ExpressionError,
    Optional,
    Reference,
    filled_in,
    only_reference,
    parsed,
    references,
)

names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,8}", fullmatch=True).filter(
    lambda name: name != "path"
)
ports = st.sampled_from(["inputs", "outputs"])
known = st.one_of(
    st.tuples(ports, names, st.booleans()).map(lambda one: Reference(*one)),
    st.tuples(ports, names, st.just(value=True), names).map(lambda one: Reference(*one)),
    st.sampled_from(["name", "output_name", "default_datastore"]).map(Reference),
)
plain = st.text(string.printable).filter(lambda text: "$" not in text and "]" not in text)
simple = st.lists(st.one_of(plain, known))
texts = st.lists(st.one_of(plain, known, st.builds(lambda inner: Optional(tuple(inner)), simple)))


def written(parts: object) -> str:
    """Return parts as a person writes them."""
    match parts:
        case Optional(inner):
            return f"$[[{''.join(map(written, inner))}]]"
        case list():
            return "".join(map(written, parts))
    return str(parts)


words = st.sampled_from(["inputs", "parent", "jobs", "${{", "}}", "$[[", "]]", *"${}[]. -\n"])


@given(st.lists(words).map("".join))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """Nothing else is raised, and what holds no marks comes out as it went in."""
    try:
        parts = parsed(text)
    except ExpressionError as error:
        parts, refusal = None, str(error)
        assert refusal
    if "${{" not in text and "$[[" not in text:
        assert "".join(map(str, parts or ())) == text


@given(texts)
def test_what_is_written_is_read_back(parts: list[object]) -> None:
    """Every reference is found, in order, and the text around it is untouched."""
    text = written(parts)
    read = parsed(text)
    expected = [
        one
        for part in parts
        for one in (part.parts if isinstance(part, Optional) else [part])
        if isinstance(one, Reference)
    ]
    assert list(references(read)) == expected
    shown = "".join(
        written(list(part.parts)) if isinstance(part, Optional) else written(part) for part in parts
    )
    assert filled_in(read, str) == shown


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("${{inputs.x}}", Reference("inputs", "x")),
        ("${{ inputs.x }}", Reference("inputs", "x")),
        ("${{inputs.group.x}}", Reference("inputs", "group.x")),
        ("${{inputs.x.path}}", Reference("inputs", "x")),
        ("${{inputs.path}}", Reference("inputs", "path")),
        ("${{parent.outputs.o-1}}", Reference("outputs", "o-1", of_parent=True)),
        ("${{parent.jobs.a-b.outputs.o}}", Reference("outputs", "o", True, "a-b")),
        ("${{jobs.a.outputs.o}}", Reference("outputs", "o", True, "a")),
        ("${{name}}", Reference("name")),
    ],
)
def test_every_way_to_write_a_reference(text: str, reference: Reference) -> None:
    """Spaces, groups of inputs, and older forms included."""
    assert only_reference(parsed(text)) == reference


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x ${{inputs.x", "}} is missing"),
        ("$[[--a ${{inputs.a}}", "]] is missing"),
        ("$[[a $[[b]]", "within"),
        ("${{}}", "this expression is unknown; known are inputs.<name>"),
        ("${{input.x}}", "this expression is unknown"),
        ("${{inputs}}", "this expression is unknown"),
        ("${{parent.name}}", "this expression is unknown"),
        ("${{parent.jobs.a}}", "this expression is unknown"),
        ("${{search_space.lr}}", "this expression is unknown"),
        ("${{inputs.x; rm -rf /}}", "this expression is unknown"),
    ],
)
def test_what_is_no_expression_is_refused(text: str, told: str) -> None:
    """With what is known."""
    with pytest.raises(ExpressionError, match=told.replace("$", r"\$").replace("[[", r"\[\[")):
        parsed(text)


def test_optional_text_is_left_out_when_an_input_of_it_is_not_given() -> None:
    """Outside of it that is an error; one without inputs stays."""
    values = {"a": "1", "b": None}

    def resolve(one: Reference) -> str | None:
        return values[one.name]

    text = "run $[[--a ${{inputs.a}}]] $[[--b ${{inputs.b}} ${{inputs.a}}]] $[[--c]]"
    assert filled_in(parsed(text), resolve) == "run --a 1  --c"
    with pytest.raises(ExpressionError, match=r"inputs.b.* was not given a value"):
        filled_in(parsed("--b ${{inputs.b}}"), resolve)
