"""Another user of this machine, as whom jobs of the service run."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Sequence  # noqa: TC003 - the fields of a named tuple are evaluated
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._system.linux import die_with_parent, keep_privileges
from daskprs.errors import JobFolderError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HIGHEST = 2**32 - 2
HARD_LINKS = Path("/proc/sys/fs/protected_hardlinks")
_OF_STARTER = re.compile("XDG_.*|SUDO_.*|MAIL")
"""Names of variables with places of the user who started the service."""
LOOK = """
import json, os, sys
import daskprs
modes = {"read": os.R_OK, "enter": os.X_OK, "write": os.W_OK}
print(json.dumps([
    what for path, verb, may, what in json.load(sys.stdin)
    if os.access(path, modes[verb]) != may
]))
"""
"""A program that the user runs: it compares the user's access to paths with the expected access."""


class JobUser(NamedTuple):
    """A user by name or number; a number needs no entry in the list of users."""

    name: str
    uid: int
    gid: int
    groups: Sequence[int]

    @classmethod
    def named(cls, given: str) -> JobUser:
        """Return the user; refuse root, the service's own user, and where jobs cannot change it."""
        try:
            entry = pwd.getpwuid(int(given)) if given.isdecimal() else pwd.getpwnam(given)
            groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
            found = cls(entry.pw_name, entry.pw_uid, entry.pw_gid, groups)
        except (KeyError, OverflowError):
            if not given.isdecimal() or int(given) > HIGHEST:
                msg = f"--run-as {given}: this machine has no such user."
                raise OptionError(msg) from None
            found = cls(given, int(given), int(given), (int(given),))
        if os.geteuid() != 0:
            msg = f"--run-as {given}: only root can start jobs as another user. Start as root."
            raise OptionError(msg)
        if found.uid == 0 or 0 in (found.gid, *found.groups):
            msg = f"--run-as {given}: this is root or of its group, from whom nothing is kept."
            raise OptionError(msg)
        if HARD_LINKS.exists() and HARD_LINKS.read_text().strip() == "0":
            msg = (
                f"--run-as {given}: scripts could link files of root into their output. Set "
                "fs.protected_hardlinks=1 by sysctl."
            )
            raise OptionError(msg)
        return found

    def refuse_unfit(self, paths: Iterable[tuple[str, str, bool, str]]) -> None:
        """Refuse what would fail each job, or let a job reach what it must not.

        Each of the `paths` has a verb (read, enter, write), whether the user must be allowed or
        must not, and the mistake otherwise. A process of the user looks.
        """
        words = [sys.executable, "-P", "-c", LOOK]
        try:
            looked = subprocess.run(  # noqa: S603 - our own program
                words,
                input=json.dumps([*paths]),
                capture_output=True,
                text=True,
                check=True,
                **self.options(self.environment(os.environ, Path("/")), Path("/")),
            )
        except (OSError, subprocess.CalledProcessError) as error:
            why = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
            msg = (
                f"--run-as {self.name}: this user cannot run {sys.executable}: {why}."
                f"{self._closed(Path(sys.executable))} Install Python and daskprs where all users "
                "may read them, say in a virtual environment below /opt whose Python lies in /usr "
                "or /opt, and start the service by that one."
            )
            raise OptionError(msg) from error
        if found := json.loads(looked.stdout):
            raise OptionError(
                "\n".join(f"--run-as {self.name}: {one}" for one in dict.fromkeys(found))
            )

    def _closed(self, program: Path) -> str:
        """Return which folder on the way to a program is closed to the user, if its mode says so.

        The program of a virtual environment is a link to an interpreter elsewhere.
        """
        ways = [program]
        while ways[-1].is_symlink():
            ways.append(ways[-1].parent / ways[-1].readlink())
        ways += [way.resolve() for way in ways]
        for folder in dict.fromkeys(one for way in ways for one in reversed(way.parents)):
            status = folder.stat()
            is_of_group = status.st_gid in (self.gid, *self.groups)
            shift = 6 if status.st_uid == self.uid else 3 if is_of_group else 0
            if not status.st_mode >> shift & os.X_OK:
                mode = f"{status.st_mode & 0o777:04o}"
                return f" The folder {folder} is closed to the user: its mode is {mode}."
        return ""

    def environment(self, variables: Mapping[str, str], home: Path) -> dict[str, str]:
        """Return the variables of a program of the user."""
        kept = {name: one for name, one in variables.items() if not _OF_STARTER.fullmatch(name)}
        return {**kept, "HOME": str(home), "USER": self.name, "LOGNAME": self.name}

    def options(self, environment: Mapping[str, str], folder: Path) -> dict[str, Any]:
        """Return the options of `Popen` for a program of the user in a folder.

        The program gains no rights by others that it starts, such as sudo, and ends with this
        process.
        """
        parent = os.getpid()

        def last() -> None:
            keep_privileges()
            die_with_parent(parent)

        return {
            "user": self.uid,
            "group": self.gid,
            "extra_groups": self.groups,
            "env": environment,
            "cwd": folder,
            "start_new_session": True,
            "preexec_fn": last,
        }

    def take(self, folder: Path, known: Iterable[int]) -> None:
        """Make a folder, or take it over with its content from one of the known users."""
        folder.mkdir(mode=0o700, exist_ok=True)
        before = folder.stat().st_uid
        if before == self.uid:
            return
        if before not in known and any(folder.iterdir()):
            msg = (
                f"{folder} belongs to the user {before}, as whom no jobs run here. Resume the job "
                "in a service that runs jobs as this user."
            )
            raise JobFolderError(msg)
        for _, folders, files, fd in os.fwalk(folder):
            for name in (*folders, *files):
                if os.stat(name, dir_fd=fd, follow_symlinks=False).st_uid == before:
                    os.chown(name, self.uid, self.gid, dir_fd=fd, follow_symlinks=False)
        os.chown(folder, self.uid, self.gid, follow_symlinks=False)
