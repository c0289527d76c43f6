"""Zygotes and programs of tests are forked from a process that has imported what they import.

A program is a command, a script of a test, or code after `-c`, if it imports daskprs or Dask.

Most of the processor time of a small job is the import of pandas in its zygote, and of Dask in a
command: two seconds, a thousand times in the suite. Here each is imported once. All else is as it
is for a user: what is started is a process of its own, a child of its owner, with the arguments,
environment, folder and descriptors that `subprocess` was given. What must be there before an
interpreter starts cannot be given later. So with other variables of that kind, other limits, and
in a test with the mark `cold`, a process is started as a user's; and so is each in a suite with
`DASKPRS_TESTS_COLD=1`, as in `make test-long`. Two things are less than a user has: what one
template forks has one random order of sets, and does not wait for the disk. Tests of that order set
`PYTHONHASHSEED`.

Tests import this file, and a template runs it.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import inspect
import os
import pickle
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.supervision import zygote_main
from daskprs._system import linux

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Key = tuple[str, tuple[tuple[str, str], ...]]

THREADS = ("OMP_", "MKL_", "OPENBLAS_", "GOTO_", "NUMEXPR_", "BLIS_", "VECLIB_")
READ_AT_THE_START = (
    *("PYTHON", "LD_", "LANG", "LC_", "TZ", "GLIBC_", "MALLOC_", "ARROW_", "PANDAS_", "NPY_"),
    *THREADS,
)
"""Variables that the loader, the interpreter or an imported library of a zygote reads.

`PYTHONPATH` can be given later, unless its folders have what an interpreter imports as it starts,
or other versions of what is imported here.
"""
IN_THE_WAY = ("sitecustomize.py", "usercustomize.py", "numpy", "pandas", "pyarrow", "dask")
READ_BY_DASK = ("DASK_", "HOME", "XDG_CONFIG", "VIRTUAL_ENV", "CONDA")
"""Those that Dask reads, too, when a program imports it."""
PROGRAM = (*zygote_main.IMPORTED_ONCE, "daskprs._cli", "distributed", "daskprs._job.job")
IMPORTED = {
    "zygote": zygote_main.IMPORTED_ONCE,
    "program": PROGRAM,
    "service": (*PROGRAM, "daskprs._serve.server"),
    "dask": (
        *zygote_main.IMPORTED_ONCE,
        "distributed.cli.dask_scheduler",
        "distributed.cli.dask_worker",
    ),
}
PROGRAMS = {
    "daskprs": "program",
    "daskprs._cli.driver_process": "program",
    "dask": "dask",
    "distributed.cli.dask_worker": "dask",
    "daskprs._serve.job_process": "service",
}
"""Kinds of programs, by the module that is run."""
OF_SERVICE = "daskprs._serve"
HEAVY = re.compile(r"\b(?:import|from) [^\n;]*\b(?:daskprs|pandas|dask|distributed)\b")
"""Other programs are forked if they import one of these, and do not look at what is imported."""
MOST = 8
"""Templates of one test process, of those that were used last; each has 100 MB."""
PATIENCE_S = 60.0
HIGH = 200
"""From this number on, no test asks for a descriptor by its number."""
DEFAULT = -1
EXECUTABLE = sys.executable
PATH = tuple(sys.path)
"""Of a template: that of an interpreter without `PYTHONPATH`."""
REAL: Callable[..., None] = subprocess.Popen._execute_child  # type: ignore[attr-defined]
PARAMETERS = tuple(inspect.signature(REAL).parameters)[1:]
PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
PLAIN = {
    **dict.fromkeys(("executable", "preexec_fn", "gid", "gids", "uid")),
    **dict.fromkeys(("close_fds", "restore_signals"), True),
    **dict.fromkeys(("umask", "process_group"), DEFAULT),
    "shell": False,
}
"""What a start may not ask for, but as here."""
STARTED = set[int]()
"""Processes that others start meanwhile."""
ROLES = zygote_main.boot_command("")[3]
CODE = (
    ROLES[: ROLES.index("from daskprs")]
    + """
