"""Workers that die on nodes which see nothing of the driver: what their agents said is not lost."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from distributed import Client

import daskprs
from tests.support.polling import poll_for
from tests.support.separate_nodes import separate_nodes, why_not, why_temporary_files_are_seen

if TYPE_CHECKING:
    from pathlib import Path

FRAME = pd.DataFrame({"number": range(6)})
KILLS_ITS_WORKER = """
import os
import signal
from pathlib import Path

def run(rows):
    if not Path("/tmp/killed").exists():
        Path("/tmp/killed").touch()
        print("last words", flush=True)
        zygote = os.getppid()
        worker = Path(f"/proc/{zygote}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(worker), signal.SIGKILL)
        signal.pause()
    return rows
"""
WAITS = """
import socket
import time
from pathlib import Path

def run(rows):
    if socket.gethostname() == "node0" and not Path("/tmp/waited").exists():
        Path("/tmp/waited").touch()
        print("early words", flush=True)
        time.sleep(60)
    return rows
"""


@pytest.fixture(autouse=True)
def can() -> None:
    """Skip where there can be no such nodes."""
    if reason := why_not() or why_temporary_files_are_seen():
        pytest.skip(reason)


def said(job: Path) -> str:
    """Return all that processes have printed."""
    logs = (job / "logs" / "user" / "stdout").rglob("*.txt")
    return "".join(log.read_text() for log in logs)


def run(script: Path, folder: Path, address: str) -> None:
    """Run a job, one row a mini-batch, and compare what comes out."""
    result = daskprs.parallel_run(
        FRAME,
        script,
        client=address,
        job_dir=folder,
        mini_batch_size=1,
        output_dir=folder / "out",
        progress=False,
    )
    assert result.output_file is not None
    assert result.output_file.read_text() == "".join(f"{n}\n" for n in range(6))


@pytest.mark.long
def test_the_last_words_before_a_kill_are_there(tmp_path: Path) -> None:
    """The worker that its nanny starts next sees the folder, and tells what is new in it."""
    (tmp_path / "script.py").write_text(KILLS_ITS_WORKER)
    with separate_nodes(tmp_path / "log", [tmp_path], count=1, nanny=True) as nodes:
        run(tmp_path / "script.py", tmp_path / "job", nodes.address)
        assert said(tmp_path / "job").count("last words") == 1
        left = nodes.nodes[0].call("find", "/tmp", "-path", "*daskprs-*/*")  # noqa: S108
        assert left == ""


@pytest.mark.long
def test_a_worker_without_a_nanny_is_lost_and_what_it_left_is_removed_later(
    tmp_path: Path,
) -> None:
    """What was printed a second before is in the log; the next job on the node tidies up."""
    (tmp_path / "script.py").write_text(WAITS)
    with separate_nodes(tmp_path / "log", [tmp_path], count=0) as nodes:
        node0, node1 = nodes.add(), nodes.add()
        worker = nodes.start_worker(node0, "--no-nanny")
        nodes.start_worker(node1, "--no-nanny")

        def kill() -> None:
            assert poll_for(lambda: "early words" in said(tmp_path / "job"), 60)
            node0.signal(signal.SIGKILL, "dask_worker")

        with Client(nodes.address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            killing = threading.Thread(target=kill)
            killing.start()
            run(tmp_path / "script.py", tmp_path / "job", nodes.address)
            killing.join()
            worker.wait(10)
            assert said(tmp_path / "job").count("early words") == 1
            find = ["find", "/tmp", "-path", "*daskprs-*/*", "-name", "*.stdout.txt"]  # noqa: S108
            assert node0.call(*find) != ""
            nodes.start_worker(node0, "--no-nanny")
            client.wait_for_workers(2, timeout=60)
            run(tmp_path / "script.py", tmp_path / "next", nodes.address)
            assert node0.call(*find) == ""
