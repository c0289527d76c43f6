"""Secrets do not get through a mask, in whatever form and however the text is cut."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._system.masks import Mask, MaskedStream

KEY = "sk-'42\"\\ä&=x/+ 9\n8"
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nx\n-----END KEY-----\n"


@pytest.mark.parametrize(
    "form", [KEY, repr(KEY), json.dumps(KEY), json.dumps(KEY, ensure_ascii=False), quote(KEY)]
)
def test_a_secret_is_found_as_it_is_and_quoted(form: str) -> None:
    """As a message, a log in JSON or the URL of a request has it."""
    assert Mask([KEY]).text(f"key={form}.") == f"key={form.replace(form.strip(QUOTES), '***')}."


QUOTES = "'\""


def test_lines_of_a_key_are_secrets_too() -> None:
    """A traceback indents them; lines of a few characters stay."""
    text = "".join(f"    {line}\n" for line in PEM.splitlines())
    assert Mask([PEM]).text(text) == "    ***\n    ***\n    x\n    ***\n"


def test_overlapping_secrets_leave_nothing_of_either() -> None:
    """One mask stands for both."""
    assert Mask(["abcdef", "defghi"]).text("<abcdefghi>") == "<***>"
    assert Mask(["abab"]).text("-ababab-") == "-***-"


def test_without_secrets_a_text_stays() -> None:
    """Broken characters, too."""
    assert Mask().text("\udcff") == "\udcff"
    assert Mask(["abcd"]).text("\udcff abcd") == "\udcff ***"


def test_a_secret_that_is_no_unicode_is_found_in_both_worlds() -> None:
    """Python has it in its environment with a stand-in for each broken byte."""
    mask = Mask([os.fsdecode(b"key\xff")])
    assert mask.text("a key\udcff") == "a ***"
    assert MaskedStream(mask).last(b"a key\xff") == b"a ***"


@pytest.mark.parametrize("cut", range(3, 8))
def test_a_secret_that_comes_in_two_pieces_is_masked(cut: int) -> None:
    """None of it is shown before the rest is there."""
    stream, text = MaskedStream(Mask(["secret"])), b"a secret."
    first = stream.next(text[:cut])
    assert first == b"a "
    assert first + stream.next(text[cut:]) + stream.last() == b"a ***."


@given(
    secrets=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3),
    text=st.text("ab-", max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=6),
)
def test_pieces_are_masked_as_the_whole(secrets: list[str], text: str, cuts: list[int]) -> None:
    """Wherever a stream is cut; what is written out cannot be taken back."""
    mask = Mask(secrets)
    stream, data = MaskedStream(mask), text.encode()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [stream.next(data[at:end]) for at, end in pairwise(places)]
    assert b"".join([*pieces, stream.last()]).decode() == mask.text(text)
    assert not any(secret in part for secret in secrets for part in mask.text(text).split("***"))
