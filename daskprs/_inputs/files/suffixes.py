"""Derive the kind and compression of files from their names."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from daskprs._inputs.source.input_file import name_of
from daskprs.errors import InputError, Option

if TYPE_CHECKING:
    from collections.abc import Iterable

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz", ".zip": "zip"}
"""Compressions of text, by the suffix behind that of the table."""
MAGIC = {
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"BZh": ".bz2",
    b"\xfd7zXZ\0": ".xz",
    b"PK\x03\x04": ".zip",
    b"PAR1\x15": ".parquet",
}
"""The first bytes of compressed files and of Parquet files, and their suffixes."""
SKIPPABLE_OF_ZST = b"\x2a\x4d\x18"
"""What follows the first byte of a .zst file that begins with a frame to be skipped (pzstd)."""
BLOCK_OF_BZ2 = b"1AY&SY"
"""What follows the mark and the level in a .bz2 file; a text may begin with the mark alone."""


class TableKind(Enum):
    """Kinds of tables."""

    PARQUET = "parquet"
    DELIMITED = "delimited"
    JSON_LINES = "json_lines"


SUFFIXES = {
    ".parquet": TableKind.PARQUET,
    ".pq": TableKind.PARQUET,
    ".csv": TableKind.DELIMITED,
    ".tsv": TableKind.DELIMITED,
    ".jsonl": TableKind.JSON_LINES,
    ".ndjson": TableKind.JSON_LINES,
}


def kind_of(path: str) -> TableKind | None:
    """Return the kind of table by the suffix of a name; None for any other file."""
    return SUFFIXES.get(plain_suffix_of(path))


def plain_suffix_of(path: str) -> str:
    """Return the suffix of a name without that of a compression, in lower case, with its dot."""
    name = name_of(path).lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return name[name.rfind(".") :]


def suffix_of(path: str) -> str:
    """Return the suffix of a name in lower case, with its dot; empty without one."""
    name = name_of(path).lower()
    return name[name.rfind(".") :] if "." in name else ""


def mixed_kinds(examples: Iterable[str]) -> str:
    """Return the message about files of several kinds in one input."""
    return (
        f"the input mixes kinds of files: {' and '.join(map(repr, examples))}. Say "
        f"{Option('input_type', 'files')} to get paths, or name the files of one kind."
    )


def compression_of(path: str) -> str | None:
    """Return the compression, such as ``gzip``, by the suffix of a name, or None."""
    return COMPRESSIONS.get(path[path.rfind(".") :].lower())


def begins_as(suffix: str, head: bytes) -> bool:
    """Say whether files of a compression may begin with these bytes."""
    if suffix == ".zst" and head[1:4] == SKIPPABLE_OF_ZST:
        return True
    mark = next((mark for mark, one in MAGIC.items() if one == suffix), b"")
    return head.startswith(mark[: len(head)])


def magic_of(head: bytes) -> str:
    """Return the suffix of files that begin with these bytes; empty for plain text."""
    found = next((suffix for mark, suffix in MAGIC.items() if head.startswith(mark)), "")
    return "" if found == ".bz2" and head[4:] != BLOCK_OF_BZ2 else found


def kind_of_all(paths: Iterable[str], *, strict: bool) -> TableKind | None:
    """Return the kind that all files have; None when none of them is a table.

    A mixture is an `InputError`; with `strict`, so are files of no kind.
    """
    examples: dict[TableKind | None, str] = {}
    for path in paths:
        examples.setdefault(kind_of(path), path)
    if len(examples) > 1:
        raise InputError(mixed_kinds(examples.values()))
    kind, example = next(iter(examples.items()), (None, None))
    if kind is None and strict and example is not None:
        msg = (
            f"{Option('input_type', 'table')}: the suffix of {example!r} is none of "
            f"{', '.join(SUFFIXES)}, and no installed package reads it. Give the "
            f"{Option('delimiter')} of delimited text under another name."
        )
        raise InputError(msg)
    return kind
