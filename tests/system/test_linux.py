"""What Linux gives: descendants are found once each, however deep."""

from __future__ import annotations

import os
import subprocess
import sys
from threading import Thread

from daskprs._system import linux
from tests.support.polling import poll_for

CHAIN = """
import subprocess, sys, time
depth = int(sys.argv[1])
if depth:
    subprocess.run([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]])
else:
    time.sleep(600)
"""


def test_a_chain_of_processes_is_found_whole() -> None:
    """One name for each, from the oldest to the youngest."""
    first = subprocess.Popen([sys.executable, "-c", CHAIN, "5", CHAIN], start_new_session=True)
    try:
        assert poll_for(lambda: len(linux.descendants(first.pid)) == 5)
        found = linux.descendants(first.pid)
        assert len(set(found)) == 5
        assert linux.children(first.pid) == found[:1]
    finally:
        os.killpg(first.pid, 9)
        first.wait()


def test_a_process_may_end_while_it_is_asked() -> None:
    """It has no children then."""
    pids = [0]

    def start_and_end_some() -> None:
        for _ in range(300):
            pids.append(os.posix_spawn("/bin/true", ["true"], {}))
            os.waitpid(pids[-1], 0)

    others = Thread(target=start_and_end_some)
    others.start()
    while others.is_alive():
        assert linux.children(pids[-1]) == []
    others.join()
