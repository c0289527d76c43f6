"""The key of this user, by which values that are not written down are compared later."""

from __future__ import annotations

import errno
import hashlib
import hmac
import logging
import os
import secrets
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

KEY_BYTES = 32
WRITTEN_WITHIN_S, LOOK_EVERY_S = 2.0, 0.02
DIGEST_CHARS, NAME_CHARS = 32, 8
_log = logging.getLogger(__name__)


def user_key_file() -> Path:
    """Return the file of the key, in the state directory of the user."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111 - it never raises
    return Path(state, "daskprs", "key")


@cache
def user_key() -> bytes:
    """Return the key, which the first use makes.

    Where the key cannot be kept, it is that of this process, and a warning says what follows.
    """
    file = user_key_file()
    try:
        if not file.exists():
            _make(file)
        if _is_cut_off(file):  # by a crash
            file.unlink(missing_ok=True)
            _make(file)
        return _read(file)
    except OSError as error:
        _log.warning(
            "The key of this user cannot be kept in %s: %s. So later processes cannot read Python "
            "objects in job folders that are shared or are copied, and cannot resume a job that "
            "has environment variables. Set XDG_STATE_HOME to a folder that lasts, and that only "
            "you can write to.",
            file,
            error.strerror,
        )
        return secrets.token_bytes(KEY_BYTES)


def _is_cut_off(file: Path) -> bool:
    """Say whether the key lacks its end; without hard links, another process may be writing it."""
    until_s = time.monotonic() + WRITTEN_WITHIN_S
    while file.stat().st_size != KEY_BYTES:
        if time.monotonic() > until_s:
            return True
        time.sleep(LOOK_EVERY_S)
    return False


def _read(file: Path) -> bytes:
    """Read a key of this user: whoever owns the file could seal objects that are loaded here."""
    with file.open("rb") as opened:
        if os.fstat(opened.fileno()).st_uid != os.geteuid():  # the home is another user's, by su
            raise PermissionError(errno.EPERM, "it belongs to another user")
        return opened.read()


def _make(file: Path) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        _write(part)
        with suppress(FileExistsError):  # another process was first
            try:
                # By a link, which fails where another process was first: all processes take its
                # key.
                os.link(part, file)
            except FileExistsError:
                raise
            except OSError:  # the file system has no hard links
                _write(file)
    finally:
        part.unlink(missing_ok=True)


def _write(file: Path) -> None:
    """Write a new key into a new file."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
        new.write(secrets.token_bytes(KEY_BYTES))
        new.flush()
        os.fsync(new.fileno())


def keyed_digest(text: str, key: bytes | None = None) -> list[str]:
    """Return a digest of a text that only a holder of the key can make, after the key's name."""
    key = key or user_key()
    digest = hmac.new(key, text.encode("utf-8", "surrogateescape"), "sha256").hexdigest()
    return [hashlib.sha256(key).hexdigest()[:NAME_CHARS], digest[:DIGEST_CHARS]]