import runpy
from daskprs._agent.supervision.zygote_main import boot
names = runpy.run_path(sys.argv[2])
words = names["serve"](int(sys.argv[3]), sys.argv[4])
if words[0] == "-P":
    sys.exit(boot(*words[4:]))
elif words[0] == "-m":
    sys.modules.pop(words[1], None)
    runpy._run_module_as_main(words[1])
else:
    exec(*names["code_and_names"](words))
"""
)


class Order(NamedTuple):
    """What a process is to become."""

    kind: str
    """That of the template."""
    words: tuple[str, ...]
    """Those after the name of the interpreter."""
    environment: dict[str, str]
    folder: str
    umask: int
    owner: int
    """The process id of its parent."""
    own_session: bool
    targets: tuple[int, ...]
    """The numbers of the descriptors that come with the order."""


class WarmStart:
    """Starts the processes of this one.

    Parameters
    ----------
    own
        The template that this process has forked at its start, if it was itself forked from one.
    """

    def __init__(self, own: Template | None = None) -> None:
        self._templates: dict[Key, StartedTemplate] = {}
        self._lock = threading.Lock()
        self._surroundings = _surroundings()
        self._own = own
        self._pid = os.getpid()
        self.enabled = True

    def install(self) -> None:
        """Start processes from now on."""

        def execute(popen: Any, *given: Any) -> None:
            if not self._taken(popen, dict(zip(PARAMETERS, given, strict=True))):
                REAL(popen, *given)
                STARTED.add(popen.pid)

        subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]

    def kept(self) -> tuple[set[int], set[int]]:
        """Return the process ids and the descriptors that stay until the tests end."""
        templates = self._templates.values()
        return {one.pid for one in templates}, {one.descriptor for one in templates}

    def close(self) -> None:
        """End all templates."""
        subprocess.Popen._execute_child = REAL  # type: ignore[attr-defined]
        for template in self._templates.values():
            template.close()

    def _taken(self, popen: Any, given: dict[str, Any]) -> bool:
        """Say whether a process was started here, as `subprocess` would have started it."""
        # Of a fork of this process, no template is a child: it could adopt nothing.
        is_ours = self.enabled and os.getpid() == self._pid
        is_plain = is_ours and all(given[name] == value for name, value in PLAIN.items())
        folder = str(Path.cwd() / os.fsdecode(given["cwd"] or ""))
        words = _words(given["args"]) if is_plain else ()
        kind = _kind(words, folder)
        environment = dict(os.environ if given["env"] is None else given["env"])
        if not kind or _surroundings() != self._surroundings or _has_in_the_way(environment):
            return False
        pipes = [given[name] for name in PIPES]
        fds = {
            fd: pipe if pipe != DEFAULT else fd
            for fd, pipe in enumerate((pipes[0], pipes[3], pipes[5]))
        } | {fd: fd for fd in given["pass_fds"]}
        umask = os.umask(0o022)
        os.umask(umask)
        order = Order(
            kind,
            words,
            environment,
            folder,
            umask,
            os.getpid(),
            given["start_new_session"],
            tuple(fds),
        )
        try:
            pid = self._ordered(order, list(fds.values()))
        except TimeoutError:
            raise
        except OSError:  # no room for a large environment, or the template has ended
            pid = 0
        if pid:
            popen.pid = pid
            popen._child_created = True
            popen._close_pipe_fds(*pipes)
        return bool(pid)

    def _ordered(self, order: Order, fds: list[int]) -> int:
        """Return the process id of what an order has started; 0 if nobody is there for it."""
        if self._own is None:
            key = _key(order)
            with self._lock:
                template = self._templates.pop(key, None) or StartedTemplate(key)
                self._templates[key] = template  # the last one is the one that was used last
                if len(self._templates) > MOST:
                    self._templates.pop(next(iter(self._templates))).close()
                return template.fork(order, fds)
        # A process has as many threads as the one that it is forked from.
        given, own = (
            {pair for pair in _key(one)[1] if not pair[0].startswith(THREADS)}
            for one in (order, order._replace(environment=dict(os.environ)))
        )
        return self._own.fork(order, fds) if given == own else 0


class Template:
    """A process that forks others for its parent, at whose end it ends."""

    def __init__(self, control: socket.socket, *, adopts: bool) -> None:
        control.settimeout(2 * PATIENCE_S)
        self._control = control
        self._adopts = adopts
        self._lock = threading.Lock()

    def fork(self, order: Order, fds: list[int]) -> int:
        """Order a process, and wait until it is a child of this one."""
        with self._lock:
            if self._adopts:
                return self._forked(order, fds)
            before = _children()
            linux._prctl(linux._PR_SET_CHILD_SUBREAPER, 1)
            try:
                pid = self._forked(order, fds)
            finally:
                linux._prctl(linux._PR_SET_CHILD_SUBREAPER, 0)
            # A child that ended meanwhile has left its own children to this process, and they end.
            for orphan in _children() - before - STARTED - {pid}:
                _reaped(orphan)
            return pid

    def _forked(self, order: Order, fds: list[int]) -> int:
        try:
            socket.send_fds(self._control, [pickle.dumps(tuple(order))], fds)
            return int(self._control.recv(100) or 0)
        except TimeoutError:
            self.close()  # a late answer would be taken for that to the next order
            raise

    def close(self) -> None:
        """Let the process end."""
        self._control.close()


class StartedTemplate(Template):
    """A template in an interpreter of its own, for the tests, which adopt orphans."""

    def __init__(self, key: Key) -> None:
        kind, variables = key
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(control, adopts=True)
        others = {name: value for name, value in os.environ.items() if not _is_read(name, kind)}
        package = zygote_main.boot_command("")[4]
        words = ["-P", "-c", CODE, package, __file__, str(theirs.fileno()), kind]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *words],
                env={**others, **dict(variables), "PYTHONPATH": ""},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self.pid, self.descriptor = self._process.pid, control.fileno()

    def close(self) -> None:
        """End the process."""
        super().close()
        self._process.wait(PATIENCE_S)


def _words(args: Any) -> tuple[str, ...]:
    """Return the words after the interpreter's name, if it is that of the tests."""
    if isinstance(args, (str, bytes, os.PathLike)):
        return ()
    interpreter, *words = map(os.fsdecode, args)
    return tuple(words) if interpreter == EXECUTABLE else ()


