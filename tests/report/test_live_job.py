"""A real job in a real terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

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


def test_ctrl_c_ends_a_job_that_shows_what_it_waits_for(tmp_path: Path) -> None:
    """The screen is left in order: one line of progress, and how to go on."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "script.py").write_text(SCRIPT)
    (tmp_path / "table.csv").write_text("a\n1\n2\n3\n4\n")
    paths = [tmp_path / "source" / "script.py", tmp_path / "table.csv", "--job-dir", tmp_path / "j"]
    options = ["--mini-batch-size", "2", "--process-count-per-node", "1"]
    command = [sys.executable, "-m", "daskprs", "run", *map(str, paths), *options]
    with Terminal(command, 150) as terminal:
        terminal.read_until(lambda: "running for" in terminal.said)
        terminal.type(CTRL_C)
        code = terminal.read_to_the_end()
    assert code == 130
    assert "on mini-batch 3 in process000" in terminal.said
    shown = "\n".join(terminal.screen.lines)
    assert shown.count("mini-batches, ") == 1
    assert "The job is Canceled" in shown
    assert "daskprs resume" in shown
    assert "Traceback" not in shown
    assert terminal.screen.cursor_shown
