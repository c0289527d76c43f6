"""The snapshot of a source directory: every agent of a job imports the same files.

The rules of ``.amlignore`` or ``.gitignore`` say which files are left out.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import secrets
import shutil
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.protocol.messages import LinkedFile
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.own_folders import of_plugins
from daskprs._folders.unfinished import is_unfinished
from daskprs._output.journal.changes import is_log
from daskprs._system.file_lock import boot_id
from daskprs._system.private_folder import keep_private
from daskprs.errors import ScriptError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

RULE_FILES = (".amlignore", ".gitignore")
"""The first one that is there counts, as Azure has it."""
ALWAYS = {".git", "__pycache__"}
LARGEST_BYTES = 300 << 20
LARGEST_COUNT = 50_000
LINKED_BYTES = 10 << 20
"""Larger files are linked into a snapshot, and known by their size and time."""
SHOWN = 5
DIGEST_CHARS = 24
OWN_OUTPUT = (1, 2)
"""Descriptors of this process that may be files beside the script."""


def source_files(root: Path, exclude: Collection[Path] = ()) -> dict[str, int]:
    """Return the sizes of the files that a snapshot takes, in order of path.

    Folders and files in `exclude` (job folders, the input, the output) are left out besides what
    the ignore rules say. Too many files, or too large ones besides those that are linked, are a
    `ScriptError`.
    """
    rules = IgnoreRules(root)
    left_out = {path.resolve() for path in exclude}
    found: dict[str, int] = {}
    own = own_output(root)
    size = 0
    for path in _walk(root, "", rules, left_out, set()):
        if path in own:
            continue
        found[path] = (root / path).stat().st_size
        size += 0 if is_large(found[path]) else found[path]
        if size > LARGEST_BYTES or len(found) > LARGEST_COUNT:
            raise ScriptError(_too_large(root, found))
    return dict(sorted(found.items()))


def is_large(size: int) -> bool:
    """Say whether a file of this size in bytes is linked into a snapshot."""
    return size > LINKED_BYTES


def refuse_too_large(root: Path, files: Mapping[str, int], why: str = "") -> None:
    """Refuse files that are too large to travel where none of them is linked."""
    if sum(files.values()) > LARGEST_BYTES:
        raise ScriptError(_too_large(root, files, why))


def own_output(root: Path) -> set[str]:
    """Return the files below a folder that this process writes to: ``daskprs run … > log.txt``."""
    found = set()
    root = root.resolve()
    for fd in OWN_OUTPUT:
        with suppress(OSError):  # it may have been closed
            path = Path(f"/proc/self/fd/{fd}").readlink()
            if path.is_relative_to(root):
                found.add(str(path.relative_to(root)))
    return found


def digests_of(root: Path, files: Iterable[str]) -> dict[str, str]:
    """Return a digest of the content of each file, by path; of a large file, its size and time."""
    found = {}
    for path in files:
        status = (root / path).stat()
        is_read = not is_large(status.st_size)
        found[path] = digest_of(root / path) if is_read else version_of(status)
    return found


def digest_of(file: Path) -> str:
    """Return a digest of the content of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:DIGEST_CHARS]


def version_of(status: os.stat_result) -> str:
    """Return the size and the time of a file."""
    return f"{status.st_size} bytes, {status.st_mtime_ns} ns"


def inode_of(status: os.stat_result) -> str:
    """Return an identity of a file that no other file of this machine has."""
    return f"{boot_id()} {status.st_dev} {status.st_ino}"


def linked_files(root: Path, files: Mapping[str, int]) -> tuple[LinkedFile, ...]:
    """Return those files that are linked into a snapshot."""
    found = []
    for path in (path for path, size in files.items() if is_large(size)):
        place = (root / path).resolve()
        status = place.stat()
        version = "" if is_log(path) else version_of(status)
        found.append(LinkedFile(path, str(place), version, inode_of(status)))
    return tuple(found)


def is_seen(file: LinkedFile) -> bool:
    """Say whether this process can read the original of a link, and not another file of its name.

    On the driver's machine it may have changed since the job began. Elsewhere that would be taken
    for another file.
    """
    try:
        status = Path(file.place).stat()
    except OSError:
        return False
    is_same = file.version in ("", version_of(status)) or file.inode == inode_of(status)
    return is_same and os.access(file.place, os.R_OK)


def link_into(folder: Path, files: Iterable[LinkedFile]) -> None:
    """Put links to large files into the folder of a snapshot."""
    for file in files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).symlink_to(file.place)


