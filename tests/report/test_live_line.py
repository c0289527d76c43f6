"""The live line, in real pseudo-terminals: what a person sees, and what is left behind."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.terminal import Terminal

PROGRAM = [sys.executable, str(Path(__file__).parent / "shows_progress.py")]
SAID = [
    "first error: ValueError: row 3 is bad",
    "  in mini-batch 3 (rows 3-4), attempt 1; full traceback: /j/logs/user/error/0/process000.txt",
    "printed by other code",
    "warning: the disk is slow",
]


def test_a_line_is_drawn_again_and_again_and_what_is_said_goes_above_it() -> None:
    """In the end its last state is left, once."""
    with Terminal([*PROGRAM, "completed"], 120) as terminal:
        assert terminal.read_to_the_end() == 0
    bar = "━" * 23
    assert terminal.screen.lines == [
        *SAID,
        f"{bar} 100 % 10/10 mini-batches, 1 retried, 12 s, 50.0/min",
        "the end",
        "",
    ]
    assert terminal.screen.cursor_shown
    assert "2/10 mini-batches" in terminal.said
    assert " 9/10 mini-batches, 1 retried, " in terminal.said
    assert "mini-batch 9 runs for 50 s on node 0 process001, timeout in 10 s" in terminal.said
    assert "2 processes: 2 running" in terminal.said


@pytest.mark.parametrize("columns", [80, 200])
def test_the_bar_keeps_its_room(columns: int) -> None:
    """Its width, and the place of what stands behind it, are the same in each drawing."""
    with Terminal([*PROGRAM, "completed"], columns) as terminal:
        terminal.read_to_the_end()
    drawn = re.findall(r"━[^\r\n]*", re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", terminal.said))
    assert len(drawn) > 5
    assert {line.index(" mini-batches") for line in drawn} == {(columns - 1) // 5 + 12}
    assert all(len(line) < columns for line in drawn)
    assert not any(re.search(r"\b0 s left", line) for line in drawn)


def test_an_interrupt_leaves_no_garbage() -> None:
    """The cursor is back, and the line stands as it was."""
    with Terminal([*PROGRAM, "interrupted"], 120) as terminal:
        terminal.read_to_the_end()
    *said, line, end, rest = terminal.screen.lines
    assert said == SAID
    assert "9/10 mini-batches" in line
    assert (end, rest) == ("the end", "")
    assert terminal.screen.cursor_shown


def test_the_lines_of_two_jobs_stand_one_below_another_with_their_names() -> None:
    """Each of them once erased the lines of the other."""
    with Terminal([*PROGRAM, "two"], 80) as terminal:
        assert terminal.read_to_the_end() == 0
    bar = "━" * 14
    assert terminal.screen.lines == [
        "before its lines",
        "second: a warning",
        "second: [mini-batch 1] one",
        "second: [mini-batch 2] two",
        f"first: {bar}  70 %  7/10 mini-batches, 1 s, 5.0/s",
        f"second: {bar}  90 %  9/10 mini-batches, 9 s, 1.0/s",
        "the end",
        "",
    ]
    assert "second: 2 processes: 2 running" in terminal.said
    assert terminal.screen.cursor_shown


@pytest.mark.parametrize(("columns", "exported"), [(20, ""), (40, ""), (79, ""), (40, "120")])
def test_a_narrow_terminal_has_one_line_too(columns: int, exported: str) -> None:
    """What there is no room for is left out: a line that wraps could not be drawn over."""
    with Terminal([*PROGRAM, "completed"], columns, COLUMNS=exported) as terminal:
        terminal.read_to_the_end()
    lines = terminal.screen.lines
    assert lines[-2:] == ["the end", ""]
    shown = [line for line in lines if "mini-batch" in line and "/10" in line]
    assert len(shown) == 1
    assert "10/10 mini" in shown[0]
    wide = "".join(line.ljust(columns) for line in lines)
    assert "".join(SAID).replace(" ", "") in wide.replace(" ", "")


def test_a_terminal_that_can_draw_nothing_gets_plain_lines() -> None:
    """As an editor's shell is one."""
    with Terminal([*PROGRAM, "completed"], 200, TERM="dumb") as terminal:
        terminal.read_to_the_end()
    assert "\x1b" not in terminal.said
    assert "daskprs: 10/10 mini-batches, 1 retried, 12 s, 50.0/min" in terminal.screen.lines
