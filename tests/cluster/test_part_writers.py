"""Parts of a data set, written by workers that are killed, stopped, busy, or blind."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd
import psutil
import pytest
from distributed import Client

import daskprs
from daskprs._agent.node.site import ProbeFile
from daskprs._cluster import part_worker, part_writers
from daskprs._cluster.part_worker import PartsPlugin
from daskprs._cluster.part_writers import PartWriters, WritingWorkers
from daskprs._cluster.worker_events import WorkerLost, WorkersFound
from daskprs._core import watchdog
from daskprs._folders.job_folder import JobFolder
from daskprs._output.dataset.part_file import write_part
from daskprs._output.publish.open_uploads import OpenUploads
from daskprs.errors import ReturnTypeError
from tests.support.by_hand import ByHand
from tests.support.datasets import manifest, part_plan
from tests.support.hand_cluster import leftovers
from tests.support.object_store import object_store
from tests.support.polling import poll_for
from tests.support.separate_nodes import separate_nodes, why_not

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed import Scheduler

    from daskprs._output.dataset.part_file import PartPlan

FRAME = pd.DataFrame({"number": range(1_000), "kind": ["a", "b"] * 500})
HELD = """
import os, sys, time
from pathlib import Path

HERE = Path({folder!r})

def hold(event, given):
    # A process that writes a part waits here, before it makes the file.
    if event == "open" and "part-" in str(given[0]):
        (HERE / f"held.{{os.getpid()}}").touch()
        until = time.monotonic() + 120
        while not (HERE / "go").exists() and time.monotonic() < until:
            time.sleep(0.01)

sys.addaudithook(hold)
"""


@pytest.fixture(autouse=True)
def no_part_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers write parts of a few rows, too."""
    monkeypatch.setattr(part_writers, "SMALL_BYTES", 0)


class Stage:
    """Two workers of one thread; what writes a part there waits until the test lets it go on.

    Unless it holds nothing: then its workers take half the time to start.
    """

    def __init__(self, folder: Path, *, holds: bool) -> None:
        self.folder = folder
        site = folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(HELD.format(folder=str(folder)))
        paths = os.pathsep.join([str(site), str(Path(daskprs.__file__).parents[1])])
        self.cluster = ByHand(folder, {"PYTHONPATH": paths} if holds else None)
        self.workers = [self.cluster.worker(), self.cluster.worker()]

    def held(self) -> list[psutil.Process]:
        """Return the processes that are held before they make a file of a part."""
        pids = [int(one.name.split(".")[1]) for one in self.folder.glob("held.*")]
        return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]

    def wait_for_a_writer(self) -> psutil.Process:
        """Return a process that is held."""
        assert poll_for(self.held, 60), self.cluster.said()
        return self.held()[0]

    def let_go(self) -> None:
        """Let all go on that are held, now and later."""
        (self.folder / "go").touch()


HOLDS_NOTHING = pytest.mark.parametrize("stage", [False], indirect=True)


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Yield it, and end its cluster."""
    made = Stage(tmp_path, holds=getattr(request, "param", True))
    try:
        yield made
    finally:
        made.cluster.close()


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    """Yield a client of the cluster."""
    with Client(stage.cluster.address, set_as_default=False) as made:
        made.wait_for_workers(2, timeout=60)
        yield made


class Writing:
    """Part writers without a job, and what they say."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.said: list[str] = []
        self.attempts = folder / "attempts"
        job = JobFolder(folder / "job")
        job.create()
        self.writers = PartWriters(client, job, self.attempts, 60.0, self._say)

    def _say(self, _: str, told: str) -> None:
        self.said.append(told)

    def submit(self, plan: PartPlan) -> Any:
        """Have a part written."""
        return self.writers.submit(write_part, plan, lambda: False)

    def end(self) -> str:
        """Shut down, and return all that was said."""
        self.writers.shutdown()
        return "\n".join(self.said)


@pytest.fixture
def writing(client: Client, stage: Stage) -> Iterator[Writing]:
    """Yield part writers."""
    made = Writing(client, stage.folder)
    try:
        yield made
    finally:
        made.end()


