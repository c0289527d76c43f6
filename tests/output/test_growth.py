"""Going on with a job whose input grows and whose mini-batches fail: bytes of a serial run."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._folders.job_folder import JobFolder
from daskprs._output.journal.recovery import Resumption
from daskprs._output.read_rows import read_rows
from daskprs.errors import JobFolderError
from tests.support.growth import drive, serial, target_of
from tests.support.store_driver import BOTH, TEXT, driving, frame_of, mini_batch

if TYPE_CHECKING:
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._output.journal.recovery import Runs

NAMES = "abcdefgh"
FILES = st.sets(st.sampled_from(NAMES))
RUNS = st.sampled_from(["all that is left", "what is new", "what failed"])


class Model:
    """What ought to be known of a job."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        self.failed: dict[str, bool] = {}
        """With whether a run has come to its end all the same."""
        self.begun = False

    def todo(self, names: set[str], runs: str) -> set[str] | None:
        """Return what a run has to do; None when it is refused."""
        if not self.begun:
            return set(names)
        self_done, failed = self.done & names, self.failed.keys() & names
        if runs == "what failed":
            return failed if names <= self_done | failed else None
        left_out = {name for name in failed if self.failed[name]}
        return names - self_done - (left_out if runs == "what is new" else set())

    def run(
        self, names: set[str], runs: str, ran: set[str], fails: set[str], *, ends: bool
    ) -> None:
        """Take note of a run."""
        again = runs == "all that is left"
        self.begun = True
        self.done = (self.done & names) | (ran - fails)
        self.failed = {
            name: False if again else borne for name, borne in self.failed.items() if name in names
        }
        self.failed.update(dict.fromkeys(ran & fails, False))
        for name in self.done:
            self.failed.pop(name, None)
        if ends:
            self.failed = dict.fromkeys(self.failed, True)


@given(
    steps=st.lists(st.tuples(RUNS, FILES, FILES, st.booleans()), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
def test_whatever_comes_goes_and_fails_the_output_is_that_of_a_serial_run(
    steps: list[tuple[str, set[str], set[str], bool]], seed: int
) -> None:
    """Files come and go between runs of all kinds, some of which are broken off.

    Only what has to be done is done; what is published, kept with its types and told as failed is
    what a run over the files of now makes of them.
    """
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        for runs, names, fails, ends in steps:
            todo = model.todo(names, runs)
            options = {"accepted": ["input"], "seed": seed, "publishes": ends}
            if todo is None:
                with pytest.raises(JobFolderError, match="has not come to its end"):
                    drive(base, names, runs, fails, **options)
                continue
            assert drive(base, names, runs, fails, **options) == sorted(todo)
            model.run(names, runs, todo, fails, ends=ends)
            if ends:
                check(base, names, model)


def check(base: Path, names: set[str], model: Model) -> None:
    """Compare what stands there with what ought to."""
    assert target_of(base).read_bytes() == serial(model.done)
    rows = read_rows(JobFolder(base / "job"))
    text = "" if rows.empty else rows.to_csv(sep=" ", header=False, index=False)
    assert text.encode() == serial(model.done)
    table = JobFolder(base / "job").failed
    failed = pq.read_table(table)["mini_batch"].to_pylist() if table.exists() else []
    assert failed == [i for i, name in enumerate(sorted(names)) if name in model.failed]


@given(first=FILES, second=FILES, fails=FILES, seed=st.integers(0, 99))
def test_an_extension_and_a_retry_make_one_serial_run(
    first: set[str], second: set[str], fails: set[str], seed: int
) -> None:
    """Two generations of files, some of which fail at first: in the end nothing shows of that."""
    with tempfile.TemporaryDirectory() as folder:
        base, names = Path(folder), first | second
        drive(base, first, fails=fails, seed=seed)
        assert set(drive(base, names, "what is new", fails, seed=seed)) == second - first
        assert set(drive(base, names, "what failed", seed=seed)) == fails & names
        assert target_of(base).read_bytes() == serial(names)
        assert not JobFolder(base / "job").failed.exists()


@pytest.mark.parametrize("runs", ["all that is left", "what is new"])
def test_a_driver_that_died_as_it_told_of_another_plan_has_doubled_nothing(
    tmp_path: Path, runs: Runs
) -> None:
    """Its journal is torn at every line: it may say what the plan is, and not what became of it."""
    drive(tmp_path / "begun", "abc", publishes=False)
    drive(tmp_path / "begun", "bc", accepted=["input"], publishes=False)
    told = (tmp_path / "begun" / "job" / "journal.2").read_bytes().splitlines(keepends=True)
    assert len(told) > 1
    for count in range(len(told)):
        base = tmp_path / str(count)
        shutil.copytree(tmp_path / "begun", base)
        (base / "job" / "journal.2").write_bytes(b"".join(told[:count]))
        assert drive(base, "bc", runs, accepted=["input"]) == []
        assert target_of(base).read_bytes() == serial("bc")


def test_a_mini_batch_that_is_another_one_now_takes_the_place_of_the_old_one(
    tmp_path: Path,
) -> None:
    """Whoever says that nothing has changed: there are the rows of one of them, not of both."""
    with driving(tmp_path / "job", target_of(tmp_path), BOTH) as driver:
        driver.commit(0, frame_of(ord("a")), "a")
        driver.commit(1, frame_of(ord("b")), "b")
    now = Resumption(lambda: iter([mini_batch(0, "c"), mini_batch(1, "b")]))
    with driving(tmp_path / "job", target_of(tmp_path), BOTH, resumption=now) as driver:
        assert not driver.has(0, "c")
        driver.commit(0, frame_of(ord("c")), "c")
        driver.store.publish()
    assert target_of(tmp_path).read_bytes() == serial("c") + serial("b")
    rows = read_rows(JobFolder(tmp_path / "job"))
    assert len(rows) == len(frame_of(ord("c"))) + len(frame_of(ord("b")))


def test_files_that_are_the_same_by_content_keep_their_order(tmp_path: Path) -> None:
    """Where two mini-batches have one identity, each has its rows once."""

    def twice(order: str) -> list[MiniBatch]:
        return [mini_batch(index, name) for index, name in enumerate(order)]

    with driving(tmp_path / "job", target_of(tmp_path), TEXT) as driver:
        for one in twice("aab"):
            driver.commit(one.index, frame_of(ord(one.identity)), one.identity)
        driver.store.publish()
    extended = Resumption(lambda: iter(twice("baca")), "what is new")
    with driving(tmp_path / "job", target_of(tmp_path), TEXT, resumption=extended) as driver:
        todo = [one for one in twice("baca") if driver.store.recovered(one) is None]
        assert [one.index for one in todo] == [2]
        driver.commit(2, frame_of(ord("c")), "c")
        driver.store.publish()
    wanted = b"".join(serial(name) for name in "baca")
    assert target_of(tmp_path).read_bytes() == wanted
