"""What a mini-batch costs, in counts that are the same on every machine."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import daskprs
from daskprs._agent.child.outbox import Outbox
from daskprs._agent.protocol.answers import parsed
from daskprs._agent.protocol.messages import Outcomes
from daskprs._core.actions import Commit, SlotAdded, SlotId, Submit
from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import MiniBatchesDone, Place
from daskprs._core.lease import LeaseReturned
from daskprs._core.ledger import Ledger
from daskprs._core.limits import Limits
from daskprs._core.outcomes import Extent, Outcome, Results, Status
from daskprs._folders.job_folder import JobFolder
from daskprs._inputs.files.discover import discover
from daskprs._inputs.files.file_list import FileList
from daskprs._inputs.files.source import FilesSource
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.input_file import InputFile
from daskprs._inputs.source.read_options import ReadOptions
from daskprs._options.run_options import RunOptions
from daskprs._output.spec import OutputSpec
from daskprs._output.store import ResultStore
from daskprs._report.listeners import Listeners, listeners_of
from daskprs._report.log_files import LogFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from daskprs._inputs.source.source import Source

COUNT = 5_000
PROCESSES = 2
TEXT = OutputSpec(text=True, typed=False, header=False, separator=" ")
SCRIPT = """\
import os
import subprocess
import sys
from pathlib import Path


def run(mini_batch):
    return [len(mini_batch)]


def shutdown():
    Path(sys.argv[-1], str(os.getpid())).write_text(Path("/proc/self/io").read_text())
"""


def calls_of(work: Callable[[], Any]) -> int:
    """Return how many calls of Python's functions some work makes, C functions included."""
    counts: Counter[str] = Counter()

    def count(_: Any, event: str, __: Any) -> None:
        counts[event] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counts["call"] + counts["c_call"]


def empty_files(folder: Path, count: int) -> Path:
    """Return a folder, made now, with so many files."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:05d}").touch()
    return folder


class Driver:
    """Ledger, store and listeners as a dispatcher drives them, with agents that take no time."""

    def __init__(self, folder: Path, source: Source, spec: OutputSpec = TEXT) -> None:
        job = JobFolder(folder / "job")
        job.create()
        self.store = ResultStore(job, 1, spec, folder / "out" / "rows.txt", {})
        told = listeners_of(job, progress=False)
        self.written = [one for one in told if isinstance(one, LogFiles)]
        self.listeners = Listeners(told, job)
        self.ledger = Ledger(
            source.mini_batches(),
            Limits(),
            recovered=self.store.recovered,
            expected=source.count(),
        )
        self.elapsed_s = 1e-6
        self.now_s = 0.0
        self.done = 0

    def work(self) -> None:
        """Do the whole job in one slot."""
        actions = self.ledger.handle(SlotAdded(SlotId("tcp://host", 0, 0)), 0.0)
        while leases := [action.lease for action in actions if isinstance(action, Submit)]:
            self.now_s += 1.0
            actions = self.ledger.handle(self._returned(leases[0]), self.now_s)
            for action in actions:
                if isinstance(action, Commit):
                    made = action.made
                    self.store.commit(action.mini_batches, made)
                    place = Place(0, "process000", "host", 1)
                    done = MiniBatchesDone(place, action.mini_batches, made.outcomes)
                    self.listeners.tell(done)
                    self.done += len(made.outcomes)
            for listener in self.written:
                listener.flush()

    def _returned(self, lease: Any) -> LeaseReturned:
        took_s = self.elapsed_s
        outcomes = ColumnBatch(
            Outcome(index, 1, Status.RUN_DONE, 1, 1, 1e9, took_s, took_s, took_s, Extent(2, 5))
            for index in lease.work.column("mini_batch.index")
        )
        results = Results(outcomes, b"x\n" * len(outcomes))
        return LeaseReturned(lease.id, "process000", (results,))

    def close(self) -> None:
        """Let go of files and threads."""
        self.store.close()
        self.listeners.close()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    """Yield a driver of empty mini-batches."""
    files = empty_files(tmp_path / "files", COUNT)
    options = RunOptions(input_type="files", mini_batch_size=1)
    one = Driver(tmp_path, open_source(files, options.reading()))
    yield one
    one.close()


def test_the_driver_makes_few_calls_for_a_mini_batch(driver: Driver) -> None:
    """From the plan to the logs: a call costs a tenth of a microsecond and more."""
    calls = calls_of(driver.work)
    assert driver.done == COUNT
    assert calls / COUNT < 100


def peak_of(work: Callable[[], Any]) -> int:
    """Return how many bytes of Python's memory some work takes, what it leaves included."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = work()
        _, peak = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return peak - before


def test_a_file_of_the_input_takes_little_memory(tmp_path: Path) -> None:
    """While they are looked for, too: as objects each took 300 bytes beside its path."""
    few, many = (empty_files(tmp_path / f"{count}", count) for count in (1_000, COUNT))
    assert len(str(few / "00000")) == len(str(many / "00000"))
    peaks = [peak_of(lambda folder=folder: discover(folder)) for folder in (few, many)]
    a_file = (peaks[1] - peaks[0]) / (COUNT - 1_000)
    assert a_file < len(str(many / "00000")) + 80


