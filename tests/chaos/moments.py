"""The moment at which a job is struck: whoever comes to it says so, and waits for the blow.

Imported by entry scripts in agents, by the caller of the job, and by who strikes.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from daskprs._agent.protocol.shared_page import Phase, SharedPage

FOLDER = "DASKPRS_CHAOS"
"""The variable that agents find the folder of the moments by, and that they are found by."""
CALLS = "DASKPRS_CHAOS_CALLS"
"""The variable with the number of calls at a time of an agent that makes several."""
GO = "go"
REACHED = "reached"
AGENTS = "agents"
PATIENCE_S = 120.0
"""Nobody waits longer for a blow that does not come."""
POLL_S = 0.01
OPENING, AT_WORK, COMMIT, SHUTDOWN, PUBLISH, ENDING = (
    *("opening", "at work", "commit", "shutdown", "publish", "ending"),
)
"""What a driver is at: before the first lease; between commits; in one; when agents shut down; from
the last commit to the published output; and after it."""
PHASES = {
    Phase.STARTING: "starting",
    Phase.INIT: "init",
    Phase.IDLE: "idle",
    Phase.LOADING: "load",
    Phase.RUNNING: "run",
    Phase.RETURNING: "returned",
    Phase.SHUTDOWN: SHUTDOWN,
}
"""What an agent is at, by the phase on the page that it shares with its worker."""
NAMES = (OPENING, *PHASES.values(), AT_WORK, COMMIT, PUBLISH, ENDING)
"""All moments at which jobs are struck at random, in the order of a job."""


class Now:
    """The moment of the driver, in a file that another process reads at any time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "driver"

    def tell(self, moment: str) -> None:
        """Say what the driver is at."""
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(fd, moment.ljust(16).encode(), 0)
        finally:
            os.close(fd)

    def of_driver(self) -> str:
        """Return what the driver is at; one that has said nothing yet is opening the job."""
        try:
            return self._path.read_text().strip() or OPENING
        except FileNotFoundError:
            return OPENING


def of_agent(pid: int) -> str | None:
    """Return what an agent is at; None if it has ended, or is not one yet."""
    with suppress(OSError, ValueError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            if str(link.readlink()).startswith("/memfd:daskprs-agent"):
                fd = os.open(link, os.O_RDWR | os.O_CLOEXEC)
                try:
                    page = SharedPage(fd)
                finally:
                    os.close(fd)
                try:
                    page.calls = calls_of(pid)
                    return PHASES[page.look().phase]
                finally:
                    page.close()
    return None


def calls_of(pid: int) -> int:
    """Return how many calls an agent makes at a time; 0: it makes them in its main thread."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    found = [one for one in variables if one.startswith(f"{CALLS}=".encode())]
    return int(found[0].partition(b"=")[2]) if found else 0


def reach(folder: Path, moment: str) -> None:
    """Say that the moment has come, and wait; only the first one in a job does."""
    told = folder / f".{os.getpid()}"
    told.write_text(json.dumps({"moment": moment, "pid": os.getpid()}))
    try:
        os.link(told, folder / REACHED)
    except FileExistsError:
        return
    finally:
        told.unlink()
    until = time.monotonic() + PATIENCE_S
    while not (folder / GO).exists() and time.monotonic() < until:
        time.sleep(POLL_S)


def reached(folder: Path) -> dict[str, Any] | None:
    """Return who came to the moment, if somebody has."""
    if not (folder / REACHED).exists():
        return None
    told: dict[str, Any] = json.loads((folder / REACHED).read_text())
    return told


def enter_agent(folder: Path) -> None:
    """Note this process as an agent, with the worker that it belongs to, and the nanny of that."""
    zygote, worker = os.getppid(), _parent(os.getppid())
    (folder / AGENTS).mkdir(exist_ok=True)
    told = {
        "zygote": zygote,
        "worker": worker,
        "nanny": _parent(worker),
        "host": socket.gethostname(),
    }
    (folder / AGENTS / str(os.getpid())).write_text(json.dumps(told))


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Watched:
    """A cell whose unpickling in an agent, or a helper, may be the moment.

    Parameters
    ----------
    moment
        Its name.
    loads
        The number of the load that is meant: the rows of a key are dealt out, gathered, and run.

    """

    def __init__(self, moment: str, loads: int = 1) -> None:
        self.moment = moment
        self.loads = loads

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Wait for the blow here."""
        self.moment, self.loads = state["moment"], state["loads"]
        if self.moment and FOLDER in os.environ:
            self.loads -= 1
            if not self.loads:
                folder = Path(os.environ[FOLDER])
                if not (folder / AGENTS / str(os.getpid())).exists():
                    enter_agent(folder)  # a helper does not begin with `init`
                reach(folder, self.moment)