def _kind(words: tuple[str, ...], folder: str) -> str:
    """Return the kind of the template that a program is forked from; it is empty if none is."""
    match words:
        case ["-P", "-c", code, _, "zygote", _, "fork", *_]:
            return "zygote" if code == ROLES else ""
        case ["-m", "daskprs", "serve", *_]:
            return "service"
        case ["-m", module, *_] | ["-P", "-m", module, *_]:
            return PROGRAMS.get(module, "")
        case ["-c", code, *_]:
            return _kind_of_text(code)
        case [file, *_] if file.endswith(".py") and Path(folder, file).exists():
            return _kind_of_text(Path(folder, file).read_text())
    return ""


def _kind_of_text(text: str) -> str:
    if HEAVY.search(text) is None or "sys.modules" in text:
        return ""
    return "service" if OF_SERVICE in text else "program"


def _key(order: Order) -> Key:
    pairs = (pair for pair in order.environment.items() if _is_read(pair[0], order.kind))
    return order.kind, tuple(sorted(pairs))


def _is_read(name: str, kind: str) -> bool:
    names = READ_AT_THE_START + (() if kind == "zygote" else READ_BY_DASK)
    return name.startswith(names) and name != "PYTHONPATH"


def _python_path(environment: Mapping[str, str]) -> list[str]:
    return [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]


def _has_in_the_way(environment: Mapping[str, str]) -> bool:
    folders = set(_python_path(environment)).difference(sys.path)
    return any(Path(folder, name).exists() for folder in folders for name in IN_THE_WAY)


def _surroundings() -> object:
    """Return what a process inherits, and a template has from the start of the tests."""
    limits = [
        resource.getrlimit(number)
        for name, number in vars(resource).items()
        if name.startswith("RLIMIT_")
    ]
    return (
        limits,
        os.sched_getaffinity(0),
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        Path("/proc/self/cgroup").read_bytes(),
    )