def job_of(stage: Stage, **options: Any) -> Callable[[], Any]:
    """Begin a job whose data set is one part, and return what waits for its result."""
    results: list[Any] = []

    def work() -> None:
        with Client(stage.cluster.address, set_as_default=False) as client:
            results.append(run(stage.folder / "far", client, **options))

    thread = threading.Thread(target=work)
    thread.start()

    def result() -> Any:
        thread.join(120)
        assert not thread.is_alive()
        (made,) = results
        return made

    return result


def run(folder: Path, client: Client | None, **options: Any) -> Any:
    """Run a job with a data set."""
    return daskprs.parallel_run(
        FRAME,
        lambda rows: rows.assign(half=rows["number"] / 2),
        mini_batch_size="1 kb",
        job_dir=folder / "job",
        output_dir=folder / "out",
        output_format="parquet",
        process_count_per_node=1,
        client=client,
        progress=False,
        **options,
    )


def contents(output: Path) -> list[tuple[Any, ...]]:
    """Return the files of a data set, without the word for its publication in their names."""
    return [
        (one["path"].rpartition("-")[0], one["rows"], one["bytes"], one["crc32"])
        for one in manifest(output)["files"]
    ]


def names_in(folder: Path) -> list[str]:
    """Return what lies beside a data set, hidden names too."""
    return sorted(path.name for path in folder.iterdir())


def driver_log(job: Path) -> str:
    """Return what the driver has noted."""
    return (job / "logs/sys/master_role.txt").read_text()


WRITTEN = re.compile(r"part(?:-(\d+)-\w+\.parquet)? was written by process (\d+) of (\S+://\S+)")


