"""Processes of workers that write the parts of a data set, each in a folder of its own."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from daskprs._agent.supervision.helper_pool import ATTEMPTS, OVER
from daskprs.errors import AgentError
from tests.simulation.world import Process, Thread, now

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

PACE_S = 0.2
"""The most seconds that an operation on the disk takes in such a process."""
DIES, HANGS, CUTS = "dies", "hangs", "cuts"
"""It dies in the middle; it never answers; its file has lost its end when it answers."""
FAULTS = (*("",) * 14, DIES, HANGS, CUTS)


class Helper:
    """In place of `HelperPool`: a process for each call, whose operations on the disk take time.

    It ends with its worker, and not when its worker stops.
    """

    rng: ClassVar[random.Random]
    """Decides what befalls calls."""

    def __init__(self, environment: object, timeout_s: float, start_method: str) -> None:
        del environment, start_method
        self._timeout_s = timeout_s
        self._owner = now().process
        self._is_closed = False
        self._process: Process | None = None

    def call(self, what: str, function: Callable[..., Any], *given: Any) -> Any:
        """Call a function, once more if the process dies or hangs; return its result."""
        for _ in range(ATTEMPTS):
            if self._is_closed:
                raise AgentError(OVER)
            answers: list[Any] = []
            self._process = process = Process(f"helper of {self._owner.name}")
            process.pace = self._pace
            self._owner.children.append(process)
            how = self.rng.choice(FAULTS)
            with now().acting(process):
                thread = Thread(_answer, (how, answers, function, given), name="helper")
            thread.start()
            now().wait(lambda ended=thread: ended.ended, self._timeout_s)  # type: ignore[misc]
            process.die()
            self._owner.children.remove(process)
            if answers:
                result = answers[0]
                if isinstance(result, Exception):
                    raise result
                return result
        msg = f"the process that was to {what} has ended"
        raise AgentError(msg)

    def close(self) -> None:
        """Kill the process."""
        self._is_closed = True
        if self._process is not None:
            self._process.die()

    def _pace(self) -> float:
        return self.rng.random() * PACE_S


def _answer(how: str, answers: list[Any], function: Callable[..., Any], given: Any) -> None:
    """Call a function in a process of its own, to which something may happen."""
    process = now().process
    if how == HANGS:
        now().wait(lambda: False)
    if how == DIES:
        now().at(Helper.rng.random() * 3 * PACE_S, process, process.die)
    try:
        result = function(*given)
        if how == CUTS:
            _cut(Path(given[0], json.loads(result)[0]))
        answers.append(result)
    except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
        answers.append(error)


def _cut(folder: Path) -> None:
    """Take the last bytes of the files of an attempt, as a failing host may."""
    for file in sorted(folder.rglob("part-*")):
        if file.is_file():
            fd = os.open(file, os.O_WRONLY)
            os.ftruncate(fd, file.stat().st_size - 1)
            os.close(fd)


@contextmanager
def in_folder(path: Path) -> Iterator[None]:
    """In place of `chdir`: relative paths of the process lie below a folder within the block."""
    process = now().process
    process.folder = f"{path}/"
    try:
        yield
    finally:
        process.folder = ""
