"""A real job in a real terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.cases import mostly_long
from tests.support.terminal import CTRL_C, Terminal

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import time

def run(mini_batch):
    if mini_batch["a"][0] == 3:
        time.sleep(3600)
    return mini_batch
"""


@pytest.mark.long
def test_ctrl_c_ends_a_job_that_shows_what_it_waits_for(tmp_path: Path) -> None:
    """The screen is left in order: one line of progress, and how to go on."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "script.py").write_text(SCRIPT)
    (tmp_path / "table.csv").write_text("a\n1\n2\n3\n4\n")
    paths = [tmp_path / "source" / "script.py", tmp_path / "table.csv", "--job-dir", tmp_path / "j"]
    options = ["--mini-batch-size", "2", "--process-count-per-node", "1"]
    command = [sys.executable, "-m", "daskprs", "run", *map(str, paths), *options]
    with Terminal(command, 150) as terminal:
        terminal.read_until(lambda: "runs for" in terminal.said)
        terminal.type(CTRL_C)
        code = terminal.read_to_the_end()
    assert code == 130
    assert "mini-batch 3 runs for" in terminal.said
    shown = "\n".join(terminal.screen.lines)
    assert shown.count("mini-batches, ") == 1
    assert "The job is Canceled" in shown
    assert "daskprs resume" in shown
    assert "Traceback" not in shown
    assert terminal.screen.cursor_shown


FAILS = """
def run(mini_batch):
    number = int(mini_batch["a"][0])
    print("row", number)
    if number == 3:
        raise ValueError("it is three")
    return mini_batch
"""


@pytest.mark.parametrize("columns", mostly_long([80, 200], suite=[80]))
def test_a_job_that_fails_shows_its_output_and_the_line_that_failed(
    tmp_path: Path, columns: int
) -> None:
    """Each line of the output is one line of the screen, and progress is one line in the end."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "script.py").write_text(FAILS)
    (tmp_path / "table.csv").write_text("a\n1\n2\n3\n4\n")
    paths = ["source/script.py", "table.csv", "--job-dir", str(tmp_path / "j")]
    options = ["--mini-batch-size", "2", "--run-max-try", "1", "--show-output"]
    budget = ["--allowed-failed-count", "1", "--error-threshold", "0"]
    command = [sys.executable, "-m", "daskprs", "run", *paths, *options, *budget]
    with Terminal(["env", "-C", str(tmp_path), *command], columns) as terminal:
        assert terminal.read_to_the_end() == 42
    lines = terminal.screen.lines
    assert "[mini-batch 3] row 3" in lines
    assert lines.count('    raise ValueError("it is three")') == 1
    assert "first error: ValueError: it is three" in lines
    assert '  at script.py, line 6, in run: raise ValueError("it is three")' in lines
    assert "In mini-batch 3 (table.csv, bytes 6-8), attempt 1:" in lines
    assert sum(" mini-batches, " in line for line in lines) == 1
    assert "Traceback" not in terminal.said
    assert "/daskprs/" not in terminal.said.replace(str(tmp_path), "")
    assert terminal.screen.cursor_shown
