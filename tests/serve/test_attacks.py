"""Attacks of a scoring script on the service that has started it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from daskprs._serve.tokens import VARIABLE
from tests.support.limited_call import shared_folder
from tests.support.other_user import USER, as_user, reached, why_not
from tests.support.services import LightService

if TYPE_CHECKING:
    from pathlib import Path

PLANTED = "planted-secret-0815"
ODD_FILES = """
import os, sys
from pathlib import Path
folder = Path.cwd()
output = Path(sys.argv[2])
for name in ("", "logs/", "logs/sys/"):
    (folder / "job" / name).mkdir(parents=True, exist_ok=True)
pid = os.getppid()
for name in (
    *(f".{name}.{pid}-{thread}.part" for name in ("ticket.2", "cancel.1")
      for thread in os.listdir(f"/proc/{pid}/task")),
    "ended.1", "cancel.1", "ended.2", "process.2", "ticket.2",
    "job/journal.1", "job/epoch.1", "job/lock", "job/journal.2",
    "job/detached.json", "job/logs/sys/now.json", "job/logs/job_result.txt", "job/logs/sys/x",
):
    os.mkfifo(folder / name)
os.mkfifo(output / "pipe")
(output / "secret").symlink_to("SECRET")
(output / "keys").symlink_to(Path("SECRET").parent)
(folder / "job/logs/secret").symlink_to("SECRET")
(folder / "driver.txt").unlink()
(folder / "driver.txt").symlink_to("SECRET")
"""


@pytest.mark.attack
@pytest.mark.long
@pytest.mark.timeout(120)
def test_fifos_and_links_in_every_place_hold_up_nothing_and_show_nothing(tmp_path: Path) -> None:
    """Every question about the job is answered, with no byte of a secret; other jobs go on.

    Nor do they after a restart, with the records of a job forged.
    """
    secret = tmp_path / "keys" / "secret"
    secret.parent.mkdir()
    secret.write_text(PLANTED)
    script = tmp_path / "attack.py"
    script.write_text(ODD_FILES.replace("SECRET", str(secret)))

    def asked(service: LightService, name: str) -> None:
        paths = ["", "/outputs", "/logs", "/stream?follow=false"]
        paths += [f"/outputs/{path}" for path in ("secret", "keys/secret", "pipe")]
        paths += [f"/logs/{path}" for path in ("secret", "progress.json", "job_result.txt")]
        service.client.timeout = 20
        for path in paths:
            answer = service.client.get(f"/jobs/{name}{path}")
            assert answer.status_code < 500, answer.text
            assert PLANTED not in answer.text, path
        assert service.client.get("/jobs").status_code == 200
        for what in ("cancel", "resume"):
            assert service.client.post(f"/jobs/{name}/{what}").status_code < 500
        good = service.invoke(service.data("quick")).json()["name"]
        assert service.ended(good) == "Completed"

    with LightService(tmp_path, running=2) as service:
        name = service.invoke(service.data("attack", f"run {script}", "exit 3")).json()["name"]
        assert service.ended(name) == "Failed"
        asked(service, name)
        assert service.ended(name) == "Failed"  # of its second turn
        other = service.invoke(service.data("quick")).json()["name"]
        assert service.ended(other) == "Completed"
        request = tmp_path / "jobs" / other / "request.json"
        request.write_text(
            json.dumps(json.loads(request.read_text()) | {"output_dir": str(secret.parent)})
        )
    with LightService(tmp_path) as service:
        asked(service, other)
        answer = service.client.get(f"/jobs/{other}/outputs")
        assert answer.status_code == 404
    for part in tmp_path.rglob(".*.part"):
        part.unlink()


SPY = """
import ctypes, json, os, sys
from pathlib import Path
service, output = os.getppid(), Path(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
found = {"variables": [name for name in os.environ if "TOKENS" in name]}
for name in ("environ", "mem", "maps", "io", "stack", "root", "cwd", "fd"):
    path = f"/proc/{service}/{name}"
    try:
        if name == "fd":
            found[name] = os.listdir(path)
        elif name in ("root", "cwd"):
            found[name] = os.readlink(path)
        else:
            with open(path, "rb") as file:
                found[name] = len(file.read(100))
    except OSError as error:
        found[name] = type(error).__name__
found["traced"] = libc.ptrace(16, service, 0, 0)
pidfd = os.pidfd_open(service)
found["stolen"] = [libc.syscall(438, pidfd, fd, 0) for fd in range(12)]
os.close(pidfd)
inherited = []
for fd in os.listdir("/proc/self/fd"):
    try:
        inherited.append(os.readlink("/proc/self/fd/" + fd))
    except OSError:
        pass
found["inherited"] = sorted(inherited)
found["name"] = Path(f"/proc/{service}/cmdline").read_text()[:200]
(output / "found.json").write_text(json.dumps(found))
"""


class OrdinaryService(LightService):
    """A service of a user who is not root."""

    def program(self, words: list[str]) -> list[str]:
        """Return the words that start it as another user, if this one is root."""
        if os.geteuid() != 0:
            return words
        for place in (self.home, *self.home.rglob("*")):
            os.chown(place, USER, USER)
        return reached(as_user(*words))


@pytest.mark.attack
@pytest.mark.skipif(os.geteuid() == 0 and bool(why_not()), reason=why_not())
def test_a_script_of_the_same_user_reads_nothing_of_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not its environment, memory or descriptors; it inherits none, and cannot trace it.

    The service reads its own files as ever, although they belong to root in `/proc`.
    """
    monkeypatch.setenv(VARIABLE, PLANTED)
    with shared_folder() as home:
        script = home / "spy.py"
        script.write_text(SPY)
        script.chmod(0o644)
        with OrdinaryService(home) as service:
            data = home / "data" / "spy"
            data.write_text(f"run {script}")
            name = service.invoke(str(data)).json()["name"]
            assert service.ended(name) == "Completed", service.job(name)
            found = service.client.get(f"/jobs/{name}/outputs/found.json").json()
            assert service.client.get(f"/jobs/{name}/stream").status_code == 200
        assert "light_service" in found.pop("name")
        inherited = [one for one in found.pop("inherited") if not one.startswith("/proc/")]
        own = home / "jobs" / name
        files = [str(own / "driver.txt"), str(own / "process.1")]
        assert set(inherited) <= {"/memfd:told (deleted)", *files}
        assert found == {
            "variables": [],
            **dict.fromkeys(("environ", "mem", "maps", "io", "stack"), "PermissionError"),
            **dict.fromkeys(("root", "cwd", "fd"), "PermissionError"),
            "traced": -1,
            "stolen": [-1] * 12,
        }
