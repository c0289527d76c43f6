"""The files of the service alone, checked against what callers and jobs can reach."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import daskprs
from daskprs._system.regular_files import OTHERS_WRITE
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from daskprs._serve.allowed_paths import Roots
    from daskprs._serve.job_user import JobUser


class OwnFiles(NamedTuple):
    """The files of a service, each with the option that gives it."""

    secrets: Collection[tuple[str, Path]]
    """Keys, tokens, and the audit log: neither callers nor other users may read them."""
    code: Collection[tuple[str, Path]]
    """Files that say what jobs do: callers and other users may not change them."""
    folder: Path

    def refuse_in(self, inputs: Roots, outputs: Roots) -> None:
        """Refuse roots through which a caller could read a secret, or change what jobs do."""
        for option, path in self.secrets:
            names = names_of(path)
            for root, roots in (("--root or an asset", inputs), ("--output-root", outputs)):
                if any(map(roots.shows, names)):
                    msg = f"{option} {path}: callers could have it read: it lies in a {root}."
                    raise OptionError(msg)
        is_held = any(map(outputs.holds, names_of(self.folder)))
        if is_held or outputs.lies_in(self.folder.resolve()):
            msg = (
                f"--folder {self.folder}: callers could write into other jobs: it lies in an "
                "--output-root, or has one in it."
            )
            raise OptionError(msg)
        running = (("the Python of the service", Path(one)) for one in _running())
        for option, path in (*self.code, *running):
            if any(map(outputs.holds, names_of(path))):
                msg = f"{option} {path}: callers could replace it: it lies in an --output-root."
                raise OptionError(msg)

    def refuse_to(self, user: JobUser, inputs: Roots, outputs: Roots) -> None:
        """Refuse a user for jobs who cannot do what jobs need, or can do more."""
        needs: list[tuple[str, str, bool, str]] = []
        for option, roots, verb in (
            ("--root", inputs, "read"),
            ("--output-root", outputs, "write"),
        ):
            for root in roots.folders:
                why = f"jobs could not {verb} {option} {root}: change its permissions."
                needs += [(str(root), one, True, why) for one in (verb, "enter")]
        for option, path in self.code:
            needs.append((str(path), "read", True, f"jobs could not read {option} {path}."))
            why = f"a script could change {option} {path} for others: {{}} is open to this user."
            needs += [(str(one), "write", False, why.format(one)) for one in _ways_to_change(path)]
        for place in map(Path, _running()):
            why = f"a script could change what the service runs: {place} is open to this user."
            needs.append((str(place), "write", False, why))
        for option, path in self.secrets:
            needs.append((str(path), "read", False, f"a script could read {option} {path}."))
        above = next(one for one in self.folder.parents if one.is_dir())
        why = f"jobs could not enter --folder {self.folder}: {above} is closed to this user."
        needs.append((str(above), "enter", True, why))
        user.refuse_unfit(needs)


def names_of(path: Path) -> set[Path]:
    """Return every path of a file that counts: its own, and those of links on the way to it."""
    found: set[Path] = set()
    left = [Path(os.path.abspath(path))]  # noqa: PTH100 - `resolve` would follow the links
    while left:
        here = left.pop()
        for part in (here, *here.parents):
            name = part.parent.resolve() / part.name
            if name not in found:
                found.add(name)
                if name.is_symlink():
                    left.append(name.parent / name.readlink())
    return found


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder of a service in which another user could put a job, or a link."""
    status = folder.lstat()
    if stat.S_ISLNK(status.st_mode):
        why = "is a link"
    elif status.st_uid != os.geteuid():
        why = f"belongs to the user with the number {status.st_uid}"
    elif status.st_mode & OTHERS_WRITE:
        why = "may be written by other users"
    else:
        return
    msg = f"--folder {folder}: it {why}, who could have this service run code. Use another one."
    raise OptionError(msg)


def _ways_to_change(path: Path) -> Iterator[Path]:
    """Yield the files of code, and the folders in which another one could take their place."""
    real = path.resolve()
    yield real
    if real.is_dir():
        yield from (one for one in real.rglob("*") if not one.is_symlink())
    for one in real.parents:
        if not one.stat().st_mode & stat.S_ISVTX:  # else only owners can rename what lies there
            yield one


def _running() -> Iterator[str]:
    """Yield the places of the code that the service and its jobs run."""
    yield sys.prefix
    yield sys.executable
    yield str(Path(daskprs.__file__).parent)
    yield from {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    yield from (one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one)


def startup_warnings(users: Iterable[JobUser], key: str | None) -> Iterator[str]:
    """Yield warnings for the operator before the service starts."""
    if os.geteuid() == 0 and not users:
        yield (
            "jobs run as root: a scoring script, or a model that it unpickles, can do everything "
            "on this machine. Give --run-as USER, or start the service as another user."
        )
    if key is not None and Path(key).exists() and Path(key).stat().st_mode & 0o007:
        yield f"--key {key}: every user of this machine can read it. Make it yours: chmod 600 {key}"
