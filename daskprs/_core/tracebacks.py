"""Tracebacks as text: the frames of a script, without those of libraries between them."""

from __future__ import annotations

import re
from itertools import groupby, pairwise, takewhile

FRAME = re.compile(
    r'^  (?:File "(?P<file>[^"\n]*)"|(?P<cell>Cell [^,\n]*)), line (?P<line>\d+), '
    r"in (?P<function>.*)\n"
    r"(?P<code>(?:    .*\n)*)",
    re.MULTILINE,
)
"""A frame as Python prints it, with its line of code; a cell of a notebook stands for its file."""
MOST_RECENT = "(most recent call last):\n"
HEADER = f"Traceback {MOST_RECENT}"
GROUP = "  + Exception Group Traceback"
_LIBRARIES = (
    re.compile(r"/(?:site|dist)-packages/(\w+)"),
    re.compile(r"^(\w+)/.*\.p(?:yx|xi)$"),  # Cython
    re.compile(r"(?:/lib(?:64)?/python3\.\d+/|^<frozen )()"),
)
_WHOLE_LINE = re.compile(r"^(    +)(.*)\n\1(\^+)\n", re.MULTILINE)
"""A line of code and marks below it; they say nothing where they mark all of it."""
SHORTEST = 3
"""Number of library frames in a row of which some are left out."""


def library_of(file: str) -> str | None:
    """Return the package that a file belongs to; None for a file of the script."""
    for library in _LIBRARIES:
        if found := library.search(file):
            return found[1] or "Python"
    return None


def deepest_line(traceback: str) -> str:
    """Return the deepest line of the script: ``score.py, line 3, in run: return rows[0]``.

    Where all lines are of libraries, it is one of these; without lines, it is empty.
    """
    frames = [*FRAME.finditer(traceback)]
    own = [frame for frame in frames if not _is_of_library(frame)] or frames
    if not own:
        return ""
    last = own[-1]
    name = last["cell"] or last["file"].rpartition("/")[2]
    code = last["code"].partition("\n")[0].strip()
    place = f"{name}, line {last['line']}, in {last['function']}"
    return f"{place}: {code}" if code else place


def condensed(traceback: str) -> str:
    """Return a traceback with only the first and the last of several library frames in a row.

    Marks below a line of code go, too, where they mark all of it.
    """
    traceback = _WHOLE_LINE.sub(_without_useless_marks, traceback)
    pieces, end = [], 0
    for is_library, row in groupby(FRAME.finditer(traceback), _is_of_library):
        run = list(row)
        pieces.append(traceback[end : run[0].start()])
        end = run[-1].end()
        left_out = run[1:-1] if is_library and _are_adjacent(run) else []
        if len(run) < SHORTEST or not left_out:
            pieces.append(traceback[run[0].start() : end])
            continue
        names = dict.fromkeys(str(library_of(frame["file"])) for frame in left_out)
        frames = "1 frame" if len(left_out) == 1 else f"{len(left_out)} frames"
        pieces += [run[0][0], f"  … {frames} of {', '.join(names)} …\n", run[-1][0]]
    return "".join([*pieces, traceback[end:]])


def _without_useless_marks(line: re.Match[str]) -> str:
    indent, code, marks = line.groups()
    return line[0] if len(marks) < len(code) else f"{indent}{code}\n"


def _is_of_library(frame: re.Match[str]) -> bool:
    return library_of(frame["file"] or "") is not None


def _are_adjacent(frames: list[re.Match[str]]) -> bool:
    """Return whether nothing stands between frames, such as a second traceback."""
    return all(one.end() == other.start() for one, other in pairwise(frames))


def without_error(traceback: str, message: str) -> str:
    """Return a condensed traceback without its end, which is the error with this message.

    The notes of the error stay, and so do the tracebacks of its causes.
    """
    text = condensed(traceback)
    if text.count(MOST_RECENT) == 1:
        text = text.removeprefix(HEADER)
    ends = [frame.end() for frame in FRAME.finditer(text)]
    if not ends:
        return text.rstrip() if GROUP in text else ""
    lines = text[ends[-1] :].splitlines()
    more = list(takewhile(lambda line: line.startswith(" "), lines))  # the place of a syntax error
    notes = lines[len(more) + max(1, len(message.splitlines())) :]
    return "\n".join([text[: ends[-1]].rstrip("\n"), *more, *notes])
