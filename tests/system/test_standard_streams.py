"""Streams that are closed, full or gone."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._system.standard_streams import is_terminal, provide_streams, to_stderr

if TYPE_CHECKING:
    import pytest

CLOSED = """
import os, sys
from daskprs._system.standard_streams import provide_streams
provide_streams()
assert sys.stdin.read() == ""
print("nobody reads this", file=sys.stderr)
os.write(3, repr([one.fileno() for one in (sys.stdin, sys.stdout, sys.stderr)]).encode())
os.write(3, repr([os.get_inheritable(fd) for fd in (0, 1, 2)]).encode())
"""


def test_closed_streams_become_streams_of_nothing_with_their_own_descriptors(
    tmp_path: Path,
) -> None:
    """Else a file of the job would get the descriptor of stderr."""
    said = tmp_path / "said"
    command = f'exec "$0" -c "$1" 3>{said} <&- >&- 2>&-'
    subprocess.run(["/bin/sh", "-c", command, sys.executable, CLOSED], check=True, timeout=60)
    assert said.read_text() == "[0, 1, 2][True, True, True]"


def test_stderr_drops_what_it_cannot_write_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left in its buffer, which Python would write at the end."""
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        monkeypatch.setattr(sys, "__stderr__", full)
        provide_streams()
        sys.stderr.write("lost\n" * 10_000)
        sys.stderr.flush()
        provide_streams()  # again, for a command within another
        assert sys.stderr.fileno() == full.fileno()


def test_stderr_writes_what_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line at once; text that has no encoding is escaped, and a terminal obeys none."""
    log = tmp_path / "log"
    with log.open("w", errors="backslashreplace", encoding="ascii") as file:
        monkeypatch.setattr(sys, "stderr", file)
        monkeypatch.setattr(sys, "__stderr__", file)
        provide_streams()
        to_stderr("größer")
        to_stderr("\x1b]0;title\x07\x1b[31mred\x1b[0m")
        assert log.read_text() == "gr\\xf6\\xdfer\n0;titlered\n"


def test_a_stream_of_another_program_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of a notebook, or of a test."""
    monkeypatch.setattr(sys, "stderr", own := io.StringIO())
    provide_streams()
    assert sys.stderr is own


def test_a_line_for_a_closed_stderr_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is what Python has for it, unless it was closed later."""
    closed = io.StringIO()
    closed.close()
    for stderr in (None, closed):
        monkeypatch.setattr(sys, "stderr", stderr)
        to_stderr("nobody reads this")


def test_what_cannot_say_whether_it_is_a_terminal_is_none() -> None:
    """A closed stream raises an error, and a stand-in may lack the method."""
    closed = io.StringIO()
    closed.close()
    assert [is_terminal(one) for one in (None, closed, object())] == [False] * 3
    here, there = os.openpty()
    with os.fdopen(there, "w") as terminal:
        assert is_terminal(terminal)
    os.close(here)
