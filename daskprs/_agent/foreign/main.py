"""The process that runs an entry script under another interpreter, for the agent above it.

Two pipes lead to the agent and back. A message is its length in eight bytes, and a pickle of it as
`values` writes it. This process begins with ``("hello", PROTOCOL, version, packages)``. Then each
request gets one reply:

=====================================  ============================================================
``("load", script)``                   import the script; the reply says whether it counts inputs
``("init",)``, ``("shutdown",)``       call these functions; the reply to the last one names threads
``("run", data, context)``             call `run`
``("next",)``                          go on with the generator that `run` has returned
=====================================  ============================================================

A reply is a word, a value, and the seconds of processor time that this process has used so far.
``value``: what came back. ``pieces``: `run` has returned a generator; of ``next``: some of its
elements. ``end``: it has no more. ``raised``: an exception, as `raised` records it. ``unreadable``:
this interpreter cannot hold what it was sent. ``refused``: what `run` has returned cannot travel.
"""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable

from .entry_script import EntryScript, begin_script, do_nothing, import_script
from .raised import EXIT_BROKEN, broken_text, record_of
from .run_call import RunCall
from .run_profile import RunProfile
from .script_process import log_text, threads_left
from .stand_ins import install, install_travelled
from .values import CannotTravel, dumped, loaded

PROTOCOL = 4
OLDEST = (3, 8)
"""The oldest version of Python that this package runs under."""
PACKAGES = ("numpy", "pandas", "polars", "pyarrow")
FOLDER = f"{Path(__file__).parent}/"
BOOT = """
import sys
if sys.version_info < (3, 8):
    sys.exit("%s is Python %d.%d, and scripts need 3.8 or newer" % (
        (sys.executable,) + tuple(sys.version_info[:2])))
if sys.path[:1] == [""]:
    del sys.path[0]
import importlib.util
folder, sys.dont_write_bytecode, before = sys.argv[1], True, sys.dont_write_bytecode
spec = importlib.util.spec_from_file_location(
    "daskprs_script", folder + "__init__.py", submodule_search_locations=[folder]
)
sys.modules[spec.name] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from daskprs_script.main import main
sys.dont_write_bytecode = before
sys.exit(main(*map(int, sys.argv[2:])))
"""
"""The program that another interpreter starts with; older versions of Python can read it, too."""
AT_ONCE = 100
"""Most elements of a generator in a message."""
LONGEST = 1000
READ_AT_ONCE, SKIPPED_AT_ONCE = 1 << 20, 1 << 16
SMALL = (bool, bytes, float, int, str)
NOT_A_CHILD = (
    b"daskprs: the agent is not the parent of this interpreter. If a wrapper has started it, begin "
    b"the wrapper's last line with exec.\n"
)
_LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1


