"""The keys of a job: for its rows, which its agents, too, have, and for its variables.

Agents write pickles of Python objects into their spools, with a checksum that the key of the rows
makes. The journal has digests of the values of environment variables, which the key of the
variables makes. Both are made of the user's own key, which stays with the user, and of the salt in
the job folder.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from daskprs._system.atomic_file import whole_file
from daskprs._system.private_folder import is_made_private
from daskprs._system.regular_files import read_regular
from daskprs._system.seal import NO_KEY, Seal, SealKey, derived_key
from daskprs._system.user_key import user_key

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder

MOST_SALT_BYTES = 64


def make_salt(folder: JobFolder, salt: str = "") -> None:
    """Write the salt of a job folder, unless the folder has one."""
    if not folder.salt.exists():
        with whole_file(folder.salt) as file:
            file.write((salt or secrets.token_hex(16)).encode())


def key_for(salt: str) -> SealKey:
    """Return this user's key for the rows of a job."""
    return derived_key(f"rows {salt}")


def labels_key() -> SealKey:
    """Return this user's key of row labels, which no agent has."""
    return derived_key("row labels")


def rows_key(folder: JobFolder) -> SealKey:
    """Return the key of a job's rows; `NO_KEY` for a folder without a salt."""
    if folder.key:
        return folder.key
    salt = _salt(folder)
    return NO_KEY if salt is None else key_for(salt)


def objects_key() -> SealKey:
    """Return this user's key of the objects of a call, which no agent has."""
    return derived_key("objects of a call")


def clusters_key() -> SealKey:
    """Return this user's key of the clusters that carry drivers, which no agent has."""
    return derived_key("clusters")


def variables_key_for(salt: str) -> SealKey:
    """Return this user's key for the environment variables of a job."""
    return derived_key(f"variables {salt}")


def variables_key(folder: JobFolder) -> bytes:
    """Return the key for a job's environment variables; the user's own without a salt."""
    salt = _salt(folder)
    return user_key() if salt is None else variables_key_for(salt)


def _salt(folder: JobFolder) -> str | None:
    try:
        return read_regular(folder.salt, MOST_SALT_BYTES).decode("ascii", "replace")
    except FileNotFoundError:
        return None


def rows_seal(folder: JobFolder) -> Seal:
    """Return the seal of the pickles in a job's rows."""
    return Seal(rows_key(folder), folder.is_trusted, is_made_private(folder.path))


def labels_seal(folder: JobFolder) -> Seal:
    """Return the seal of the pickles among a job's row labels."""
    return Seal(labels_key(), folder.is_trusted, is_made_private(folder.path))


def objects_seal(folder: JobFolder) -> Seal:
    """Return the seal of the objects of a job's call."""
    return Seal(objects_key(), folder.is_trusted, is_made_private(folder.path))
