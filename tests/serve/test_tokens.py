"""Tokens: read from a file or the environment, compared, and refused for a reason."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from daskprs.errors import OptionError, YamlError
from daskprs.serve.http_errors import Refusal
from daskprs.serve.tokens import VARIABLE, Tokens

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SECRET = "sixteen-characters"  # noqa: S105 - nobody's
HOME = "https://ml.azure.com"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a place for tokens that is nobody else's."""
    path = tmp_path / "tokens.yml"
    path.touch(mode=0o600)
    return path


def refused(tokens: Tokens, authorization: str | None, now: datetime = NOW) -> str:
    """Return the code that a header is refused with."""
    with pytest.raises(Refusal) as caught:
        tokens.caller(authorization, now)
    assert caught.value.status == 401
    assert caught.value.headers["WWW-Authenticate"].startswith("Bearer")
    return caught.value.code


def test_a_file_that_holds_nothing_but_a_token_is_one(file: Path) -> None:
    """As secrets are mounted by systems that keep them."""
    file.write_text(f"{SECRET}\n")
    tokens = Tokens.given(str(file), HOME)
    assert tokens.caller(f"Bearer {SECRET}", NOW) == "token"
    assert tokens.caller(f"bearer  {SECRET} ", NOW) == "token"


def test_a_token_may_be_kept_as_its_hash(file: Path) -> None:
    """Who reads the file then has no token."""
    file.write_text(
        f"tokens: [{{name: ann, sha256: {hashlib.sha256(SECRET.encode()).hexdigest()}}}]"
    )
    assert Tokens.given(str(file), HOME).caller(f"Bearer {SECRET}", NOW) == "ann"


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", f"Basic {SECRET}", SECRET, "Bearer\x00"]
)
def test_what_is_no_token_is_missing(file: Path, header: str | None) -> None:
    """Whatever else the header says."""
    file.write_text(SECRET)
    assert refused(Tokens.given(str(file), HOME), header) == "MissingToken"


@pytest.mark.parametrize("given", [SECRET + "x", SECRET[:-1], SECRET.upper(), "é" * 20, "\udcff"])
def test_a_token_that_is_nearly_right_is_wrong(file: Path, given: str) -> None:
    """It is compared whole."""
    file.write_text(SECRET)
    assert refused(Tokens.given(str(file), HOME), f"Bearer {given}") == "InvalidToken"


def test_a_token_ends_at_its_time_and_counts_for_its_audience(file: Path) -> None:
    """One without audience counts for every service that knows it."""
    file.write_text(
        f"tokens: [{{name: a, token: {SECRET}, expires: 2026-11-21T12:00:00Z}},"
        f" {{name: b, token: {SECRET}-b, audience: https://elsewhere}}]"
    )
    tokens = Tokens.given(str(file), HOME)
    assert tokens.caller(f"Bearer {SECRET}", NOW.replace(hour=11)) == "a"
    assert refused(tokens, f"Bearer {SECRET}") == "ExpiredToken"
    assert refused(tokens, f"Bearer {SECRET}-b") == "InvalidAudience"
    elsewhere = Tokens.given(str(file), "https://elsewhere")
    assert elsewhere.caller(f"Bearer {SECRET}-b", NOW) == "b"


def test_mistakes_in_a_file_are_told_in_one_go(file: Path) -> None:
    """Each with its place; no message holds a token."""
    file.write_text(
        "tokens:\n"
        f"  - {{name: a, token: {SECRET}, sha256: '{'0' * 64}'}}\n"
        f"  - {{name: b, token: {SECRET}, expires: tomorrow}}\n"
        "  - {name: c}\n"
    )
    with pytest.raises(YamlError) as caught:
        Tokens.given(str(file), HOME)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines] == ["2", "3", "4"]
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"tokens: {SECRET}",
        f"tokens: [{SECRET}]",
        f"- {SECRET}",
        f"tokens: [{{name: [{SECRET}], token: {SECRET}}}]",
        f"tokens: [{{name: a, token: {SECRET}, {SECRET}: 1}}]",
        f"tokens: [{{name: a, token: {SECRET}, {SECRET}: 1, {SECRET}: 1}}]",
        f"tokens: [{{name: a, token: {SECRET}, a.{SECRET}.b: 1}}]",
        f"tokens: [{{name: a, token: {SECRET}, 'a;{SECRET}': 1}}]",
        f"a.{SECRET}.b: 1",
        f"tokens.{SECRET}.b: 1",
        f"{SECRET}: {{name: a}}",
        f"tokens: [{{name: a, token: *{SECRET}}}]",
        f"tokens: [{{name: a, token: !{SECRET} x}}]",
        f"tokens: [{{name: a, token: {SECRET}, expires: {SECRET}}}]",
        f"tokens: [{{name: a, token: {SECRET}, audience: [{SECRET}]}}]",
        f'tokens: [{{name: a, token: "{SECRET}',
    ],
)
def test_a_token_in_the_wrong_place_is_not_shown(file: Path, text: str) -> None:
    """Messages go to logs that others read; they name the place."""
    file.write_text(text)
    with pytest.raises(YamlError, match=f"{file}:1:") as caught:
        Tokens.given(str(file), HOME)
    assert SECRET not in str(caught.value)


def test_a_short_token_is_refused_without_being_shown(file: Path) -> None:
    """Sixteen characters at least."""
    file.write_text("tokens: [{name: a, token: s3cret}]")
    with pytest.raises(YamlError) as caught:
        Tokens.given(str(file), HOME)
    assert "s3cret" not in str(caught.value)
    file.write_text("tokens: [{name: a, token: [s3cret-s3cret-s3cret]}]")
    with pytest.raises(YamlError) as caught:
        Tokens.given(str(file), HOME)
    assert "s3cret" not in str(caught.value)
    file.write_text("s3cret")
    with pytest.raises(YamlError, match="at least 16"):
        Tokens.given(str(file), HOME)


@pytest.mark.parametrize(
    "secret", ["sixteen characters", "sechzehn-Zeichen-ä", "'1234567890123456'"]
)
def test_a_token_is_made_of_what_headers_can_carry(file: Path, secret: str) -> None:
    """And of what YAML does not take for a number."""
    file.write_text(f"tokens: [{{name: a, token: {secret}}}]")
    if secret.startswith("'"):
        assert Tokens.given(str(file), HOME).caller(f"Bearer {secret[1:-1]}", NOW) == "a"
        file.write_text(f"tokens: [{{name: a, token: {secret[1:-1]}}}]")
    with pytest.raises(YamlError, match="in quotes"):
        Tokens.given(str(file), HOME)


def test_a_file_that_others_can_read_is_refused(file: Path) -> None:
    """The message says what to do."""
    file.write_text(SECRET)
    file.chmod(0o644)
    with pytest.raises(OptionError, match="chmod 600"):
        Tokens.given(str(file), HOME)


def test_tokens_may_come_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never by the command line, which everybody sees; and without any there is no service."""
    monkeypatch.setenv(VARIABLE, f"tokens: [{{name: ann, token: {SECRET}}}]")
    assert Tokens.given(None, HOME).caller(f"Bearer {SECRET}", NOW) == "ann"
    monkeypatch.setenv(VARIABLE, " ")
    with pytest.raises(OptionError, match=VARIABLE):
        Tokens.given(None, HOME)