@pytest.mark.long
def test_a_mini_batch_that_is_done_leaves_little_in_the_driver(tmp_path: Path) -> None:
    """Its numbers, and nothing in the ledger, the plan or the logs: that is flat but for these."""
    typed = OutputSpec(text=False, typed=True, header=False, separator=" ")

    def peak(count: int) -> int:
        found = FileList(InputFile(f"/data/{n:05d}", 0, "1", "") for n in range(count))
        source = FilesSource([found], ReadOptions(mini_batch_size=1))
        driver = Driver(tmp_path / f"{count}", source, typed)
        driver.elapsed_s = 0.02  # leases of a hundred: what one of them takes is soon taken
        try:
            return peak_of(driver.work)
        finally:
            driver.close()

    assert (peak(2 * COUNT) - peak(COUNT)) / COUNT < 80


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the tasks that Dask is given."""
    from distributed import Client

    counts: Counter[str] = Counter()
    submit = Client.submit

    def counting(self: Any, *given: Any, **named: Any) -> Any:
        counts["tasks"] += 1
        return submit(self, *given, **named)

    monkeypatch.setattr(Client, "submit", counting)
    return counts


def test_thousands_of_mini_batches_are_some_tens_of_tasks(
    tmp_path: Path, counted: Counter[str]
) -> None:
    """Leases grow, and last about a second: a slow machine has more of them."""
    (tmp_path / "script.py").write_text("def run(mini_batch):\n    return [1]\n")
    frame = pd.DataFrame({"n": range(COUNT)})
    result = daskprs.parallel_run(
        frame,
        tmp_path / "script.py",
        mini_batch_size=8,
        job_dir=tmp_path / "job",
        process_count_per_node=PROCESSES,
        progress=False,
    )
    assert result.mini_batches.succeeded == COUNT
    assert counted["tasks"] < PROCESSES * (20 + 4 * result.elapsed_s)


def test_a_group_of_outcomes_is_one_message() -> None:
    """A message costs more than a mini-batch may."""
    sent = []

    class Connection:
        def send_bytes(self, message: Any) -> None:
            sent.append(message)

    outbox: Any = Outbox(Connection(), None)  # type: ignore[arg-type] # all that it needs of one
    outbox.open(1)
    outbox._wake_the_thread = lambda: True  # no time goes by
    for index in range(COUNT):
        outcome = Outcome(index, 1, Status.RUN_DONE, 1, 1, 0.0, 0.0, 0.0, 0.0, Extent(2, 0))
        outbox.add(outcome, b"x\n")
    outbox.flush()
    (message,) = map(parsed, sent)
    assert isinstance(message, Outcomes)
    assert len(message.results.outcomes) == COUNT


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the bytes that come to the driver with outcomes, and those that it copies."""
    counts: Counter[str] = Counter()
    commit, read, write = ResultStore.commit, os.preadv, os.pwrite

    def commits(self: Any, mini_batches: Any, made: Results) -> None:
        counts["came"] += len(made.payload)
        commit(self, mini_batches, made)

    def reads(*given: Any) -> int:
        count = read(*given)
        counts["read"] += count
        return count

    def writes(*given: Any) -> int:
        count = write(*given)
        counts["written"] += count
        return count

    monkeypatch.setattr(ResultStore, "commit", commits)
    monkeypatch.setattr(os, "preadv", reads)
    monkeypatch.setattr(os, "pwrite", writes)
    return counts


@pytest.mark.parametrize("times", [0, 1])
def test_rows_pass_through_the_driver_once_on_their_way_to_the_output_file(
    tmp_path: Path, copied: Counter[str], times: int
) -> None:
    """Those with types, which no file is made of, do not pass at all."""
    (tmp_path / "script.py").write_text(
        "def run(mini_batch):\n    return ['x' * 99_999] * len(mini_batch)\n"
    )
    daskprs.parallel_run(
        pd.DataFrame({"n": range(100)}),
        tmp_path / "script.py",
        mini_batch_size=16,
        job_dir=tmp_path / "job",
        output_dir=tmp_path / "out" if times else None,
        process_count_per_node=PROCESSES,
        progress=False,
    )
    output_bytes = 100 * 100_000 * times
    assert copied["came"] == 0
    assert copied["read"] == output_bytes
    assert output_bytes <= copied["written"] < output_bytes + 100_000


def test_agents_read_the_input_little_more_than_once(tmp_path: Path) -> None:
    """A row group is decoded once for all the mini-batches in it that follow each other."""
    groups, rows = 12, 20_000
    numbers = range(groups * rows)
    table = pa.table({"number": numbers, "text": [f"{number:050d}" for number in numbers]})
    path, told = tmp_path / "input.parquet", tmp_path / "told"
    pq.write_table(table, path, row_group_size=rows, compression="none", use_dictionary=False)
    told.mkdir()
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "score.py").write_text(SCRIPT)
    result = daskprs.parallel_run(
        path,
        tmp_path / "script" / "score.py",
        arguments=[str(told)],
        mini_batch_size="100 KB",
        job_dir=tmp_path / "job",
        process_count_per_node=PROCESSES,
        progress=False,
    )
    assert result.mini_batches.succeeded > 5 * groups
    read = sum(int(one.read_text().split()[1]) for one in told.iterdir())
    assert path.stat().st_size < read < 2 * path.stat().st_size


@pytest.mark.long
def test_the_driver_cuts_parquet_without_pandas(tmp_path: Path) -> None:
    """Importing it takes as long as all else before the first mini-batch; agents have it anyhow."""
    pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"], "c": [0.5, None, 1.5]}).to_parquet(
        tmp_path / "rows.parquet"
    )
    (tmp_path / "script.py").write_text("def run(rows):\n    return rows\n")
    code = (
        "import sys, daskprs\n"
        f"result = daskprs.parallel_run({str(tmp_path / 'rows.parquet')!r}, 'script.py',\n"
        "    output_dir='out', job_dir='job', process_count_per_node=1, progress=False)\n"
        "assert result.items.succeeded == 3, result\n"
        "sys.exit('pandas' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
