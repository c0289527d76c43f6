"""A size of mini-batch that runs out of memory is found once and kept."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import daskprs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("inline")
ROWS = 512
SCRIPT = """
def run(rows, context):
    with open(CALLS, "a") as file:
        print(len(rows), file=file)
    if len(rows) > 20:
        raise MemoryError("too many")
    first = context.global_row_index_lower_bound
    assert rows["n"].tolist() == [*range(first, first + len(rows))]
    return rows
"""
EATS = """
import time

def run(rows):
    eaten = bytes([1]) * (len(rows) << 20)
    time.sleep(2.5)  # the memory is looked at once a second
    return rows.assign(mb=len(eaten) >> 20)
"""
KEEPS = """
import os
kept = []

def run(rows):
    kept.append(bytes([1]) * (20 << 20))
    return rows.assign(pid=os.getpid())
"""


def score(folder: Path, name: str, text: str = SCRIPT, **options: object) -> pd.DataFrame:
    """Run a job, and return its rows."""
    (folder / "code").mkdir(exist_ok=True)
    script = folder / "code/script.py"
    script.write_text(text.replace("CALLS", repr(str(folder / f"{name}.calls"))))
    result = daskprs.parallel_run(
        pd.DataFrame({"n": range(ROWS)}),
        script,
        job_dir=folder / name,
        progress=False,
        **({"independent_rows": True, "mini_batch_size": "64 rows"} | options),  # type: ignore[arg-type]
    )
    assert result.status == "Completed"
    return result.to_pandas()


def test_the_next_job_begins_with_the_size_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost or moved; another limit is another question, and a month is long ago."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rows = score(tmp_path, "one", SCRIPT.replace("CALLS", repr(str(tmp_path / "calls"))))
    calls = tmp_path / "calls"
    assert rows["n"].tolist() == [*range(ROWS)]
    first = [*map(int, calls.read_text().split())]
    assert sorted({*first}) == [16, 32, 64]
    assert first.count(64) + first.count(32) <= 4
    calls.unlink()
    again = score(tmp_path, "two", SCRIPT.replace("CALLS", repr(str(calls))))
    pd.testing.assert_frame_equal(again, rows)
    assert {*calls.read_text().split()} == {"16"}
    assert "more than 16 rows" in (tmp_path / "two/logs/sys/master_role.txt").read_text()
    calls.unlink()
    arguments = ["--model", "larger"]
    score(tmp_path, "three", SCRIPT.replace("CALLS", repr(str(calls))), arguments=arguments)
    assert "64" in calls.read_text().split()
    calls.unlink()
    for size in (tmp_path / "state/daskprs/sizes").iterdir():
        os.utime(size, (0, 0))
    score(tmp_path, "four", SCRIPT.replace("CALLS", repr(str(calls))))
    assert "64" in calls.read_text().split()


class Arena:
    """An allocator with a limit, as that of a GPU: it stands for a model that needs memory."""

    rows = 400

    def __call__(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Work in proportion to the rows, unless they are too many."""
        if len(rows) > self.rows:
            raise MemoryError
        values = np.outer(rows["n"] % 100, np.ones(256))
        for _ in range(8):
            values = np.tanh(1.1 * values)
        return rows.assign(total=values.sum(axis=1))


@pytest.mark.long
def test_the_size_that_is_found_keeps_the_throughput_of_the_best_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least nine tenths of it, in processor time; 1.0 was seen. The search is in the time."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    number = itertools.count()
    data = pd.DataFrame({"n": range(60_000)})

    def seconds(rows: int, **options: Any) -> float:
        begun = time.process_time()
        folder = tmp_path / f"job{next(number)}"
        options |= {"mini_batch_size": f"{rows} rows", "job_dir": folder, "progress": False}
        result = daskprs.parallel_run(data, Arena(), **options)
        assert result.items.succeeded == len(data)
        return time.process_time() - begun

    ratios = []
    for _ in range(3):
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
        best = min(seconds(rows) for rows in (100, 200, 400))
        ratios.append(best / seconds(2000, independent_rows=True))
    print("throughput, in terms of the best fixed size:", [round(one, 2) for one in ratios])
    assert median(ratios) >= 0.9


@pytest.mark.processes
def test_the_error_of_a_process_that_exceeds_its_limit_counts_its_forks(tmp_path: Path) -> None:
    """What it shares with them counts once: these have more together than the limit."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        kept = b"x" * (150 << 20)
        for _ in range(3):
            if os.fork() == 0:
                signal.pause()
        time.sleep(3)
        if os.fork() == 0:
            kept = b"y" * (250 << 20)
            signal.pause()
        time.sleep(60)
        return rows.assign(kept=len(kept))

    with pytest.raises(
        daskprs.ParallelRunFailed, match=r"held \d+ MiB with its 4 sub-processes, and agent_"
    ):
        daskprs.parallel_run(
            pd.DataFrame({"n": [1]}),
            run,
            agent_memory_limit="350 MB",
            run_max_try=1,
            process_count_per_node=1,
            job_dir=tmp_path / "job",
        )


@pytest.mark.processes
def test_an_init_that_exceeds_the_limit_is_killed(tmp_path: Path) -> None:
    """Models are loaded there; the kernel would kill any process, perhaps the Dask worker."""

    class Script:
        def init(self) -> None:
            self.kept = b"x" * (400 << 20)
            time.sleep(60)

        def run(self, rows: pd.DataFrame) -> pd.DataFrame:
            return rows

    with pytest.raises(
        daskprs.ParallelRunFailed,
        match=r"held \d+ MiB, and agent_memory_limit is 350 MiB\. Raise the limit, or let init",
    ):
        daskprs.parallel_run(
            pd.DataFrame({"n": [1]}),
            Script(),
            agent_memory_limit="350 MB",
            process_count_per_node=1,
            job_dir=tmp_path / "job",
        )


@pytest.mark.processes
@pytest.mark.long
def test_a_process_that_exceeds_its_limit_is_tried_with_less(tmp_path: Path) -> None:
    """It was killed for it; what it was killed for is not charged."""
    rows = score(tmp_path, "job", EATS, agent_memory_limit="350 MB", mini_batch_size="512 rows")
    assert rows["n"].tolist() == [*range(ROWS)]
    assert rows["mb"].max() < 350


@pytest.mark.processes
@pytest.mark.parametrize(
    "options",
    [
        {"agent_max_mini_batches": 3},
        pytest.param({"agent_memory_limit": "500 MB"}, marks=pytest.mark.long),
    ],
)
def test_a_process_that_has_done_enough_ends_between_two_mini_batches(
    options: dict[str, object], tmp_path: Path
) -> None:
    """Nothing is tried twice."""
    rows = score(
        tmp_path, "job", KEEPS, process_count_per_node=1, mini_batch_size="16 rows", **options
    )
    assert rows["n"].tolist() == [*range(ROWS)]
    mini_batches = rows.groupby("pid", sort=False).size() // 16
    assert len(mini_batches) > 1
    if "agent_max_mini_batches" in options:
        assert mini_batches.tolist() == [3] * 10 + [2]
    log = (tmp_path / "job/logs/sys/master_role.txt").read_text()
    assert "retried" not in log
    assert "has done enough" in log
