"""The code of a step together with what ``additional_includes`` puts beside it."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.script.snapshot import (
    content_hash,
    digests_of,
    is_large,
    made_folder,
    source_files,
)
from daskprs._suggest import nearest
from daskprs.azure._yaml_files.document import Document
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KEY = "additional_includes"
SUFFIX = f".{KEY}"
"""The ending of a file beside a component's file, which lists as the key does."""
ZIP = ".zip"
_HAS_KEY = re.compile(rf"^{KEY}\s*:", re.MULTILINE)


class Include(NamedTuple):
    """A file or folder that is put beside the code."""

    name: str
    """Its name there; a folder that is put there as an archive has the name of the archive."""
    place: Path

    @property
    def is_zipped(self) -> bool:
        """Whether a folder is put there as an archive."""
        return self.name.endswith(ZIP) and self.place.is_dir()


class IncludedCode(NamedTuple):
    """The code of a step, and what is put beside it."""

    code: Path | None
    includes: tuple[Include, ...]

    def made_in(self, folder: Path) -> Path:
        """Return a folder with all of it, below `folder` and named by its content.

        Files that are too many or too large are a `ScriptError`.
        """
        files, archives = self._files(), self._archives()
        whole = [*files.items(), *((name, path) for one in archives.values() for name, path in one)]
        digests = digests_of(Path("/"), (str(path) for _, path in whole))
        told = {name: digests[str(path)] for name, path in whole} | dict.fromkeys(archives, "")
        large = {name: path for name, path in files.items() if is_large(path.stat().st_size)}
        told |= {f"{name}/": str(path.resolve()) for name, path in large.items()}  # as links

        def fill(part: Path) -> None:
            for name, path in files.items():
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                if name in large:
                    (part / name).symlink_to(path.resolve())
                else:
                    shutil.copy2(path, part / name)
            for name, members in archives.items():
                _write_archive(part / name, members)

        return made_folder(folder / content_hash(told), fill)

    def _files(self) -> dict[str, Path]:
        found = {} if self.code is None else dict(_below(self.code, ""))
        for one in self.includes:
            if one.place.is_file():
                found[one.name] = one.place
            elif not one.is_zipped:
                found |= _below(one.place, f"{one.name}/")
        return found

    def _archives(self) -> dict[str, list[tuple[str, Path]]]:
        zipped = [one for one in self.includes if one.is_zipped]
        return {one.name: [*_below(one.place, f"{one.place.name}/")] for one in zipped}


def _below(root: Path, prefix: str) -> Iterable[tuple[str, Path]]:
    root = root.absolute()
    return ((f"{prefix}{path}", root / path) for path in source_files(root))


def _write_archive(path: Path, members: Iterable[tuple[str, Path]]) -> None:
    """Write an archive whose bytes depend on nothing but names and contents."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, place in members:
            archive.writestr(zipfile.ZipInfo(name), place.read_bytes(), zipfile.ZIP_DEFLATED)


def listed_beside(document: Document) -> list[Any]:
    """Return the paths in the file beside a component's file: one in each line, or as YAML."""
    path = Path(document.name).with_suffix(SUFFIX)
    if not path.is_file():
        return []
    text = path.read_text("utf-8-sig", "replace")
    if _HAS_KEY.search(text):
        content = Document.read(path).content
        listed = content.get(KEY) if isinstance(content, dict) else None
        return listed if isinstance(listed, list) else []
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def included(
    words: Iterable[Any],
    code: Path | None,
    placed: Callable[[str], Path],
    wrong: Callable[[str], None],
) -> tuple[Include, ...]:
    """Return what paths name; report those that do not exist, and names that are there twice.

    `placed` returns the local path that a word means.
    """
    found: dict[str, Include] = {}
    taken = (
        set[str]() if code is None or not code.is_dir() else {one.name for one in code.iterdir()}
    )
    for word in words:
        if not isinstance(word, str):
            wrong(f"{word!r} is fetched from nowhere here: download it, and name its local path")
            continue
        try:
            place = placed(word)
        except UsageError as error:
            wrong(str(error))
            continue
        place = Path(os.path.normpath(place.absolute()))
        name = place.name
        if not place.exists() and place.suffix == ZIP and place.with_suffix("").is_dir():
            place = place.with_suffix("")
        if not place.exists():
            wrong(f"the file or folder {place} does not exist.{nearest(place)}")
        elif name in taken or name in found:
            others = f"the code in {code}" if name in taken else str(found[name].place)
            wrong(f"{word!r} would be {name!r} beside the script, a name that {others} has already")
        else:
            found[name] = Include(name, place)
    return tuple(found.values())
