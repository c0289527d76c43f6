"""Side inputs: named files and folders that a script reads besides mini-batches, e.g. a model."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._agent.protocol.messages import SideInput
from daskprs._suggest import nearest
from daskprs.errors import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from os import PathLike


VERSION_CHARS = 24


def check_side_inputs(given: Mapping[str, str | PathLike[str]] | None) -> None:
    """Reject side inputs that do not exist."""
    for name, path in (given or {}).items():
        if not Path(path).exists():
            missing = f": the file or folder {str(path)!r} does not exist.{nearest(path)}"
            raise OptionError(Option("side_inputs", {name: str(path)}), missing)


def side_inputs_of(given: Mapping[str, str | PathLike[str]] | None) -> tuple[SideInput, ...]:
    """Return the side inputs with their current versions."""
    return tuple(
        SideInput(name, str(path), version_of(Path(path))) for name, path in (given or {}).items()
    )


def version_of(path: Path) -> str:
    """Return the version digest of a file or folder; empty if it does not exist."""
    digest = hashlib.sha256()
    try:
        for below, status in _files(path):
            line = f"{below}\0{status.st_size}\0{status.st_mtime_ns}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
    except OSError:
        return ""
    return digest.hexdigest()[:VERSION_CHARS]


def placed(words: Iterable[str], moved: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return arguments, or values of variables, with paths as they are elsewhere.

    A word that is such a path, or one below it, is replaced; so is what follows the ``=`` of a
    flag.
    """
    return tuple(_placed(word, moved) for word in words)


def _placed(word: str, moved: Sequence[tuple[str, str]]) -> str:
    flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    for there, here in moved:
        if value == there or value.startswith(f"{there}/"):
            return f"{flag}{equals}{here}{value[len(there) :]}"
    return word


def _files(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files below a path in a fixed order, with their `os.stat` results."""
    if not path.is_dir():
        yield path.name, path.stat()
        return
    for folder, folders, names in os.walk(path, followlinks=True):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            yield str(file.relative_to(path)), file.stat()
