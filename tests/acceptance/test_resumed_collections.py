"""Jobs over Dask collections that are resumed: what is computed again, and what comes out."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from dask import delayed

import daskprs
from daskprs._folders.job_folder import JobFolder
from daskprs._output.journal.history import History
from daskprs.errors import JobChanged
from tests.acceptance.test_collections import COUNT, FRAME, ROWS, TEXT, Made, options_in, text_of
from tests.support.cases import mostly_long
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

HALF = {"frame": 110, "delayed": 3}
"""Bytes of a mini-batch, or items, so that a partition is cut into two."""


def collection(made: Made, kind: str, count: int = COUNT) -> Any:
    """Return a dask DataFrame, which has a deterministic token, or a list of Delayeds without."""
    if kind == "frame":
        return made.frame(count)
    return [delayed(made)(number) for number in range(count)]


# ---- a driver that is killed ----


def slowly(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows after a while."""
    time.sleep(0.04)
    return rows


def main(folder: Path, kind: str, size: int | None, *, resume: bool) -> None:
    """Run a job, or what is left of it."""
    options = options_in(folder, mini_batch_size=size, resume=resume, process_count_per_node=2)
    daskprs.parallel_run(collection(Made(folder), kind), slowly, **options)


PROGRAM = """
import sys
from pathlib import Path
from tests.acceptance.test_resumed_collections import main
main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) or None, resume=len(sys.argv) > 4)
"""


@pytest.mark.parametrize(
    ("kind", "is_cut"),
    [
        pytest.param("frame", True, id="frame-cut", marks=pytest.mark.long),
        pytest.param("delayed", False, id="delayed-whole", marks=pytest.mark.long),
        pytest.param("frame", False, id="frame-whole", marks=pytest.mark.long),
        pytest.param("delayed", True, id="delayed-cut", marks=pytest.mark.long),
    ],
)
def test_a_driver_that_is_killed_at_any_moment(tmp_path: Path, kind: str, *, is_cut: bool) -> None:
    """A resume computes what is not done; without a token, all of it first, to compare it."""
    chance, slices = random.Random(f"{kind} {is_cut}"), 1 + is_cut  # noqa: S311 - no secret
    made, folder = Made(tmp_path), JobFolder(tmp_path / "job")
    paths = os.pathsep.join(filter(None, sys.path))
    words = [sys.executable, "-c", PROGRAM, str(tmp_path), kind, str(HALF[kind] * is_cut)]
    for turn in range(3):
        before = _done(folder)
        made.times()
        command = [*words, *["resume"] * bool(turn)]
        with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths}) as driver:
            if turn < 2:
                assert poll_for(
                    lambda was=before: driver.poll() is not None or _done(folder) != was, 60
                )
                time.sleep(chance.uniform(0, 0.1))
                driver.kill()
    done = Counter(index // slices for index in before)
    left = [number for number in range(COUNT) if done[number] < slices]
    assert (tmp_path / "out" / "parallel_run_step.txt").read_text() == TEXT
    assert made.times() == sorted(left + ([*range(COUNT)] if kind == "delayed" else []))


def _done(folder: JobFolder) -> list[int]:
    """Return the numbers of the mini-batches that are committed."""
    with contextlib.suppress(FileNotFoundError):
        return list(map(int, History(folder).commits.column("index")))
    return []


# ---- partitions that fail, more of them, others ----


class Mended(Made):
    """Makes partitions; some cannot be made until there is a file."""

    def __init__(self, folder: Path, *bad: int) -> None:
        super().__init__(folder)
        self._bad = bad
        self._mended = folder / "mended"

    def __call__(self, number: int) -> pd.DataFrame:
        """Return the rows of a partition, if it can be made by now."""
        rows = super().__call__(number)
        if number in self._bad and not self._mended.exists():
            msg = f"{number} is bad"
            raise ValueError(msg)
        return rows

    def mend(self) -> None:
        """Let all be made."""
        self._mended.touch()


def run(data: Any, folder: Path, **options: Any) -> daskprs.ParallelRunResult:
    """Run a job in this process, or what is left of it."""
    given = options_in(folder, process_count_per_node=2, **options)
    return daskprs.parallel_run(data, lambda rows: rows, **given)


@pytest.mark.parametrize(
    ("kind", "is_cut", "resume"),
    mostly_long(
        product(["frame", "delayed"], [False, True], [True, "failed"]),
        suite=[("delayed", True, True)],
    ),
)
def test_partitions_that_failed_before(
    tmp_path: Path, kind: str, resume: Any, *, is_cut: bool
) -> None:
    """In the midst of others: now their rows are put into place, and nothing else runs."""
    made = Mended(tmp_path, 1, 3)
    options = {"mini_batch_size": HALF[kind] if is_cut else None, "allowed_failed_count": 2}
    first = run(collection(made, kind), tmp_path, **options)
    assert first.failed["label"].tolist() == ["partition 1", "partition 3"]
    assert made.times() == [*range(COUNT)]
    again = run(collection(made, kind), tmp_path, resume=resume, **options)
    assert again.failed["label"].tolist() == ["partition 1", "partition 3"]
    made.mend()
    made.times()
    result = run(collection(made, kind), tmp_path, resume=resume, **options)
    assert text_of(result) == TEXT
    assert result.to_pandas()["name"].tolist() == FRAME["name"].tolist()
    compared = range(COUNT) if kind == "delayed" else [1, 3] if is_cut else []
    assert made.times() == sorted([1, 3, *compared])


def test_a_collection_that_has_grown(tmp_path: Path) -> None:
    """Only new partitions run; all are computed, since content decides what is new."""
    made = Made(tmp_path)
    run(made.frame(4), tmp_path)
    made.times()
    with pytest.raises(JobChanged, match="extend"):
        run(made.frame(), tmp_path, resume=True)
    made.times()
    result = run(made.frame(), tmp_path, resume="extend")
    assert text_of(result) == TEXT
    assert Counter(made.times()) == Counter([*range(6), 4, 5])


@pytest.mark.parametrize("size", mostly_long([None, HALF["delayed"]], suite=[HALF["delayed"]]))
def test_other_content(tmp_path: Path, size: int | None) -> None:
    """It is refused with the number of the partition, unless it is accepted."""
    parts = [delayed(FRAME[n * ROWS : (n + 1) * ROWS]) for n in range(3)]
    run(parts, tmp_path, mini_batch_size=size)
    parts[1] = delayed(FRAME[20:25])
    with pytest.raises(JobChanged, match="partition 1 of the input has changed"):
        run(parts, tmp_path, resume=True, mini_batch_size=size)
    log = (tmp_path / "job/logs/sys/master_role.txt").read_text().splitlines()
    told = [line for line in log if "no deterministic token" in line]
    assert ["INFO" in line for line in told] == [True, True, False]
    assert "3 partitions are computed to compare them" in told[2]
    result = run(parts, tmp_path, resume=True, mini_batch_size=size, accept_changes="input")
    rows = [*range(5), *range(20, 25), *range(10, 15)]
    assert text_of(result) == FRAME.iloc[rows].to_csv(sep=" ", header=False, index=False)