class MessagePipes:
    """The two pipes between a script and its agent, as one of them sees them."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader = os.fdopen(reader, "rb")
        self._writer = os.fdopen(writer, "wb")

    def send(self, data: bytes) -> None:
        """Send a message."""
        self._writer.write(_LENGTH.pack(len(data)))
        self._writer.write(data)
        self._writer.flush()

    def receive(self) -> bytes:
        """Wait for a message, and return it.

        Raise `EOFError` if the other side has ended, and `MemoryError` if the message does not fit
        into memory. The next one can be received then.
        """
        (left,) = _LENGTH.unpack(self._read(_LENGTH.size))
        body = io.BytesIO()
        try:
            while left:  # signals are handled between the pieces
                piece = self._read(min(left, READ_AT_ONCE))
                left -= len(piece)
                body.write(piece)
            return body.getvalue()
        except MemoryError:  # Python makes room before it reads
            # The rest of the message is skipped. Left in the pipe, it was read as the next
            # messages, and the mini-batches after it failed, too.
            body.close()
            while left:
                left -= len(self._read(min(left, SKIPPED_AT_ONCE)))
            raise

    def fileno(self) -> int:
        """Return the descriptor of the pipe that messages come from."""
        return self._reader.fileno()

    def close(self) -> None:
        """Close both pipes."""
        self._reader.close()
        with suppress(BrokenPipeError):
            self._writer.close()

    def _read(self, length: int) -> bytes:
        data = self._reader.read(length)
        if len(data) < length:
            raise EOFError
        return data


def main(reader: int, writer: int, parent: int, dump_signal: int) -> int:
    """Serve the agent until it has asked for `shutdown`, or is gone; return the exit code."""
    _die_with_parent(parent)
    sys.stdout, sys.stderr = log_text(1), log_text(2)
    faulthandler.enable(2)
    if hasattr(faulthandler, "register"):  # PyPy has none
        faulthandler.register(dump_signal, 2, all_threads=True, chain=False)
    else:
        signal.signal(dump_signal, lambda *_: faulthandler.dump_traceback(2, all_threads=True))
    _keep_from_children(reader, writer)
    try:
        return ScriptServer(MessagePipes(reader, writer)).serve()
    except BaseException as error:  # noqa: BLE001 - the script has spoilt this process
        try:
            os.write(2, broken_text(error))
        finally:
            os._exit(EXIT_BROKEN)


def _keep_from_children(*fds: int) -> None:
    """Let no child of this process hold a pipe: the agent sees by its pipe that we end."""

    def leave() -> None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in fds:
            os.dup2(nowhere, fd, inheritable=False)
        os.close(nowhere)

    for fd in fds:
        os.set_inheritable(fd, False)
    os.register_at_fork(after_in_child=leave)


def _die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the agent ends."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    except (ImportError, OSError, AttributeError):  # the zygote of the agent kills it later
        return
    if os.getppid() != parent:
        os.write(2, NOT_A_CHILD)
        os.kill(os.getpid(), signal.SIGKILL)


class ScriptServer:
    """Answers the agent's requests, one after the other."""

    def __init__(self, pipes: MessagePipes) -> None:
        self._pipes = pipes
        self._pid = os.getpid()
        self._streams = sys.stdout, sys.stderr  # a script may put others in their place
        self._script: Any = None
        self._run = RunCall(do_nothing)
        self._pieces: Iterator[Any] = iter(())
        self._profile: RunProfile | None = None
        self._answers: dict[str, Callable[..., tuple[str, Any]]] = {
            "load": self._load,
            "init": lambda: self._call("init"),
            "run": self._run_on,
            "next": self._next,
            "shutdown": self._shut_down,
        }

    def serve(self) -> int:
        """Answer until the end."""
        hello = ("hello", PROTOCOL, tuple(sys.version_info[:3]), dict(_versions()))
        self._pipes.send(dumped(hello))
        word = ""
        while word != "shutdown":
            try:
                message = self._pipes.receive()
            except EOFError:
                return 0
            except MemoryError as error:
                reply: tuple[str, Any] = ("raised", record_of(error, FOLDER))
            else:
                word, reply = self._answer(message)
                del message
            if os.getpid() != self._pid:  # a fork that returned from the script
                os._exit(0)
            self._flush()
            self._pipes.send(self._dumped(reply))
        return 0

    def _answer(self, message: bytes) -> tuple[str, tuple[str, Any]]:
        try:
            word, *parts = loaded(message)
        except MemoryError as error:  # another attempt may have more
            return "", ("raised", record_of(error, FOLDER))
        except Exception as error:  # noqa: BLE001 - any package may refuse a value
            return "", ("unreadable", f"{type(error).__name__}: {error}")
        del message
        try:
            return word, self._answers[word](*parts)
        except BaseException as error:  # noqa: BLE001 - a person's code may raise anything
            return word, ("raised", record_of(error, FOLDER))

    def _dumped(self, reply: tuple[str, Any]) -> bytes:
        used_s = time.process_time()
        try:
            return dumped((*reply, used_s))
        except CannotTravel as error:
            return dumped(("refused", str(error), used_s))
        except BaseException as error:  # noqa: BLE001 - str() of a person's object, say
            return dumped(("raised", record_of(error, FOLDER), used_s))

    def _flush(self) -> None:
        for stream in self._streams:
            with suppress(OSError, ValueError):  # the script may have closed it
                stream.flush()

    # ---- the requests ----

    def _load(self, given: dict[str, Any]) -> tuple[str, Any]:
        forms = given["secrets"]

        def masked(text: str) -> str:
            for form in forms:
                text = text.replace(form, "***")
            return text

        EntryScript.install(**given["process"], masked=masked)
        install()
        for package, modules, sources in given["stand_ins"]:
            install_travelled(package, modules, sources, FOLDER)
        begin_script(given["name"], given["arguments"], given["level"], given["folder"])
        self._script = import_script(given["module"], given["file"])
        run = getattr(self._script, "run", None)
        if not callable(run):
            msg = f"{given['name']} has no function run(mini_batch)."
            raise TypeError(msg)
        self._run = RunCall(run, any_second=given["any_second"])
        if given["profile"] is not None:
            self._profile = profile = RunProfile(**given["profile"])
            self._answers["run"] = lambda *parts: profile.call(self._run_on, *parts)
            self._answers["next"] = lambda: profile.call(self._next)
        return "value", bool(getattr(self._script, "__counts_inputs__", False))

    def _call(self, name: str) -> tuple[str, Any]:
        getattr(self._script, name, do_nothing)()
        return "value", None

    def _run_on(self, data: Any, context: tuple[Any, ...]) -> tuple[str, Any]:
        result = self._run(data, context)
        for kind in (dict, list, tuple):
            if isinstance(result, kind) and type(result) is not kind:  # a class of the script
                return "value", kind(result)
        is_stream = isinstance(result, io.IOBase) or hasattr(result, "__arrow_c_stream__")
        if isinstance(result, Iterator) and not is_stream:
            self._pieces = result
            return "pieces", None
        return "value", result

    def _next(self) -> tuple[str, Any]:
        """Return the next elements: several small ones, or a large one."""
        pieces: list[Any] = []
        for piece in self._pieces:
            pieces.append(piece)
            is_small = type(piece) in SMALL and len(str(piece)) < LONGEST
            if not is_small or len(pieces) == AT_ONCE:
                break
        return ("pieces", pieces) if pieces else ("end", None)

    def _shut_down(self) -> tuple[str, Any]:
        try:
            self._call("shutdown")
        finally:
            if self._profile is not None:
                self._profile.write()
        return "value", threads_left()


def _versions() -> Iterator[tuple[str, str]]:
    """Yield the packages for tables that this interpreter has, and their versions."""
    from importlib.util import find_spec

    for name in PACKAGES:
        if find_spec(name) is not None:
            from importlib import metadata  # it takes as long as all else here

            try:
                yield name, metadata.version(name)
            except metadata.PackageNotFoundError:
                yield name, ""


def needed_package(unit: str, batch_format: str) -> str | None:
    """Return the package that mini-batches need; None for paths of files."""
    return None if unit == "file" else batch_format
