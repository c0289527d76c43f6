"""Tokens: read from a file or the environment, compared, and refused for a reason."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from daskprs._serve.http_errors import Refusal
from daskprs._serve.tokens import VARIABLE, Tokens
from daskprs.errors import OptionError, YamlError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.attack

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
        tokens.holder(authorization, now)
    assert caught.value.status == 401
    assert caught.value.headers["WWW-Authenticate"].startswith("Bearer")
    return caught.value.code


def test_a_file_that_holds_nothing_but_a_token_is_one(file: Path) -> None:
    """As secrets are mounted by systems that keep them."""
    file.write_text(f"{SECRET}\n")
    tokens = Tokens.given(str(file), HOME)
    assert tokens.holder(f"Bearer {SECRET}", NOW).name == "token"
    assert tokens.holder(f"bearer  {SECRET} ", NOW).name == "token"


def test_a_token_may_be_kept_as_its_hash(file: Path) -> None:
    """Who reads the file then has no token."""
    file.write_text(
        f"tokens: [{{name: ann, sha256: {hashlib.sha256(SECRET.encode()).hexdigest()}}}]"
    )
    assert Tokens.given(str(file), HOME).holder(f"Bearer {SECRET}", NOW).name == "ann"


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
    assert tokens.holder(f"Bearer {SECRET}", NOW.replace(hour=11)).name == "a"
    assert refused(tokens, f"Bearer {SECRET}") == "ExpiredToken"
    assert refused(tokens, f"Bearer {SECRET}-b") == "InvalidAudience"
    elsewhere = Tokens.given(str(file), "https://elsewhere")
    assert elsewhere.holder(f"Bearer {SECRET}-b", NOW).name == "b"


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


def test_a_token_has_every_role_unless_its_file_says_which(file: Path) -> None:
    """And no limit of its own."""
    file.write_text(
        f"tokens: [{{name: a, token: {SECRET}}}, "
        f"{{name: b, token: {SECRET}-b, roles: [read, cancel], requests_per_s: 0.5}}]"
    )
    tokens = Tokens.given(str(file), HOME)
    a, b = (tokens.holder(f"Bearer {SECRET}{end}", NOW) for end in ("", "-b"))
    assert (a.roles, a.requests_per_s) == (("read", "run", "cancel"), None)
    assert (b.roles, b.requests_per_s) == (("read", "cancel"), 0.5)


@pytest.mark.parametrize(
    "wrong",
    ["roles: []", "roles: [admin]", "roles: read", "requests_per_s: 0", "requests_per_s: .nan"],
)
def test_roles_and_limits_that_mean_nothing_are_refused(file: Path, wrong: str) -> None:
    """With the place of the mistake."""
    file.write_text(f"tokens: [{{name: a, token: {SECRET}, {wrong}}}]")
    with pytest.raises(YamlError, match=f"{file}:1:.*{wrong.partition(':')[0]}"):
        Tokens.given(str(file), HOME)


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
        f"tokens: [{{name: a, token: {SECRET}, roles: [{SECRET}]}}]",
        f"tokens: [{{name: a, token: {SECRET}, roles: [{{{SECRET}: 1}}]}}]",
        f"tokens: [{{name: a, token: {SECRET}, requests_per_s: {SECRET}}}]",
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
        assert Tokens.given(str(file), HOME).holder(f"Bearer {secret[1:-1]}", NOW).name == "a"
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
    assert Tokens.given(None, HOME).holder(f"Bearer {SECRET}", NOW).name == "ann"
    monkeypatch.setenv(VARIABLE, " ")
    with pytest.raises(OptionError, match=VARIABLE):
        Tokens.given(None, HOME)


READ_AGAIN = """
import os, sys
from pathlib import Path
from daskprs._serve.tokens import VARIABLE, Tokens
assert os.environ["SECRET"] in Path("/proc/self/environ").read_text().partition("SECRET=")[0]
Tokens.given(sys.argv[1] if sys.argv[1:] else None, "here")
print(Path("/proc/self/environ").read_text().count(os.environ["SECRET"]), VARIABLE in os.environ)
"""


@pytest.mark.attack
@pytest.mark.cold  # of a fork, `/proc` shows the variables of the template
@pytest.mark.parametrize("by_file", [False, True])
def test_the_environment_shows_no_token_once_it_was_read(file: Path, by_file: bool) -> None:  # noqa: FBT001 - pytest's
    """Neither to this process nor in `/proc`, also where a file of tokens counts instead."""
    file.write_text(SECRET)
    given = {VARIABLE: f"{SECRET}-of-environment", "SECRET": f"{SECRET}-of-environment"}
    words = [sys.executable, "-c", READ_AGAIN, *([str(file)] if by_file else [])]
    done = subprocess.run(
        words, env={**given, **os.environ}, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["1", "False"], done.stderr