warm_start = WarmStart()
"""That of a test process."""


def leave_out_syncs() -> None:
    """Let this process, and what it forks, not wait for its disk: no test cuts the power.

    A job syncs its folder some thirty times, and each takes 4 ms: a fifth of the time of a test.
    """
    os.fsync = os.fdatasync = lambda fd: None  # noqa: ARG005


def serve(control_fd: int, kind: str) -> tuple[str, ...]:
    """Fork processes until the tests end; return in each of them the words of its order.

    It returns, so that the stack of a process begins as a user's does.
    """
    leave_out_syncs()
    of_zygotes: set[str] = set()
    for name in IMPORTED[kind]:
        importlib.import_module(name)
        if name == zygote_main.IMPORTED_ONCE[-1]:
            of_zygotes = set(sys.modules)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    while True:
        order, fds = _awaited(control)
        _take_on(order, fds)
        if order.kind == "zygote":
            _forget(set(sys.modules) - of_zygotes)
            return order.words
        # A program gets a template for what it will start itself.
        ours, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork():
            break
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for target in order.targets:
            os.dup2(nothing, target)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    control.close()
    WarmStart(Template(ours, adopts=False)).install()
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if os.isatty(fd):
            mode = "w" if fd else "r"
            stream = open(fd, mode, buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
    sys.modules["numpy"].random.seed()
    words = order.words[1:] if order.words[0] == "-P" else order.words
    sys.argv = list(words if words[0][0] != "-" else words[:1] + words[2:])
    return words


def _forget(modules: set[str]) -> None:
    """Forget modules but for those of Python.

    `_asyncio` is loaded once, and keeps the exceptions of the first `asyncio`: they are not those
    of a second one.
    """
    for name in modules:
        if name.partition(".")[0] not in sys.stdlib_module_names:
            del sys.modules[name]


def code_and_names(words: tuple[str, ...]) -> tuple[types.CodeType, dict[str, Any]]:
    """Return the code of a program that is no module, and the names of a new `__main__`."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if words[0] == "-c":
        return compile(words[1], "<string>", "exec"), vars(main)
    main.__file__ = words[0]
    return compile(Path(words[0]).read_bytes(), words[0], "exec"), vars(main)


def _awaited(control: socket.socket) -> tuple[Order, list[int]]:
    """Fork a process for each order, and return what it gets."""
    while True:
        packet, fds, _, _ = socket.recv_fds(control, 1 << 20, 100)
        if not packet:
            os._exit(0)
        between = os.fork()
        if between == 0:
            # The parent of the new process ends at once: its owner adopts it.
            if os.fork():
                os._exit(0)
            order = Order(*pickle.loads(packet))
            until = time.monotonic() + PATIENCE_S
            while os.getppid() != order.owner:
                if time.monotonic() > until or not _lives(order.owner):
                    os._exit(1)
                time.sleep(0.0002)
            control.send(str(os.getpid()).encode())
            control.close()
            return order, fds
        os.waitpid(between, 0)
        for fd in fds:
            os.close(fd)


def _lives(pid: int) -> bool:
    """Say whether a process is there, and has not just ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def _children() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in _text(task / "children").split()}


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the thread has ended
        return ""


def _reaped(pid: int) -> None:
    """Wait until a process has ended, but not for long."""
    until = time.monotonic() + 1
    with suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
            time.sleep(0.001)


def _take_on(order: Order, fds: list[int]) -> None:
    """Give this process all that `subprocess` would have given it."""
    if order.own_session:
        os.setsid()
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, target in zip(moved, order.targets, strict=True):
        os.dup2(fd, target)
        os.close(fd)
    os.chdir(order.folder)
    os.umask(order.umask)
    os.environ.clear()
    os.environ.update(order.environment)
    folders = _python_path(order.environment)
    first = {"-P": [], "-m": [order.folder], "-c": [""]}
    of_file = [os.path.dirname(os.path.realpath(order.words[0]))]  # noqa: PTH120 - as Python does
    sys.path[:] = [*first.get(order.words[0], of_file), *folders, *PATH]
    signal.signal(signal.SIGINT, signal.default_int_handler)
