"""Calls that cost money are not made again after the caller was killed, but for those under way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

import daskprs
from daskprs._folders.job_folder import JobFolder
from daskprs._output.journal.history import History
from tests.support.polling import poll_for

COUNT, ANSWERED, AT_ONCE, PROCESSES = 400, 150, 16, 2
SCRIPT = """
import asyncio, os
from pathlib import Path

HERE = Path(FOLDER)

def tell(file, number):
    with open(HERE / file, "a") as opened:
        opened.write(f"{number} {os.getpid()}\\n")

async def run(rows):
    number = int(rows["n"].iloc[0])
    tell("asked.txt", number)
    while number >= ANSWERED and not (HERE / "go").exists():
        await asyncio.sleep(0.05)
    tell("answered.txt", number)
    return [f"answer to {number}"]
"""
CALLER = """
import sys
from tests.acceptance.test_calls_resumed import ask
if __name__ == "__main__":
    ask(sys.argv[1])
"""


def ask(folder: str, **more: Any) -> Any:
    """Run the job, or what is left of it."""
    here = Path(folder)
    return daskprs.parallel_run(
        pd.DataFrame({"n": range(COUNT)}),
        here / "ask.py",
        mini_batch_size="1 row",
        process_count_per_node=PROCESSES,
        concurrency_per_process=AT_ONCE,
        output=here / "out.csv",
        job_dir=here / "job",
        progress=False,
        **more,
    )


def numbers(file: Path) -> list[int]:
    """Return the first word of each line."""
    text = file.read_text() if file.exists() else ""
    return [int(line.split()[0]) for line in text.splitlines()]


def commits(job: Path) -> int:
    """Return how many mini-batches are committed so far."""
    return len(History(JobFolder(job)).commits.column("index")) if job.exists() else 0


def is_alive(pid: int) -> bool:
    """Say whether a process is there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_resume_asks_again_only_for_what_was_under_way(tmp_path: Path) -> None:
    """What has come is safe soon, though all calls that follow take long."""
    script = SCRIPT.replace("ANSWERED", str(ANSWERED)).replace("FOLDER", repr(str(tmp_path)))
    (tmp_path / "ask.py").write_text(script)
    (tmp_path / "caller.py").write_text(CALLER)
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    caller = subprocess.Popen(
        [sys.executable, tmp_path / "caller.py", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    )
    asked = tmp_path / "asked.txt"
    try:
        is_safe = poll_for(lambda: commits(tmp_path / "job") >= ANSWERED or caller.poll(), 120)
    finally:
        caller.kill()
    assert is_safe
    assert caller.wait() == -signal.SIGKILL
    agents = {int(line.split()[1]) for line in asked.read_text().splitlines()}
    assert poll_for(lambda: not any(map(is_alive, agents)), 60)
    begun = {*numbers(asked)}
    assert len(begun) - ANSWERED <= AT_ONCE * PROCESSES
    (tmp_path / "go").touch()
    ask(str(tmp_path), resume=True)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[1:] == [f"answer to {number}" for number in range(COUNT)]
    twice = {number for number, times in Counter(numbers(asked)).items() if times > 1}
    assert twice <= {*range(ANSWERED, COUNT)} & begun
    assert [*Counter(numbers(tmp_path / "answered.txt")).values()] == COUNT * [1]
