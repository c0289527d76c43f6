"""The caller's process state: it is exchanged with the script's before and after each step.

An agent process belongs to its script. An agent in the caller's process shares it with the driver
and with the caller, so the script's working directory, arguments, environment and streams hold
while the script works, and those of the caller at all other times.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.foreign.entry_script import EntryScript
from daskprs._output.rows.own_classes import (
    INSTALLED,
    classes_come_from,
    folder_of_classes,
)
from daskprs._system import masks
from daskprs._system.interrupts import INTERRUPTING
from daskprs.errors import AgentError

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator, Mapping

SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD, signal.SIGPIPE),
)
LOGGERS = ("", "entry_script")
"""The loggers that an agent sets up."""
LEAST_S = 0.05
"""Seconds by which an alarm may differ from the caller's and still be the caller's."""
_one_script = threading.RLock()
"""Held by the thread whose script works: there is one working directory for all threads."""


class _State(NamedTuple):
    """The parts of a process that a script may change."""

    folder: str
    arguments: list[str]
    path: list[str]
    finders: list[Any]
    environment: dict[str, str]
    streams: tuple[Any, Any, Any]
    handlers: dict[int, Any]
    loggers: tuple[tuple[list[logging.Handler], int, bool], ...]
    mask: masks.Mask
    entry_script: Any
    writes_no_bytecode: bool

    @classmethod
    def now(cls) -> _State:
        """Return the state of this process."""
        is_main = threading.current_thread() is threading.main_thread()
        loggers = map(logging.getLogger, LOGGERS)
        return cls(
            folder=_working_directory(),
            arguments=sys.argv[:],
            path=sys.path[:],
            finders=sys.meta_path[:],
            environment=os.environ.copy(),
            streams=(sys.stdin, sys.stdout, sys.stderr),
            handlers={number: signal.getsignal(number) for number in SIGNALS} if is_main else {},
            loggers=tuple((one.handlers[:], one.level, one.propagate) for one in loggers),
            mask=masks.installed(),
            entry_script=EntryScript._only,  # noqa: SLF001 - the script's own view of it
            writes_no_bytecode=sys.dont_write_bytecode,
        )

    def restore(self) -> None:
        """Make this the state of the process again."""
        with suppress(OSError):  # the script may have removed its working directory
            os.chdir(self.folder)
        sys.argv[:], sys.path[:], sys.meta_path[:] = self.arguments, self.path, self.finders
        _set_environment(self.environment)
        sys.stdin, sys.stdout, sys.stderr = self.streams
        for number, handler in self.handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        for name, (handlers, level, propagates) in zip(LOGGERS, self.loggers, strict=True):
            logger = logging.getLogger(name)
            logger.handlers[:], logger.propagate = handlers, propagates
            if logger.level != level:
                logger.setLevel(level)
        masks.install(self.mask)
        EntryScript._only = self.entry_script  # noqa: SLF001
        sys.dont_write_bytecode = self.writes_no_bytecode


@contextmanager
def one_script() -> Iterator[None]:
    """Refuse the scripts of other threads within the block.

    Raise `AgentError` if another thread is in such a block.
    """
    if not _one_script.acquire(blocking=False):
        msg = (
            "another job runs its script in this process, which has one working directory. "
            'Wait for that job, or use start_method="fork".'
        )
        raise AgentError(msg)
    try:
        yield
    finally:
        _one_script.release()


class ProcessState:
    """Swaps the state of the caller and that of the script.

    The folder is the working directory of the script, and `root` the one that it is imported from;
    None for an object. The environment has the variables that it has besides those of the caller.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        streams: tuple[Any, Any],
        root: Path | None,
    ) -> None:
        self.interrupt: KeyboardInterrupt | None = None
        """The Ctrl-C or SIGTERM that came while the script worked: the script must not take it for
        its own error, since it is a request to end the job."""
        self._root = root
        self._filters: list[Any] = [*warnings.filters]
        self._folder_of_classes = folder_of_classes()
        self._outside = outside = _State.now()
        self._umask = os.umask(0o077)  # only so can it be read
        os.umask(self._umask)
        folder.mkdir(parents=True, exist_ok=True)
        handlers = dict(outside.handlers)
        for number in INTERRUPTING:
            if callable(handlers.get(number)) or number == signal.SIGINT in handlers:
                handlers[number] = self._interrupted
        self._inside = outside._replace(
            folder=str(folder),
            environment={**outside.environment, **environment},
            streams=(sys.stdin, *streams),
            handlers=handlers,
            loggers=tuple(([], level, propagates) for _, level, propagates in outside.loggers),
            # A script that is changed within a second, with as many bytes, would look the same.
            writes_no_bytecode=True,
        )
        importlib.invalidate_caches()
        self._modules = dict(sys.modules)
        names = self._names_in_folder()
        self._set_aside = {
            name: module
            for name, module, file in _modules_of_caller(self._modules)
            if self._is_own(file) or name.partition(".")[0] in names
        }
        for name in self._set_aside:
            del sys.modules[name]

    @contextmanager
    def of_script(self) -> Iterator[None]:
        """Give the script its state within the block."""
        self._outside = _State.now()
        timer = _Timer()
        self._inside.restore()
        umask = os.umask(self._umask)
        try:
            yield
        finally:
            self._umask = os.umask(umask)
            self._inside = _State.now()
            self._outside.restore()
            timer.restore()

    def close(self) -> None:
        """Take the script's modules, finders and handlers out of the process."""
        for handlers, _, _ in self._inside.loggers:
            for handler in handlers:
                handler.close()
        classes_come_from(self._folder_of_classes)
        finders = [one for one in self._inside.finders if one not in self._outside.finders]
        for name in [name for name in sys.modules if name not in self._modules]:
            loader = getattr(getattr(sys.modules[name], "__spec__", None), "loader", None)
            if loader in finders:
                del sys.modules[name]
        loaded = {
            name: module
            for name, module in list(sys.modules.items())
            if module is not self._modules.get(name)
        }
        for name, _, file in _modules_of_caller(loaded):
            if self._is_own(file):
                del sys.modules[name]
        sys.modules.update(self._set_aside)
        warnings.filters[:] = self._filters  # type: ignore[index]

    def _interrupted(self, number: int, frame: types.FrameType | None) -> None:
        if number == signal.SIGINT:
            self.interrupt = KeyboardInterrupt()
        handle: Any = self._outside.handlers[number]
        if callable(handle):
            try:
                handle(number, frame)
            except KeyboardInterrupt as interrupt:
                self.interrupt = interrupt
                raise

    def _is_own(self, file: str) -> bool:
        """Say whether a module lies in the folder of the script."""
        return self._root is not None and file.startswith(f"{self._root}{os.sep}")

    def _names_in_folder(self) -> set[str]:
        """Return the names of the modules that the script would get from its folder."""
        if self._root is None:
            return set()
        names = {one.stem for one in self._root.glob("*.py")}
        return names | {one.parent.name for one in self._root.glob("*/__init__.py")}


