"""What agents need is imported while the call is checked, and nothing is left of it if refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from distributed import Client, LocalCluster

from daskprs._agent.node.environment import agent_environment, usable_cores
from daskprs._agent.supervision.zygote import take_zygote
from daskprs._cluster.connect import IN_PROCESS
from daskprs._job.prestart import prestart
from daskprs._options.run_options import RunOptions
from daskprs.errors import AgentError, OptionError

if TYPE_CHECKING:
    import types
    from pathlib import Path


pytestmark = pytest.mark.cold
"""Tests look at the children of a process: a template would be one."""


def children() -> set[int]:
    """Return the processes that this one has started."""
    return {child.pid for child in psutil.Process().children()}


def test_the_pool_finds_what_was_started_for_it() -> None:
    """It asks by the environment, the agent's share of the cores among it."""
    before = children()
    options = RunOptions(process_count_per_node=1, environment_variables={"A": "b"})
    with prestart(options, None):
        (started,) = children() - before
        threads = usable_cores()
        environment = agent_environment(os.environ, {"A": "b"}, threads=threads)
        zygote = take_zygote(environment, options.start_method)
        assert children() - before == {started}
        zygote.close()
    assert children() == before


def test_nothing_is_left_of_a_call_that_is_refused() -> None:
    """Not even until it has imported what it was about to."""
    before = children()

    def refuse() -> None:
        with prestart(RunOptions(), None):
            assert children() > before
            msg = "no such input"
            raise OptionError(msg)

    with pytest.raises(OptionError):
        refuse()
    assert children() == before


def test_nothing_is_left_where_ctrl_c_comes_while_it_starts() -> None:
    """The process is there, and its owner does not know it yet."""
    before = children()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(frame: types.FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code is subprocess.Popen.__init__.__code__:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), prestart(RunOptions(), None):
            pytest.fail("it was not interrupted")
        assert children() == before
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGINT, handler)


def test_ctrl_c_while_packages_are_imported_leaves_them_whole(tmp_path: Path) -> None:
    """Python keeps the modules of a half imported package, and its next import fails."""
    (tmp_path / "table.csv").write_text("a\n1\n")
    program = """
import signal, sys
import daskprs

pressed = ["pandas.core.api", "distributed.core"]

class Press:
    @staticmethod
    def find_spec(name, *_):
        if name in pressed:
            pressed.remove(name)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Press)
interrupted = 0
while True:
    try:
        result = daskprs.parallel_run("table.csv", lambda rows: rows, progress=False)
        break
    except KeyboardInterrupt:
        interrupted += 1
print(interrupted, pressed, len(result.to_pandas()))
"""
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (told.stdout, told.stderr) == ("2 [] 1\n", "")


def test_the_end_of_a_call_leaves_what_others_have_started() -> None:
    """Calls in several threads: one is refused while another one is checked."""
    before = children()
    options = RunOptions(environment_variables={"A": "b"})
    with prestart(options, None):
        started = children() - before
        with prestart(RunOptions(), None):
            pass
        assert children() - before == started
    assert children() == before


def test_what_cannot_be_started_is_told_by_the_job() -> None:
    """A variable that is longer than the kernel allows: the call goes on until it is needed."""
    options = RunOptions(environment_variables={"A": "b" * (1 << 18)})
    with prestart(options, None), pytest.raises(AgentError, match="Argument list too long"):
        take_zygote({"A": "b" * (1 << 18)}, options.start_method)


def test_agents_elsewhere_need_no_process_here() -> None:
    """On the cluster of an address, of a client, or of the current client."""
    before = children()
    with (
        LocalCluster(threads_per_worker=1, **IN_PROCESS) as cluster,
        Client(cluster) as client,
    ):
        for given in (cluster.scheduler_address, client, None):
            with prestart(RunOptions(), given):
                assert children() == before


def test_a_job_that_is_inline_by_its_site_starts_nothing() -> None:
    """The call does not say so: the zygote would be one for nothing, and its end another wait."""
    before = children()
    inline = RunOptions(start_method="inline")
    with prestart(RunOptions(), None, lambda: inline) as final:
        assert final is inline
        assert children() == before
