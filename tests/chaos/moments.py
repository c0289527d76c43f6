"""The moment at which a job is struck: whoever comes to it says so, and waits for the blow.

Imported by entry scripts in agents, by the caller of the job, and by who strikes.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

FOLDER = "DASKPRS_CHAOS"
"""The variable that agents find the folder of the moments by, and that they are found by."""
GO = "go"
REACHED = "reached"
AGENTS = "agents"
PATIENCE_S = 120.0
"""Nobody waits longer for a blow that does not come."""
POLL_S = 0.01


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