def _modules_of_caller(
    modules: Mapping[str, types.ModuleType],
) -> Iterator[tuple[str, types.ModuleType, str]]:
    """Yield those that are not installed, with their names and files; without the program's own."""
    folders: dict[str, str] = {}
    for name, module in modules.items():
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or name == "__main__" or file.startswith(INSTALLED):
            continue
        file = _without_links(file, folders)
        if not file.startswith(INSTALLED):  # a link may lead there
            yield name, module, file


def _without_links(file: str, folders: dict[str, str]) -> str:
    """Return a file without links; each folder is looked at once, since a program has hundreds."""
    if os.path.islink(file):  # noqa: PTH114
        return str(Path(file).resolve())
    folder, name = os.path.split(file)
    if folder not in folders:
        folders[folder] = str(Path(folder).resolve())
    return f"{folders[folder]}{os.sep}{name}"


class _Timer:
    """The alarm of the caller: one that the script sets would end the caller's program later.

    A script in another thread than the main one leaves it alone: the main thread may set it anew
    meanwhile.
    """

    def __init__(self) -> None:
        self._left_s, self._interval_s = signal.getitimer(signal.ITIMER_REAL)
        self._now_s = time.monotonic()

    def restore(self) -> None:
        """Set the alarm as it would be by now without the script."""
        if threading.current_thread() is not threading.main_thread():
            return
        left_s = max(0.0, self._left_s - (time.monotonic() - self._now_s))
        now_s, interval_s = signal.getitimer(signal.ITIMER_REAL)
        goes_on = interval_s == self._interval_s and (interval_s or abs(now_s - left_s) < LEAST_S)
        if not goes_on:
            signal.setitimer(signal.ITIMER_REAL, left_s or self._interval_s, self._interval_s)


def _working_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - as text
    except OSError:
        return "/"


def _set_environment(wanted: Mapping[str, str]) -> None:
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
