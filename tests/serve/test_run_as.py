"""Jobs that run as another user: what they can do, and what they cannot reach."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daskprs._serve.command import _users
from daskprs._serve.job_user import JobUser
from daskprs._system.linux import children
from daskprs.errors import JobFolderError, OptionError
from tests.support.limited_call import shared_folder
from tests.support.other_user import USER, reached, why_not
from tests.support.polling import poll_for
from tests.support.services import LightService

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can be tested")
ONE, TWO, THREE = USER + 1, USER + 2, USER + 3
"""Tests that run at a time have users of their own."""
PROBE = """
import json, os, signal, subprocess, sys
from pathlib import Path
output, folder = Path(sys.argv[2]), Path.cwd().parent
found = {
    "user": [os.getuid(), os.geteuid(), os.getgid(), os.getgroups(), os.getresuid()[2]],
    "home": os.environ["HOME"],
    "state": os.environ.get("XDG_STATE_HOME"),
    "umask": os.umask(0o022),
}
Path.home().joinpath("kept").write_text("mine")
def tried(act):
    try:
        return repr(act())
    except OSError as error:
        return type(error).__name__
service = int(folder.parent.parent.joinpath("pid").read_text())
keeper = os.getppid()
reached = {
    "tokens": lambda: (folder.parent.parent / "tokens.yml").read_text(),
    "all jobs": lambda: os.listdir(folder.parent),
    "audit log": lambda: (folder.parent / "audit.jsonl").read_text(),
    "own folder": lambda: os.listdir(folder),
    "own records": lambda: (folder / "ended.1").write_text("{}"),
    "own output": lambda: (folder / "driver.txt").unlink(),
    "swap": lambda: (folder / "output").rename(folder / "x"),
    "opened": lambda: folder.chmod(0o777),
    "service": lambda: os.kill(service, signal.SIGTERM),
    "keeper": lambda: os.kill(keeper, signal.SIGKILL),
    "memory": lambda: open(f"/proc/{service}/mem", "rb"),
    "variables": lambda: open(f"/proc/{keeper}/environ", "rb").read(),
    "root": lambda: os.setuid(0),
    "link": lambda: os.link("/etc/shadow", output / "shadow"),
}
found["reached"] = {name: tried(act) for name, act in reached.items()}
found["gains"] = Path("/proc/self/status").read_text().partition("NoNewPrivs:")[2].split()[0]
output.joinpath("found.json").write_text(json.dumps(found))
subprocess.Popen(["sleep", "600"], start_new_session=True)
"""

NEIGHBOUR = """
import json, os, signal, sys
from pathlib import Path
def tried(act):
    try:
        return repr(act())
    except OSError as error:
        return type(error).__name__
folder, pid = Path("HOME/neighbour").read_text().split()
found = {
    "output": tried(lambda: os.listdir(folder + "/output")),
    "request": tried(lambda: Path(folder, "request.json").read_text()),
    "kill": tried(lambda: os.kill(int(pid), signal.SIGKILL)),
    "variables": tried(lambda: open(f"/proc/{pid}/environ", "rb").read()),
}
Path(sys.argv[2], "found.json").write_text(json.dumps(found))
"""

DEAF = """
import signal, subprocess, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "600"], start_new_session=True)
Path(sys.argv[2], "ready").touch()
time.sleep(600)
"""


class ServiceAsOthers(LightService):
    """A service of root whose jobs run as other users."""

    def program(self, words: list[str]) -> list[str]:
        """Return the words that start it, with the interpreter open to all."""
        return reached(words)


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a folder that other users can pass through."""
    with shared_folder() as folder:
        folder.chmod(0o711)
        folder.joinpath("data").mkdir()
        folder.joinpath("probe.py").write_text(PROBE)
        folder.joinpath("deaf.py").write_text(DEAF)
        folder.joinpath("neighbour.py").write_text(NEIGHBOUR.replace("HOME", str(folder)))
        yield folder


def started(home: Path, *lines: str, users: tuple[int, ...] = (ONE,)) -> ServiceAsOthers:
    """Return a service, and write the input of its jobs."""
    service = ServiceAsOthers(home, running=len(users), run_as=[str(one) for one in users])
    service.data("one", *lines)
    return service


