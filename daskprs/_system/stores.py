"""Stores of objects: the file system behind a URL, or the extra that brings it."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any, NamedTuple


class StoreExtra(NamedTuple):
    """An extra of daskprs that opens a store."""

    name: str
    package: str
    """The package by which fsspec opens the store."""
    protocols: tuple[str, ...]
    """The beginnings of its URLs."""


STORE_EXTRAS = (
    StoreExtra("s3", "s3fs", ("s3", "s3a")),
    StoreExtra("azure", "adlfs", ("az", "abfs", "abfss")),
    StoreExtra("gcs", "gcsfs", ("gs", "gcs")),
)


BESIDE_ACCOUNT = ("abfs", "abfss", "wasb", "wasbs")
"""Protocols of Azure whose URLs name a container before the ``@``, and no secret."""


def plain_address(address: str) -> str:
    """Return an address, or a path, without its user and its query, which may hold secrets."""
    protocol, mark, place = address.partition("://")
    if not mark:
        return address
    by, more = protocol.rpartition("::")[2], ""
    if by in ("http", "https"):
        place, *queries = re.split(r"(?=[?#])", place, maxsplit=1)
        more = f"{queries[0][0]}…" if queries else ""
    host, slash, path = place.partition("/")
    if "@" in host and by not in BESIDE_ACCOUNT:
        host = f"…@{host.rpartition('@')[2]}"
    return f"{protocol}://{host}{slash}{path}{more}"


def open_store(url: str) -> tuple[Any, str]:
    """Return the file system of fsspec that a URL names, and the path in it.

    Raise `ImportError` where its package is not installed, with the extra that brings it, and
    `ValueError` where fsspec does not know such URLs, or lacks what the store needs.
    """
    import fsspec

    try:
        filesystem, place = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        protocol = url.rpartition("::")[2].partition("://")[0]
        for extra in STORE_EXTRAS:
            if protocol in extra.protocols and find_spec(extra.package) is None:
                msg = (
                    f"{extra.package}, which opens {protocol}://, is not installed. Install the "
                    f'extra: pip install "daskprs[{extra.name}]"'
                )
                raise ImportError(msg) from error
        raise
    return filesystem, place


def no_bucket(filesystem: Any, place: str) -> str:
    """Return a sentence about the bucket of a path if the store has none of its name, else ''.

    Some users may write to a bucket and not ask for it: s3fs says of such a one that it does not
    exist, and of its files that they may not be listed.
    """
    protocols = filesystem.protocol
    names = {protocols} if isinstance(protocols, str) else {*protocols}
    bucket = place.strip("/").partition("/")[0]
    if names.isdisjoint(name for extra in STORE_EXTRAS for name in extra.protocols) or not bucket:
        return ""
    try:
        if not filesystem.exists(bucket):
            filesystem.ls(bucket)
    except FileNotFoundError:
        return f" There is no bucket {bucket!r} in this store."
    except Exception:  # noqa: BLE001 - each store has errors of its own
        return ""
    return ""
