"""Bearer tokens: who may use the service, for how long, and which service."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from daskprs._serve.http_errors import unauthorized
from daskprs._serve.rate_limits import MOST_PER_S
from daskprs._system.linux import erase_variable
from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.form import Form, filled, works
from daskprs.azure._yaml_files.mistakes import Mistake, refuse, whole
from daskprs.errors import OptionError, YamlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

VARIABLE = "DASKPRS_SERVE_TOKENS"
"""The environment variable that may hold the content of a token file."""
SHORTEST = 16
CHARACTERS = f"at least {SHORTEST} letters, digits or signs of ASCII, without spaces"
_TOKEN = re.compile(rf"[!-~]{{{SHORTEST},}}")
_ITEM = re.compile(r"tokens(\[\d+\])?")
_PLACE = re.compile(r"^.*?:[0-9]+:[0-9]+(?=: )", re.MULTILINE)
_SHA256 = re.compile("[0-9a-fA-F]{64}")


READ, RUN, CANCEL = "read", "run", "cancel"
ROLES = (READ, RUN, CANCEL)


class TokenForm(Form):
    """One token of a file. What is secret of it is checked here: no message may show it."""

    name: str = works()
    token: Any = works(None)
    sha256: Any = works(None)
    audience: str | None = works(None)
    expires: str | None = works(None)
    roles: list[Literal["read", "run", "cancel"]] = works(ROLES, min_length=1)
    requests_per_s: float | None = works(None, gt=0, le=MOST_PER_S, strict=True)


class TokensForm(Form):
    """A file of tokens."""

    tokens: list[TokenForm] = works(min_length=1)


class Token(NamedTuple):
    """One token, compared by its hash."""

    name: str
    digest: bytes
    audience: str | None = None
    """The service that the token is for; None: any service that knows the token."""
    expires: datetime | None = None
    roles: Sequence[str] = ROLES
    """The roles of the holder."""
    requests_per_s: float | None = None
    """The holder's limit in the long run; None: that of the service."""


class Tokens:
    """The tokens that a service knows; it rejects tokens for another audience than its own."""

    def __init__(self, known: Sequence[Token], audience: str) -> None:
        self._known = tuple(known)
        self.audience = audience

    @classmethod
    def given(cls, path: str | None, audience: str) -> Tokens:
        """Read the tokens from a file, or from the environment when no file is named.

        Their hashes are kept alone, and the environment does not show them any more.
        """
        if path is not None:
            erase_variable(VARIABLE)
            _refuse_open_file(Path(path))
            return cls(_tokens(_document(lambda: Document.read(path))), audience)
        text = os.environ.get(VARIABLE, "").strip()
        erase_variable(VARIABLE)
        if not text:
            msg = (
                "serve: no tokens are given, and a service without tokens is of no use. Name a "
                f"file of tokens by --tokens, or set the environment variable {VARIABLE}."
            )
            raise OptionError(msg)
        return cls(_tokens(_document(lambda: Document(text, VARIABLE))), audience)

    def holder(self, authorization: str | None, now: datetime) -> Token:
        """Return the token in a header ``Authorization``.

        The header is compared with every known token in constant time, so that the duration
        reveals nothing about the tokens.
        """
        kind, _, given = (authorization or "").strip().partition(" ")
        if kind.lower() != "bearer" or not given.strip():
            raise unauthorized("MissingToken", "Send a token: Authorization: Bearer <token>.")
        digest = hashlib.sha256(given.strip().encode(errors="surrogateescape")).digest()
        found = None
        for token in self._known:
            if hmac.compare_digest(token.digest, digest):
                found = token
        if found is None:
            raise unauthorized("InvalidToken", "This service does not know the token.")
        if found.expires is not None and found.expires <= now:
            raise unauthorized("ExpiredToken", f"The token has expired at {found.expires}.")
        if found.audience not in {None, self.audience}:
            message = f"The token is for the audience {found.audience}; here it is {self.audience}."
            raise unauthorized("InvalidAudience", message)
        return found


def _document(read: Callable[[], Document]) -> Document:
    """Return the document of tokens; for invalid YAML report only the place of the mistake."""
    try:
        return read()
    except YamlError as error:
        places = _PLACE.findall(str(error))
        if not places:  # the file is missing, or cannot be read
            raise
        wrong = "this is not YAML, or a key twice; the text is not shown, since it may be a token"
        raise YamlError("\n".join(f"{place}: {wrong}" for place in places)) from None


def _unshown(mistake: Mistake) -> Mistake:
    """Return a mistake without its value or key, which may be a misplaced token."""
    found = _ITEM.match(mistake.key)
    item = found[0] if found else ""
    key = mistake.key.removeprefix(item).removeprefix(".")
    told = mistake.told.partition(", not ")[0]
    if re.sub(r"\[[0-9]+\]$", "", key) in {"", *TokenForm.model_fields} or "did you mean" in told:
        return mistake._replace(told=told)
    return mistake._replace(key=item, told=f"it has an unknown key;{told.rpartition(';')[2]}")


def _tokens(document: Document) -> list[Token]:
    """Return the tokens in a document: one token as plain text, or the form."""
    if isinstance(document.content, str):
        if not _TOKEN.fullmatch(document.content):
            msg = f"{document.name}: a token has {CHARACTERS}."
            raise YamlError(msg)
        return [Token("token", digest_of(document.content))]
    form, mistakes = filled(TokensForm, document.content, document)
    form = whole(form, map(_unshown, mistakes))
    refuse(
        Mistake(document.place(("tokens", at)), f"tokens[{at}]", rule)
        for at, one in enumerate(form.tokens)
        for rule in _broken_rules(one)
    )
    return [
        Token(
            one.name,
            bytes.fromhex(one.sha256) if one.sha256 else digest_of(one.token),
            one.audience,
            None if one.expires is None else datetime.fromisoformat(one.expires),
            tuple(one.roles),
            one.requests_per_s,
        )
        for one in form.tokens
    ]


def _broken_rules(form: TokenForm) -> Iterator[str]:
    if (form.token is None) == (form.sha256 is None):
        yield "give either its token or the sha256 of it"
    elif form.sha256 is not None and not _SHA256.fullmatch(str(form.sha256)):
        yield "sha256: write 64 hexadecimal digits, in quotes"
    elif form.token is not None and not (
        isinstance(form.token, str) and _TOKEN.fullmatch(form.token)
    ):
        yield f"token: write {CHARACTERS}, in quotes"
    if form.expires is not None:
        try:
            aware = datetime.fromisoformat(form.expires).tzinfo is not None
        except ValueError:
            aware = False
        if not aware:
            yield "expires: write a time with its zone, as 2027-01-31T12:00:00Z"


def digest_of(token: str) -> bytes:
    """Return the hash by which a token is compared."""
    return hashlib.sha256(token.encode()).digest()


def _refuse_open_file(path: Path) -> None:
    """Refuse a file that every user of the machine can read or change."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # reading the file will report the error
    if stat.S_ISREG(mode) and mode & (stat.S_IROTH | stat.S_IWOTH):
        msg = (
            f"--tokens {path}: everybody on this machine can read it or write to it. Make it "
            f"yours alone: chmod 600 {path}"
        )
        raise OptionError(msg)