def content_hash(digests: dict[str, str]) -> str:
    """Return a hash of names and contents."""
    whole = hashlib.sha256()
    for path, digest in digests.items():
        whole.update(f"{path}\0{digest}\0".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()[:DIGEST_CHARS]


def copy_snapshot(
    root: Path,
    files: Iterable[str],
    folder: Path,
    digest: str,
    linked: Collection[LinkedFile] = (),
) -> Path:
    """Copy the files to a folder named by their hash, but for the `linked` ones, and return it.

    The folder gets its name when it is complete. An existing folder has the same content.
    """

    def copy(part: Path) -> None:
        for path in sorted({*files} - {file.path for file in linked}):
            (part / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path, part / path)
        link_into(part, linked)

    return made_folder(folder / digest, copy)


def unpack(archive: bytes, folder: Path, linked: Collection[LinkedFile] = ()) -> Path:
    """Unpack an archive into a folder named by its hash, link files into it, and return it."""

    def fill(part: Path) -> None:
        extract(io.BytesIO(archive), part)
        link_into(part, linked)

    whole = hashlib.sha256(archive)
    for file in linked:
        told = f"{file.path}\0{file.place}\0{file.version}\0"
        whole.update(told.encode("utf-8", "surrogateescape"))
    return made_folder(folder / whole.hexdigest()[:DIGEST_CHARS], fill)


def made_folder(target: Path, fill: Callable[[Path], None]) -> Path:
    """Return a folder, which is filled under another name if it does not exist."""
    if target.exists():
        return target
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    part.mkdir(parents=True)
    try:
        fill(part)
        keep_private(part)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    try:
        part.rename(target)
    except OSError:  # another driver was first
        shutil.rmtree(part)
    return target


def archive_of(root: Path, files: Iterable[str]) -> bytes:
    """Return the files as an archive, for a node that unpacks it by `extract`."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz", compresslevel=1, dereference=True) as archive:
        for path in files:
            archive.add(root / path, arcname=path)
    return sink.getvalue()


def extract(archive: IO[bytes], folder: Path) -> None:
    """Unpack an archive of ours, compressed or not, into a folder."""
    safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(fileobj=archive) as files:
        files.extractall(folder, **safely)  # noqa: S202 - the driver's own archive  # nosec B202


def _walk(
    root: Path, below: str, rules: IgnoreRules, left_out: set[Path], seen: set[Path]
) -> Iterator[str]:
    """Yield files below a folder; links are followed, a loop of them is not."""
    here = (root / below).resolve()
    if here in seen or here in left_out:
        return
    seen.add(here)
    for entry in sorted(os.scandir(root / below), key=lambda entry: entry.name):
        path = f"{below}/{entry.name}" if below else entry.name
        try:
            is_folder = entry.is_dir()
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link to itself leads nowhere, as one to nothing
                continue
            raise
        if rules.ignores(path, is_folder=is_folder):
            continue
        if is_folder and not _is_other_content(Path(entry.path)):
            yield from _walk(root, path, rules, left_out, seen)
        elif not is_folder and entry.is_file() and not _is_left_out(here, entry, left_out):
            yield path


def _is_left_out(here: Path, entry: os.DirEntry[str], left_out: set[Path]) -> bool:
    place = Path(entry.path).resolve() if entry.is_symlink() else here / entry.name
    return place in left_out


def _is_other_content(folder: Path) -> bool:
    """Say whether a folder is another job or run, a folder of ours, or an environment."""
    names, marks = of_plugins()
    if folder.name in names or JobFolder(folder).epoch(1).exists():
        return True
    return any((folder / one).exists() for one in (*marks, "pyvenv.cfg", "conda-meta"))


def _too_large(root: Path, found: Mapping[str, int], why: str = "") -> str:
    largest = sorted(found, key=lambda path: -found[path])[:SHOWN]
    shown = ", ".join(
        f"{path} ({found[path] / (1 << 20):.1f} MiB)"
        for path in largest
        if found[path] > LARGEST_BYTES / 100
    )
    return (
        f"the source directory {root} is too large to travel to the agents{why}: more than "
        f"{LARGEST_BYTES >> 20} MiB or {LARGEST_COUNT} files"
        f"{f'. The largest so far: {shown}' if shown else ''}. Give a smaller source_directory, "
        "list what is not source in a .amlignore or .gitignore file, or name large files that the "
        "script reads as side_inputs."
    )


class Rule(NamedTuple):
    """One line of a rule file."""

    pattern: re.Pattern[str]
    negated: bool
    only_folders: bool


class IgnoreRules:
    """The rules of the first rule file in the root of a folder."""

    def __init__(self, root: Path) -> None:
        file = next((root / name for name in RULE_FILES if (root / name).is_file()), None)
        lines = [] if file is None else file.read_text("utf-8", "replace").splitlines()
        self._rules = [rule for rule in map(_rule, lines) if rule is not None]

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Say whether a path, relative to the root with ``/``, is left out; the last rule wins."""
        name = path.rpartition("/")[2]
        if name in ALWAYS or is_unfinished(name):  # another job's output, soon gone
            return True
        for rule in reversed(self._rules):
            if (is_folder or not rule.only_folders) and rule.pattern.fullmatch(path):
                return not rule.negated
        return False


def _rule(line: str) -> Rule | None:
    """Return the rule of a line; None for a line that matches nothing, such as a comment."""
    if line.startswith("#"):
        return None
    text = re.sub(r"(?<!\\)\s+$", "", line)
    negated = text.startswith("!")
    text = text.removeprefix("!").removeprefix("\\")
    only_folders = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    anchored = "/" in text
    body = "".join(map(_translated, _TOKEN.findall(text.removeprefix("/"))))
    try:
        pattern = re.compile(body if anchored else f"(?:.*/)?{body}")
    except re.error:  # a range such as [z-a], which matches nothing for git either
        return None
    return Rule(pattern, negated, only_folders)


_TOKEN = re.compile(r"\*\*/|/\*\*$|\*+|\?|\[!?\]?[^\]]*\]|\\.|.", re.DOTALL)


def _translated(token: str) -> str:
    match token:
        case "**/":
            return "(?:.*/)?"
        case "/**":
            return "/.*"
        case "?":
            return "[^/]"
    if set(token) == {"*"}:
        return "[^/]*"
    if len(token) > 1 and token.startswith("["):
        return "(?!/)[^" + token[2:] if token.startswith("[!") else token
    return re.escape(token.removeprefix("\\") if len(token) > 1 else token)
