"""Pickles with a keyed checksum: only a holder of the key can make one that is loaded.

To unpickle is to run what the pickle says. A file of a job folder may be another user's, who copied
it there or wrote into a shared folder. So each pickle carries a checksum that is keyed with a
secret of the owner. A pickle is loaded only where the checksum is right, where daskprs made the
folder private for the reader, or where the reader says that the folder can be trusted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from typing import IO, Any, NamedTuple

from daskprs._system.regular_files import OTHERS_WRITE
from daskprs._system.user_key import KEY_BYTES, user_key
from daskprs.errors import JournalError

TAG_BYTES = 16


class SealKey(bytes):
    """A key, which no message or log shows."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Hide the key."""
        return "SealKey(***)"


NO_KEY = SealKey()


def derived_key(purpose: str) -> SealKey:
    """Return a key of this user for one purpose."""
    return SealKey(hmac.digest(user_key(), purpose.encode(), "sha256"))


def new_key() -> SealKey:
    """Return a key for files that no later process reads."""
    return SealKey(secrets.token_bytes(KEY_BYTES))


def checksum(key: SealKey) -> Any:
    """Return a keyed checksum, to be updated with a pickle; its digest has `TAG_BYTES`."""
    return hashlib.blake2b(key=key, digest_size=TAG_BYTES)


class Seal(NamedTuple):
    """The key and the trust with which a reader unpickles the content of a folder."""

    key: SealKey = NO_KEY
    """The key of the pickles; empty where the folder has none."""
    is_trusted: bool = False
    """Whether pickles are loaded whoever has made them."""
    is_own: bool = False
    """Whether daskprs made the folder private for this very user: files of this user in it are the
    user's own doing, and need no checksum."""

    def of(self, file: IO[bytes]) -> Seal:
        """Return the seal of the pickles in an open file of the folder."""
        status = os.fstat(file.fileno())
        is_own = status.st_uid == os.geteuid() and not status.st_mode & OTHERS_WRITE
        return self._replace(is_trusted=self.is_trusted or (self.is_own and is_own))

    def check(self, body: bytes | bytearray, tag: bytes, what: str) -> None:
        """Raise `JournalError` where the checksum of pickles is wrong."""
        if self.is_trusted:
            return
        right = checksum(self.key)
        right.update(body)
        if not self.key or not hmac.compare_digest(right.digest(), tag):
            raise unsealed(what)


def unsealed(what: str) -> JournalError:
    """Return the error for a pickle that this user's key has not made."""
    return JournalError(
        f"{what} has Python objects in it, and their checksum is not one of your key. Another "
        "user may have written them, or you: on a machine with another key. "
        "To load such objects can run code. If you trust whoever wrote the folder, read the rows "
        "by result.trusted().to_pandas() and the like."
    )
