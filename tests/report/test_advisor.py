"""The advisor of a job: when it speaks, what it counts, and where its words go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import AgentChanged, JobStarted, MiniBatchesDone, UsageMeasured
from daskprs._core.lease import AgentExited, AgentReady, AgentStarted
from daskprs._core.usage import DeviceUsage, NodeUsage, ProcessUsage, UsageSample
from daskprs._report.advisor import Advisor
from daskprs._report.job_logs import DriverLog, Overview
from daskprs._report.job_view import JobWatch
from daskprs._report.listeners import Listeners
from daskprs._report.log_files import LogFiles
from daskprs._report.progress_bar import PlainLines, ProgressBar
from tests.support.job_events import HERE, STARTED, attempt, stood

if TYPE_CHECKING:
    import io

    import pytest

    from daskprs._core.events import Event
    from daskprs._folders.job_folder import JobFolder

MB = 1 << 20
SAMPLE = UsageSample(STARTED, "running", 7, 1, 0.0, 300 * MB, 0, 0, 900 * MB, 0)
CARD = DeviceUsage(0, 5, 4000 * MB, 80_000 * MB, is_mean=True)
BEGUN = JobStarted("job", "score.py", "row", STARTED, 1000, False, {})
GPU_TEXT = (
    "GPU 0 was busy 5 % of the time; 90 % of run() was on the CPU: move what needs no GPU into "
    "a function for preprocess, or try process_count_per_node=16 with gpus_per_process=0.0625."
)


def looked(at_s: float, *devices: DeviceUsage, cpu_s: float | None = None) -> UsageMeasured:
    """Return a look at a node with 16 cores and one process, which works without a pause."""
    sample = SAMPLE._replace(taken=STARTED + at_s, cpu_s=at_s if cpu_s is None else cpu_s)
    agent = ProcessUsage("process000", 41, sample, None, None, has_gpu=bool(devices))
    size = 100_000 * MB
    usage = NodeUsage(
        STARTED + at_s, 6.0, size, size, 0, *[None] * 8, (), devices, (agent,), "", 16, 15.0
    )
    return UsageMeasured(0, usage, of_node=True)


def worked(at_s: float) -> MiniBatchesDone:
    """Return the success of an attempt that began at a time and used the CPU."""
    done: Any = attempt()
    outcome = done.outcomes[0]._replace(started=STARTED + at_s, run_s=1.0, cpu_s=0.9)
    return MiniBatchesDone(HERE, done.mini_batches, ColumnBatch([outcome]))


def told(*events: Event) -> list[str]:
    """Return the advice that a job gets from these events."""
    advisor, heard = Advisor(str), []
    advisor.tell_job = heard.append
    for event in (BEGUN, stood(total=1000), *events):
        advisor.tell(event)
    return [one[-1] for one in heard]


def test_a_job_is_advised_once_after_ten_seconds() -> None:
    """With the second look; further looks repeat nothing."""
    early = (worked(1.0), looked(5.0, CARD), stood(total=1000, elapsed_s=5.1), looked(10.0, CARD))
    assert told(*early, stood(total=1000, elapsed_s=9.9)) == []
    later = (stood(total=1000, elapsed_s=10.1), looked(20.0, CARD), stood(total=1000, elapsed_s=21))
    assert told(*early, *later) == [GPU_TEXT]


def test_cores_are_counted_by_what_processes_have_used() -> None:
    """The look at five seconds has the import in it, and counts nothing."""
    events = worked(1.0), looked(5.0), looked(10.0), stood(total=1000, elapsed_s=10.1)
    [text] = told(*events)
    assert text.endswith("as its Dask workers have threads. Try process_count_per_node=16.")
    busy = looked(10.0, cpu_s=60.0)
    assert told(worked(1.0), looked(5.0), busy, stood(total=1000, elapsed_s=10.1)) == []


def test_a_look_counts_if_the_node_has_worked_since_the_look_before() -> None:
    """A slow `init` is no idle GPU, and neither is the last mini-batch."""
    late = worked(6.0), looked(5.0, CARD), looked(10.0, CARD), stood(total=1000, elapsed_s=10.1)
    assert told(*late) == []
    assert told(*late, looked(20.0, CARD), stood(total=1000, elapsed_s=20.1)) == [GPU_TEXT]
    last = stood(999, total=1000, elapsed_s=9.0, running=1)
    assert told(worked(1.0), looked(5.0, CARD), last, *late[2:]) == []


def test_the_load_of_a_moment_counts_when_there_are_three() -> None:
    """An older driver keeps no mean; one that says nothing is no idle device."""
    moment = CARD._replace(is_mean=False)
    looks = worked(1.0), *(looked(at_s, moment) for at_s in (5.0, 10.0, 20.0))
    assert told(*looks, stood(total=1000, elapsed_s=20.1)) == []
    assert told(*looks, looked(40.0, moment), stood(total=1000, elapsed_s=40.1)) == [GPU_TEXT]
    silent = CARD._replace(percent=None)
    looks = worked(1.0), *(looked(at_s, silent) for at_s in (5.0, 10.0, 20.0))
    assert told(*looks, stood(total=1000, elapsed_s=20.1)) == []


def test_imports_are_counted_process_by_process() -> None:
    """The packages of all of them are named, each once."""
    ready = AgentReady("process000", 4.5, 4.0, ("torch",))
    events = [AgentChanged(HERE, ready), AgentChanged(HERE, ready), worked(1.0), looked(5.0)]
    [text] = told(*events, stood(total=1000, elapsed_s=10.1))
    assert text.endswith("took 4.0 s in each of 2 processes: try preload=['torch'].")


def test_packages_that_no_fork_can_use_are_named_once() -> None:
    """Each process says so."""
    apart = AgentChanged(HERE, AgentStarted("process000", 41, ("torch (it starts a thread)",)))
    assert told(apart, apart) == [
        "preload: each process imports torch (it starts a thread), since no fork can use it."
    ]


def test_gpus_of_others_and_processes_that_have_ended_do_not_count() -> None:
    """A worker names the devices that its agents may use."""
    other = CARD._replace(number=1, percent=100, is_ours=False)
    looks = worked(1.0), looked(5.0, CARD, other), looked(10.0, CARD, other)
    assert told(*looks, stood(total=1000, elapsed_s=10.1)) == [GPU_TEXT]
    before = ProcessUsage("process001", 42, SAMPLE, None, None, has_gpu=True)
    with_it = looks[1]._replace(usage=looks[1].usage._replace(agents=(before,)))
    ended = AgentChanged(HERE, AgentExited("process001", 0, "stopped", expected=True))
    events = looks[0], with_it, ended, looks[2], stood(total=1000, elapsed_s=10.1)
    assert told(*events) == [GPU_TEXT]


def test_advice_is_on_the_screen_in_the_logs_and_in_the_result(
    folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once on the screen; the result has it as of the end of the job."""
    import sys

    files, watch, advisor = LogFiles(), JobWatch(), Advisor(str)
    stream: io.TextIOBase = sys.stderr  # type: ignore[assignment]
    bar = ProgressBar(PlainLines(stream), folder, watch)  # type: ignore[arg-type]
    logs = Overview(folder, files, watch, lambda: STARTED), DriverLog(folder, files)
    listeners = Listeners([watch, advisor, bar, *logs, files], folder)
    advisor.tell_job = listeners.tell
    first = BEGUN, stood(total=1000), worked(1.0), looked(5.0, CARD), looked(10.0, CARD)
    for event in (*first, stood(total=1000, elapsed_s=10.1)):
        listeners.tell(event)
    listeners.tell(AgentChanged(HERE, AgentExited("process000", 0, "stopped", expected=True)))
    advisor.tell_new()
    assert advisor.advice(12.0) == (GPU_TEXT,)
    assert advisor.advice(9.0) == ()
    listeners.close()
    assert capsys.readouterr().err.count(GPU_TEXT) == 1
    assert "|NOTICE|" in folder.master_log.read_text()
    assert folder.progress_overview("20270115").read_text().count(GPU_TEXT) == 1