@pytest.mark.long
@HOLDS_NOTHING
def test_workers_write_the_parts_and_the_bytes_are_those_that_the_driver_writes(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in a process of its own; nothing of it is left. So does a job without a cluster."""
    options: dict[str, Any] = {"output_file_size": "10 kb", "keep_rows": False}
    far = run(stage.folder / "far", client, **options)
    local = run(stage.folder / "local", None, **options)
    monkeypatch.setattr(part_writers, "SMALL_BYTES", 1 << 30)
    here = run(stage.folder / "here", None, **options)
    assert contents(far.output_file) == contents(local.output_file) == contents(here.output_file)
    written = WRITTEN.findall(driver_log(far.job_dir))
    assert sorted(number for number, _, _ in written) == [
        f"{number:05d}" for number in range(len(contents(far.output_file)))
    ]
    assert len({pid for _, pid, _ in written}) == len(written) > 1
    assert {worker for _, _, worker in written} == set(client.nthreads())
    processes = [pid for _, pid, _ in WRITTEN.findall(driver_log(local.job_dir))]
    assert len(set(processes) - {str(os.getpid())}) == len(written)
    assert not WRITTEN.search(driver_log(here.job_dir))
    assert names_in(far.output_dir) == [far.output_file.name]
    assert not list(far.job_dir.glob("seen.*"))
    assert leftovers(stage.cluster.address) == []


@pytest.mark.long
def test_the_process_that_writes_a_part_uploads_it(tmp_path: Path) -> None:
    """The upload stays open for the driver, which finds a record of it."""
    with object_store(tmp_path / "log") as store:
        store.put("parts")
        cluster = ByHand(tmp_path, store.environment)
        try:
            cluster.worker()
            with Client(cluster.address, set_as_default=False) as client:
                client.wait_for_workers(1, timeout=60)
                writing = Writing(client, tmp_path)
                uploads = OpenUploads("s3://parts/set", str(tmp_path / "uploads"))
                plan = part_plan(tmp_path, [FRAME], "parquet")._replace(uploads=uploads)
                (made,) = writing.submit(plan).result(120).files
                assert WRITTEN.search(writing.end())
        finally:
            cluster.close()
        told = json.loads((tmp_path / "uploads" / "part.json").read_text())
        assert store.open_uploads("parts") == [f"parts/set/part?uploadId={told['id']}"]
    assert (told["bytes"], told["crc32"]) == (made.size, f"{made.checksum:08x}")
    assert (tmp_path / "set" / "part").stat().st_size == made.size


@pytest.mark.long
def test_a_part_of_a_killed_worker_is_written_by_another_one(stage: Stage) -> None:
    """Not a byte of the first attempt is left."""
    result = job_of(stage)
    writer = stage.wait_for_a_writer()
    killed = worker_of(writer)
    killed.kill()
    stage.let_go()
    made = result()
    assert made.status == "Completed"
    (written,) = WRITTEN.findall(driver_log(made.job_dir))
    assert written[2] in driver_log(made.job_dir)
    assert re.search("is written elsewhere: tcp://.* has gone", driver_log(made.job_dir))
    assert poll_for(lambda: not psutil.pid_exists(writer.pid))
    assert len(pd.read_parquet(made.output_file)) == len(FRAME)
    assert names_in(made.output_dir) == [made.output_file.name]


def worker_of(writer: psutil.Process) -> psutil.Process:
    """Return the worker of a process that writes a part: the parent of what it was forked from."""
    zygote = writer.parent()
    assert zygote is not None
    worker = zygote.parent()
    assert worker is not None
    return worker


@pytest.mark.long
@pytest.mark.parametrize("folders", [None, "kind"])
def test_a_stopped_worker_that_goes_on_after_publishing_leaves_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, folders: str | None
) -> None:
    """Another worker has written the part meanwhile."""
    monkeypatch.setattr(watchdog, "SILENT_S", 4.0)
    result = job_of(stage, output_partition_by=folders)
    writer = stage.wait_for_a_writer()
    zygote = writer.parent()
    assert zygote is not None
    stopped = [worker_of(writer), zygote, writer]
    for process in stopped:
        process.suspend()
    stage.let_go()
    made = result()
    assert made.status == "Completed"
    before = contents(made.output_file)
    for process in reversed(stopped):
        process.resume()
    assert poll_for(lambda: not psutil.pid_exists(writer.pid), 60)
    assert contents(made.output_file) == before
    assert names_in(made.output_dir) == [made.output_file.name]


@pytest.mark.long
def test_a_canceled_job_ends_what_writes_its_parts(stage: Stage) -> None:
    """And leaves nothing of them."""
    job = daskprs.start(
        FRAME,
        lambda rows: rows,
        mini_batch_size="1 kb",
        job_dir=stage.folder / "job",
        output_dir=stage.folder / "out",
        output_format="parquet",
        client=stage.cluster.address,
        progress=False,
    )
    writer = stage.wait_for_a_writer()
    job.cancel()
    with pytest.raises(daskprs.ParallelRunCanceled):
        job.result()
    assert poll_for(lambda: not psutil.pid_exists(writer.pid))
    assert names_in(stage.folder / "out") == []
    assert leftovers(stage.cluster.address) == []


@pytest.mark.long
def test_the_driver_writes_what_busy_workers_do_not_begin_with(
    stage: Stage, client: Client, writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Foreign tasks may have their threads for hours."""
    monkeypatch.setattr(part_writers, "BEGIN_S", 1.0)

    free = stage.folder / "free"
    workers = client.nthreads()
    busy = [client.submit(poll_for, free.exists, 120, workers=[w], pure=False) for w in workers]
    assert poll_for(lambda: sum(map(len, client.processing().values())) == 2)
    try:
        (made,) = writing.submit(part_plan(stage.folder, [FRAME])).result(60).files
    finally:
        free.touch()
    said = writing.end()
    assert made.rows == len(FRAME)
    assert said.count("has had no thread for it for 1 s") == 2
    assert not WRITTEN.search(said)
    client.gather(busy)


@pytest.mark.long
def test_rows_that_do_not_fit_are_the_error_of_the_driver(writing: Writing, stage: Stage) -> None:
    """With the words of a local job; the next part is written by a worker again."""
    stage.let_go()
    other, none = stage.folder / "other", pytest.raises(ReturnTypeError, match="'number' is double")
    other.mkdir()
    plan = part_plan(stage.folder, [FRAME, FRAME.assign(number=2.5)])
    with none as local:
        write_part(plan)
    with none as far:
        writing.submit(plan).result(60)
    assert str(far.value) == str(local.value)
    (made,) = writing.submit(part_plan(other, [FRAME])).result(60).files
    assert made.rows == len(FRAME)
    assert len(WRITTEN.findall(writing.end())) == 1


@HOLDS_NOTHING
def test_small_parts_are_written_by_the_driver(
    writing: Writing, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process takes longer to start."""
    plan = part_plan(stage.folder, [FRAME])
    monkeypatch.setattr(part_writers, "SMALL_BYTES", part_writers.size_of(plan) + 1)
    assert writing.submit(plan).result(60).files[0].rows == len(FRAME)
    assert not WRITTEN.search(writing.end())


@HOLDS_NOTHING
def test_workers_are_asked_when_a_part_is_large_and_need_not_be_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose cluster has gone has its data set; one with small parts asks nobody."""

    def ours(dask_scheduler: Scheduler) -> list[str]:
        return [name for name in dask_scheduler.plugins if name.startswith("daskprs-parts")]

    plan = part_plan(stage.folder, [FRAME])
    with Client(stage.cluster.address, set_as_default=False) as client:
        writing = Writing(client, stage.folder / "one")
        with monkeypatch.context() as patch:
            patch.setattr(part_writers, "SMALL_BYTES", 1 << 30)
            assert writing.submit(plan).result(60).mini_batches == 1
        assert client.run_on_scheduler(ours) == []
    assert writing.submit(plan).result(60).mini_batches == 1
    assert "the driver writes all parts: " in writing.end()
    assert not list((stage.folder / "one").glob("**/seen*"))


def test_an_attempt_that_is_ended_before_it_has_a_process_gets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dask cancels tasks at any moment; a worker may close then."""
    monkeypatch.setattr(part_worker, "HelperPool", lambda *_: pytest.fail("a process is started"))
    worker: Any = SimpleNamespace(
        address="tcp://w",
        batched_stream=SimpleNamespace(closed=lambda: False),
        log_event=lambda *_: None,
    )
    ends: list[Callable[[PartsPlugin], None]] = [PartsPlugin._end_all, lambda one: one._end(7)]
    for end in ends:
        plugin = PartsPlugin("parts", "topic", (ProbeFile("/nowhere", "token"),), 60.0)
        asyncio.run(plugin.setup(worker))
        end(plugin)
        with pytest.raises(RuntimeError, match="not wanted"):
            plugin.write(7, "attempts", b"", 1)


def test_a_worker_has_no_more_parts_than_it_reports() -> None:
    """One on a host with fewer parts goes first; one that has lost a part rests."""
    workers = WritingWorkers()
    one, two, blind = "tcp://10.0.0.1:1", "tcp://10.0.0.2:1", "tcp://10.0.0.3:1"
    for event in (WorkersFound((one, two, blind)), (one, 2, ()), (blind, 0, ()), (two, 1, ())):
        workers.hear((0.0, pickle.dumps(event)))

    def take(*tried: str) -> str | None:
        looks = iter([False, True])
        return workers.take(set(tried), lambda: next(looks))

    assert [take(), take(), take(), take()] == [one, two, one, None]
    workers.give_back(one, rests=False)
    assert take(one) is None
    assert take() == one
    workers.give_back(two, rests=True)
    assert take() is None
    assert workers.has(two)
    workers.hear((0.0, pickle.dumps(WorkerLost(two, False, frozenset()))))
    assert not workers.has(two)
    assert workers.take({one}, lambda: False) is None


@pytest.mark.long
def test_a_worker_that_does_not_see_the_folders_gets_no_part(tmp_path: Path) -> None:
    """One that does writes them all, though it was asked last; without one the driver does."""
    if reason := why_not():
        pytest.skip(reason)
    with (
        separate_nodes(tmp_path.parent / f"{tmp_path.name}.log", [tmp_path]) as nodes,
        Client(nodes.address, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        writing = Writing(client, tmp_path)
        made = writing.submit(part_plan(tmp_path, [FRAME])).result(60)
        assert made.files[0].rows == len(FRAME)
        assert writing.end() == ""
