"""What a mini-batch costs, in counts that are the same on every machine."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import daskprs
from daskprs.agent.outbox import Outbox
from daskprs.core.actions import Commit, SlotAdded, SlotId, Submit
from daskprs.core.events import MiniBatchesDone, Place
from daskprs.core.lease import LeaseReturned, Results
from daskprs.core.ledger import Ledger
from daskprs.core.limits import Limits
from daskprs.core.outcomes import Extent, Outcome, Status
from daskprs.core.packed import Packed
from daskprs.inputs.open import open_source
from daskprs.job_folder import JobFolder
from daskprs.options import RunOptions
from daskprs.output.spec import OutputSpec
from daskprs.output.store import ResultStore
from daskprs.report.listeners import Listeners
from daskprs.report.listening import listeners_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COUNT = 5_000
PROCESSES = 2
SCRIPT = """\
import os
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


class Driver:
    """Ledger, store and listeners as a dispatcher drives them, with agents that take no time."""

    def __init__(self, folder: Path) -> None:
        files = folder / "files"
        files.mkdir()
        for number in range(COUNT):
            (files / f"{number:05d}").touch()
        source = open_source(files, RunOptions(input_type="files", mini_batch_size=1).reading())
        job = JobFolder(folder / "job")
        job.create()
        spec = OutputSpec(text=True, typed=False, header=False, separator=" ")
        self.store = ResultStore(job, 1, spec, folder / "out" / "rows.txt", {})
        self.listeners = Listeners(listeners_of(job, progress=False), job)
        self.ledger = Ledger(
            "job",
            source.mini_batches(),
            Limits(),
            recovered=self.store.recovered,
            expected=source.count(),
        )
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

    def _returned(self, lease: Any) -> LeaseReturned:
        outcomes = Packed(
            Outcome(index, 1, Status.RUN_DONE, 1, 1, 1e9, 1e-6, 1e-6, 1e-6, Extent(2, 5))
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
    one = Driver(tmp_path)
    yield one
    one.close()


def test_the_driver_makes_few_calls_for_a_mini_batch(driver: Driver) -> None:
    """From the plan to the logs: a call costs a tenth of a microsecond and more."""
    calls = calls_of(driver.work)
    assert driver.done == COUNT
    assert calls / COUNT < 95


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
        def send(self, message: Any) -> None:
            sent.append(message)

    outbox: Any = Outbox(Connection())  # type: ignore[arg-type] # all that it needs of one
    outbox.open(1)
    outbox._wake_the_thread = lambda: None  # no time goes by
    for index in range(COUNT):
        outcome = Outcome(index, 1, Status.RUN_DONE, 1, 1, 0.0, 0.0, 0.0, 0.0, Extent(2, 0))
        outbox.add(outcome, b"x\n")
    outbox.flush()
    assert [len(message.results.outcomes) for message in sent] == [COUNT]


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
