"""The entry script under another interpreter, as its agent sees it.

The interpreter is a child of the agent, and runs `daskprs._agent.foreign`. It inherits stdout,
stderr, session and working directory. When it ends, the agent ends in the same way, so that the
supervisor sees, blames and reports the death of an agent.
"""

from __future__ import annotations

import faulthandler
import os
import platform
import resource
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from daskprs._agent.child.entry_script import context_parts, description_of, profile_of
from daskprs._agent.child.import_cost import ImportCost
from daskprs._agent.foreign.main import BOOT, FOLDER, PROTOCOL, MessagePipes, needed_package
from daskprs._agent.foreign.raised import RaisedElsewhere
from daskprs._agent.foreign.values import CannotTravel, dumped, loaded
from daskprs._core.stages import RUN
from daskprs._system import masks
from daskprs._system.interpreter import OF_AN_INTERPRETER, environment_of
from daskprs._system.linux import DUMP_SIGNAL
from daskprs.errors import AgentError, LoadError, Option, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._agent.protocol.messages import JobSpec, ProcessSpec
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.pieces import Range

EXIT_GRACE_S = 1.0
"""Seconds in which an interpreter that has closed its pipe may end by itself."""
TAIL_CHARS = 2000
LOST = 1


class ForeignScript:
    """The functions of a script that runs under another interpreter."""

    imports = ImportCost()
    """Unknown: the other interpreter does the import."""
    is_surely_async = False
    """Coroutines are refused there."""

    def __init__(self, job: JobSpec, process: ProcessSpec) -> None:
        masks.install(job.mask)
        self._python = str(job.python)
        self._stderr = Path(process.stderr)
        self._used_s = 0.0
        self._threads: list[str] = []
        self._greet(job)
        script = job.script
        given = {
            "process": description_of(job, process),
            "profile": profile_of(job, process),
            "secrets": job.mask.forms,
            "name": script.name,
            "arguments": job.arguments,
            "level": job.logging_level,
            "folder": script.source_directory,
            "module": script.module,
            "file": script.file,
            "any_second": script.any_second,
            "stand_ins": [tuple(one) for one in job.stand_ins],
        }
        _, self.counts_inputs = self._ask("load", given)

    # ---- the script's functions ----

    stages = (RUN,)
    """The stages: it has no others."""

    def prepare(self) -> None:
        """Do nothing: that is for other stages."""

    def init(self) -> None:
        """Call `init`."""
        self._ask("init")

    def run(
        self,
        data: Any,
        mini_batch: MiniBatch,
        piece: Range | None = None,
        _stage: str = RUN,
        _tools: object = None,
    ) -> Any:
        """Call `run`; a generator that it returns goes on while this one does."""
        word, result = self._ask("run", data, context_parts(mini_batch, piece))
        return self._pieces() if word == "pieces" else result

    def shutdown(self) -> None:
        """Call `shutdown`."""
        _, self._threads = self._ask("shutdown")

    def threads_left(self) -> list[str]:
        """Return the names of the threads of the script that delay the exit, and wait for it."""
        return self._threads

    def wait(self) -> None:
        """Wait for the end of the interpreter after `shutdown`, and end as it does."""
        if self._child.wait() != 0:
            self._end()

    def cpu_s(self) -> float:
        """Return the seconds of processor time that the script and this process have used."""
        return time.process_time() + self._used_s

    def _pieces(self) -> Iterator[Any]:
        while True:
            word, pieces = self._ask("next")
            if word == "end":
                return
            yield from pieces

    # ---- the interpreter ----

    def _greet(self, job: JobSpec) -> None:
        """Start the interpreter, and refuse one that cannot do what the job needs."""
        here = f"node {platform.node()}, {Option('python', self._python)}"
        try:
            self._start(job)
            word, protocol, version, packages = loaded(self._receive())
        except OSError as error:
            self._pipes.close()
            msg = f"{here}: the interpreter cannot be started there: {error.strerror}."
            raise AgentError(msg) from None
        except EOFError:
            self._pipes.close()
            code = self._child.wait()
            msg = f"{here}: the interpreter ends with returncode {code} when it starts. "
            raise AgentError(f"{msg}{self._written()}".rstrip()) from None
        if word != "hello" or protocol != PROTOCOL:
            msg = f"{here}: it speaks version {protocol} of the protocol, not {PROTOCOL}."
            raise AgentError(msg)
        form = job.batch_form
        needed = needed_package(job.unit, "pandas" if form is None else form.batch_format)
        if needed is not None and needed not in packages:
            name = ".".join(map(str, version))
            msg = f"{here}: this Python {name} has no {needed}, which the rows need. Install it."
            raise AgentError(msg)

    def _written(self) -> str:
        """Return the end of the stderr log."""
        try:
            return self._stderr.read_text("utf-8", "replace").strip()[-TAIL_CHARS:]
        except OSError:
            return ""

    def _start(self, job: JobSpec) -> None:
        theirs, ours = os.pipe(), os.pipe()
        self._pipes = MessagePipes(ours[0], theirs[1])
        fds = [theirs[0], ours[1]]
        words = [*fds, os.getpid(), int(DUMP_SIGNAL)]
        misleading = {
            name: job.environment[name] for name in OF_AN_INTERPRETER & {*job.environment}
        }
        # The kernel kills the child when the thread that has started it ends: the main thread.
        try:
            self._child = subprocess.Popen(  # noqa: S603 - the user's interpreter
                [self._python, "-c", BOOT, FOLDER, *map(str, words)],
                env=environment_of(self._python, {**os.environ, **misleading}, misleading),
                pass_fds=fds,
            )
        finally:
            for fd in fds:
                os.close(fd)
        faulthandler.unregister(DUMP_SIGNAL)
        signal.signal(DUMP_SIGNAL, self._dump)  # comes back whenever `faulthandler` leaves
        _dump_own_stacks()

    def _dump(self, *_: object) -> None:
        """Have the stacks of the script written to stderr."""
        with suppress(ProcessLookupError):
            os.kill(self._child.pid, DUMP_SIGNAL)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """While the script works, have its stacks dumped on request, and not our own."""
        faulthandler.unregister(DUMP_SIGNAL)
        try:
            yield
        finally:
            _dump_own_stacks()

    def _ask(self, *request: Any) -> tuple[str, Any]:
        """Send a request, and return the reply; raise what the script has raised."""
        try:
            message = dumped(request)
        except CannotTravel as error:
            msg = f"the rows hold what cannot be sent to {self._python}: {error}."
            raise LoadError(msg) from None
        try:
            with self._asked():
                self._pipes.send(message)
                del message
                reply = self._receive()
        except (EOFError, BrokenPipeError):
            self._end()
        word, value, self._used_s = loaded(reply)
        del reply
        match word:
            case "raised":
                raise RaisedElsewhere(*value)
            case "unreadable":
                msg = f"{self._python} cannot hold the mini-batch: {value}"
                raise LoadError(msg)
            case "refused":
                msg = f"run() returned what cannot be sent from {self._python}: {value}."
                raise ReturnTypeError(msg)
        return word, value

    def _receive(self) -> bytes:
        """Wait for a message; the end of the interpreter counts, whoever else holds its pipe."""
        watch, ended = select.poll(), os.pidfd_open(self._child.pid)
        try:
            watch.register(self._pipes.fileno(), select.POLLIN)
            watch.register(ended, select.POLLIN)
            if self._pipes.fileno() not in dict(watch.poll()):
                raise EOFError
        finally:
            os.close(ended)
        return self._pipes.receive()

    def _end(self) -> NoReturn:
        """End this process as the interpreter has ended."""
        try:
            code = self._child.wait(EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            sys.stderr.write(f"daskprs: the script has closed the pipes of {self._python}.\n")
            sys.stderr.flush()
            self._child.kill()
            os._exit(LOST)
        if code >= 0:
            os._exit(code)
        faulthandler.disable()  # the script's own dump is in the log already
        # The interpreter has left its core dump, if any: one of this process would say nothing.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        os._exit(LOST)


def _dump_own_stacks() -> None:
    """Dump the stacks of this process on request, at once, even within a long call of C."""
    faulthandler.register(DUMP_SIGNAL, 2, all_threads=True, chain=False)