def processes_of(uid: int) -> list[str]:
    """Return the processes of a user."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
            if one.stat().st_uid == uid:
                found.append(one.name)
    return found


@pytest.mark.long
@pytest.mark.attack
@pytest.mark.timeout(240)
def test_a_job_of_another_user_works_and_reaches_nothing_but_its_own(home: Path) -> None:
    """It writes its output, which callers get; nothing of it is left when it has ended."""
    with started(home, f"run {home}/probe.py") as service:
        home.joinpath("pid").write_text(str(service.process.pid))
        data = str(home / "data" / "one")
        name = service.invoke(data).json()["name"]
        assert service.ended(name) == "Completed", service.client.get(f"/jobs/{name}/stream").text
        found = service.client.get(f"/jobs/{name}/outputs/found.json").json()
        assert processes_of(ONE) == []
        folder = home / "jobs" / name
        assert poll_for(lambda: folder.stat().st_mode & 0o777 == 0o700)
        assert found["user"] == [ONE, ONE, ONE, [ONE], ONE]
        assert (found["home"], found["state"]) == (str(folder / "home"), None)
        assert folder.joinpath("home", "kept").stat().st_uid == ONE
        theirs = {one.name for one in folder.iterdir() if one.stat().st_uid == ONE}
        assert theirs == {"job", "output", "home", "daskprs-results"}
        assert set(found["reached"].values()) == {"PermissionError"}, found["reached"]
        assert found["gains"] == "1"
        assert processes_of(0)
        assert json.loads(folder.joinpath("ended.1").read_text())["exit_code"] == 0
        service.data("one", f"run {home}/deaf.py")
        deaf = service.invoke(data).json()["name"]
        folder = home / "jobs" / deaf
        assert poll_for((folder / "output" / "ready").exists)
        service.client.post(f"/jobs/{deaf}/cancel")
        assert service.status(deaf) == "CancelRequested"
        os.utime(folder / "cancel.1", (0, 0))  # long ago
        service.client.post(f"/jobs/{deaf}/cancel")
        assert service.ended(deaf) == "Canceled"
        assert processes_of(ONE) == []


@pytest.mark.attack
@pytest.mark.long
@pytest.mark.timeout(240)
def test_jobs_at_a_time_are_kept_from_each_other_and_survive_the_service(home: Path) -> None:
    """Each has a user; a new service knows which. Cancel, resume and status are as ever."""
    gate, users = home / "gate", (TWO, THREE)
    with started(home, "write early 1", f"wait {gate}", users=users) as service:
        first = service.invoke(str(home / "data" / "one")).json()["name"]
        folder = home / "jobs" / first
        assert poll_for((folder / "output" / "early").exists)
        keeper = int((folder / "process.1").read_text())
        (job,) = children(keeper)
        home.joinpath("neighbour").write_text(f"{folder} {job}")
        service.killed()
    with started(home, f"run {home}/neighbour.py", users=users) as service:
        assert service.status(first) == "Running"
        second = service.invoke(str(home / "data" / "one")).json()["name"]
        assert service.ended(second) == "Completed", service.client.get(f"/jobs/{second}/stream")
        found = service.client.get(f"/jobs/{second}/outputs/found.json").json()
        assert set(found.values()) == {"PermissionError"}, found
        owners = [home / "jobs" / name / "home" for name in (first, second)]
        assert [one.stat().st_uid for one in owners] == [TWO, THREE]
        service.client.post(f"/jobs/{first}/cancel")
        assert service.ended(first) == "Canceled"
        assert processes_of(TWO) == []
        service.data("one", f"wait {gate}")
        service.client.post(f"/jobs/{first}/resume")
        assert poll_for(
            lambda: (folder / "process.2").exists() and service.status(first) == "Running"
        )
        os.kill(int((folder / "process.2").read_text()), signal.SIGKILL)
        assert service.ended(first) == "Failed"
        assert service.job(first)["properties"]["error"]["code"] == "JobDied"
        assert poll_for(lambda: processes_of(TWO) == [])
        service.data("one", "write late 1")
        service.client.post(f"/jobs/{first}/resume")
        assert service.ended(first) == "Completed"
        assert {"early", "late"} < {path.name for path in (folder / "output").iterdir()}


def test_a_job_folder_goes_to_a_user_from_users_of_jobs_alone(home: Path) -> None:
    """With all in it that was theirs: not what a link leads to, nor what was linked into it."""
    taken, elsewhere = home / "job", home / "elsewhere"
    JobUser.named(str(USER)).take(taken, ())
    taken.joinpath("inner").mkdir()
    taken.joinpath("inner", "own").touch()
    elsewhere.touch()
    for path in (taken / "inner", taken / "inner" / "own"):
        os.chown(path, USER, USER)
    taken.joinpath("inner", "linked").symlink_to(elsewhere)
    taken.joinpath("inner", "hard").hardlink_to(elsewhere)
    with pytest.raises(JobFolderError, match=f"belongs to the user {USER}"):
        JobUser.named(str(TWO)).take(taken, (TWO,))
    JobUser.named(str(TWO)).take(taken, (USER, TWO))
    owners = {path.name: path.lstat().st_uid for path in (taken, *taken.rglob("*"))}
    assert owners == {"job": TWO, "inner": TWO, "own": TWO, "linked": 0, "hard": 0}
    assert elsewhere.stat().st_uid == 0


def test_a_user_who_cannot_run_python_is_told_which_folder_is_closed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the virtual environment is, or where its interpreter is."""
    closed, opened = home / "closed", home / "opened"
    for folder in (closed, opened):
        folder.mkdir()
        folder.chmod(0o750 if folder == closed else 0o755)
    closed.joinpath("python").symlink_to("/bin/true")
    opened.joinpath("python").symlink_to(closed / "python")
    for folder in (closed, opened):
        monkeypatch.setattr(sys, "executable", str(folder / "python"))
        told = f"The folder {closed} is closed to the user: its mode is 0750"
        with pytest.raises(OptionError, match=told):
            JobUser.named(str(USER)).refuse_unfit([])


def test_a_user_is_named_by_name_or_number() -> None:
    """A name has its groups, a number needs no entry; root is refused, in every form."""
    nobody = pwd.getpwnam("nobody")
    assert JobUser.named("nobody")[:3] == ("nobody", nobody.pw_uid, nobody.pw_gid)
    assert JobUser.named(str(nobody.pw_uid)).name == "nobody"
    assert JobUser.named(str(USER)) == (str(USER), USER, USER, (USER,))
    for given in ("root", "0", "00", "no-such-user", "-1", "99999999999", ""):
        with pytest.raises(OptionError, match="--run-as"):
            JobUser.named(given)


@pytest.mark.attack
def test_users_of_one_group_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a job is open to the group of its user."""
    known = {"a": JobUser("a", 1001, 100, (100,)), "b": JobUser("b", 1002, 100, (100,))}
    monkeypatch.setattr(JobUser, "named", known.__getitem__)
    with pytest.raises(OptionError, match="two of them have one primary group"):
        _users({"run_as": ("a", "b"), "max_jobs": 2})
    known["b"] = JobUser("b", 1002, 101, (101,))
    assert [user.name for user in _users({"run_as": ("a", "b"), "max_jobs": 2})] == ["a", "b"]
