"""The stacks that an agent has dumped into its stderr log, as a traceback of the script."""

from __future__ import annotations

import linecache
import re
from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.tracebacks import HEADER, MOST_RECENT, library_of
from daskprs.errors import OURS

if TYPE_CHECKING:
    from daskprs._agent.protocol.messages import ScriptSpec

FATAL = "Fatal Python error: "
"""The beginning of the dump of a process that crashes."""
_THREAD = re.compile(
    r"^(?P<current>Current thread|Thread) 0x[^\n]*\(most recent call first\):\n"
    r"(?P<frames>(?:  [^\n]*(?:\n|\Z))*)",
    re.MULTILINE,
)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_ESCAPED = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
_OF_THREADS = ("threading.py", "concurrent/futures/thread.py")
"""Modules whose frames begin a thread."""
_OF_CALLS = "_agent/child/several_calls.py"
"""The module in which the main thread of an agent waits that makes several calls at a time."""
_OF_IMPORTS = ("importlib/__init__.py", "<frozen importlib")
_BOOT = "<string>"
"""The name of the code that starts a zygote."""


class _StackFrame(NamedTuple):
    """A line that a thread was at."""

    file: str
    line: int
    function: str

    def is_of(self, *files: str) -> bool:
        """Say whether the frame is of a module."""
        return any(file in self.file for file in files)

    @property
    def is_ours(self) -> bool:
        """Whether the frame is of daskprs, or of the interpreter that started it."""
        return self.file == _BOOT or self.file.startswith(OURS)

    @property
    def code(self) -> str:
        """The line of code; empty where it cannot be read."""
        linecache.checkcache(self.file)
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        code = f"    {self.code}\n" if self.code else ""
        return f'  File "{self.file}", line {self.line}, in {self.function}\n{code}'


def stacks_in(dump: str, script: ScriptSpec) -> str:
    """Return the stacks of a script as a traceback, out of what `faulthandler` wrote.

    They are without the frames of daskprs, and end with that of the main thread; empty: unknown.
    After a crash the thread that crashed takes its place. Where the main thread leaves `run` to
    others, the only one of them that is in the script does.
    """
    script.know_lines()
    is_crash = dump.startswith(FATAL)
    main: list[_StackFrame] = []
    others: list[list[_StackFrame]] = []
    calls_elsewhere = False
    for thread in _THREAD.finditer(dump):
        frames = _frames(thread["frames"])
        below = _below(frames, _OF_THREADS)
        is_current = thread["current"] == "Current thread"
        is_main = bool(frames) and frames[0].is_ours
        is_cut = is_current and below == frames  # a deep recursion: the dump lacks its beginning
        if is_current if is_crash else is_main or is_cut:
            main = _of_script(below)
            calls_elsewhere |= not is_crash and any(one.is_of(_OF_CALLS) for one in frames)
        elif any(map(_is_of_script, below)):
            others.append(_of_script(below))
    if calls_elsewhere:  # the main thread waits: which one of several counts is unknown
        main = others.pop() if len(others) == 1 else []
    if not main:
        return ""
    texts = [f"A thread of the script {MOST_RECENT}{''.join(map(str, one))}\n" for one in others]
    text = "".join([*texts, HEADER, *map(str, main)])
    return script.as_written(text)


def _frames(text: str) -> list[_StackFrame]:
    """Return the frames of a thread, the most recent one last."""
    found = [
        _StackFrame(_ESCAPED.sub(_unescaped, file), int(line), _ESCAPED.sub(_unescaped, function))
        for file, line, function in _FRAME.findall(text)
    ]
    return found[::-1]


def _unescaped(code: re.Match[str]) -> str:
    return code[0].encode().decode("unicode_escape")


def _of_script(frames: list[_StackFrame]) -> list[_StackFrame]:
    """Return the frames below those of daskprs; all of them where all are of daskprs."""
    first = next((at for at, frame in enumerate(frames) if not frame.is_ours), len(frames))
    return _below(frames[first:], _OF_IMPORTS) or frames[-1:]


def _below(frames: list[_StackFrame], files: tuple[str, ...]) -> list[_StackFrame]:
    """Return the frames below those of some modules."""
    first = next((at for at, frame in enumerate(frames) if not frame.is_of(*files)), len(frames))
    return frames[first:]


def _is_of_script(frame: _StackFrame) -> bool:
    return not frame.is_ours and library_of(frame.file) is None
