"""A driver that is stopped, and goes on later: its agents are looked after meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.by_hand import ByHand
from tests.support.cases import mostly_long
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import os
import time
from pathlib import Path

FOLDER = Path({folder!r})

def run(mini_batch):
    number = int(mini_batch["number"].iloc[0])
    if number == 1:
        (FOLDER / f"begun.{{os.getpid()}}").touch()
        while not (FOLDER / "go").exists():
            time.sleep(0.01)
        {deed}
    return mini_batch
"""
PROGRAM = """
import sys

import pandas as pd
from distributed import Client

import daskprs

address, folder = sys.argv[1:]
with Client(address) as client:
    result = daskprs.parallel_run(
        pd.DataFrame({"number": range(4)}),
        f"{folder}/script.py",
        mini_batch_size="1 row",
        run_invocation_timeout=4,
        run_max_try=1,
        allowed_failed_count=1,
        agent_memory_limit="500 MB",
        job_dir=f"{folder}/job",
        client=client,
        progress=False,
    )
print(*result.failed["error"], sep="|")
"""


@pytest.mark.parametrize(
    ("deed", "told"),
    mostly_long(
        [
            ("time.sleep(600)", "exceeded 4 s"),
            ("kept = b'x' * (600 << 20); time.sleep(600)", "agent_memory_limit is 500 MiB"),
        ],
        suite=[("time.sleep(600)", "exceeded 4 s")],
    ),
)
def test_a_process_that_exceeds_a_limit_is_ended_while_the_driver_is_stopped(
    tmp_path: Path, deed: str, told: str
) -> None:
    """And the driver hears of it when it goes on."""
    (tmp_path / "script.py").write_text(SCRIPT.format(folder=str(tmp_path), deed=deed))
    with ExitStack() as stack:
        cluster = ByHand(tmp_path)
        stack.callback(cluster.close)
        cluster.worker()
        program = [sys.executable, "-c", PROGRAM, cluster.address, str(tmp_path)]
        driver = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        stack.enter_context(driver)
        stack.callback(driver.kill)
        assert poll_for(lambda: any(tmp_path.glob("begun.*")), 60)
        agent = psutil.Process(int(next(tmp_path.glob("begun.*")).suffix[1:]))
        driver.send_signal(signal.SIGSTOP)
        (tmp_path / "go").touch()
        assert poll_for(lambda: not agent.is_running(), 30)
        driver.send_signal(signal.SIGCONT)
        (error,) = driver.communicate(timeout=60)[0].split("|")
    assert told in error
