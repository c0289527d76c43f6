"""Peers do the work that is measured, and do it right."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchmarks import peer_list, workloads
from benchmarks.data import DataSet, lazy_frame
from benchmarks.lazy_frames import LazyFrame
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.data import Expected
    from benchmarks.session import Session

RUNS = [
    (peer, workload)
    for peer in ("limit", "multiprocessing")
    for workload in ("nothing-10k", "parquet-1mb", "csv", "arrays", "keys", "frame", "pipeline")
]
RUNS += [
    ("daskprs", workload) for workload in ("nothing-10k", "parquet-1mb", "csv", "keys", "frame")
]
SUITE = [("daskprs", "nothing-10k")]

DASK = replace(peer_list.BY_NAME["dask"], environment=None)  # ours has the same package
ON_CLUSTER = [
    (peer, workload)
    for peer in (DASK, peer_list.BY_NAME["daskprs-cluster"])
    for workload in ("lazy-cheap", "keys-cluster", "dataset", "groups")
    if (peer, workload) != (DASK, "keys-cluster")
]


@pytest.mark.parametrize(("peer", "workload"), mostly_long(RUNS, suite=SUITE))
def test_the_output_of_a_peer_passes_the_check(peer: str, workload: str, session: Session) -> None:
    """What is compared has done the same work."""
    run = session.run_one(peer_list.BY_NAME[peer], workloads.BY_NAME[workload])
    assert run.problem is None
    assert 0 < run.seconds <= run.wall_s
    assert run.cpu_s > 0
    assert run.peak_pss_bytes > 0


def quick_partitions(path: Path, count: int) -> Expected:
    """Describe a lazy frame that takes next to no time."""
    return lazy_frame(path, LazyFrame(count))


@pytest.mark.long
@pytest.mark.parametrize(("peer", "workload"), ON_CLUSTER)
def test_starting_a_cluster_does_not_count(
    peer: peer_list.Peer, workload: str, session: Session
) -> None:
    """A user of a cluster has it before he has the work."""
    work = workloads.BY_NAME[workload]
    if work.kind == "cluster_frame":
        work = replace(work, data=DataSet("quick", quick_partitions, 4, scaled=False))
    run = replace(session, processes=2).run_one(peer, work)
    assert run.problem is None
    assert 0 < run.seconds < run.wall_s


@pytest.mark.long
def test_a_pipeline_says_how_busy_the_device_was(session: Session) -> None:
    """Its output holds the times, so that no clock outside is needed."""
    run = session.run_one(peer_list.BY_NAME["limit"], workloads.BY_NAME["pipeline"])
    assert 0 < run.measures["busy_share"] <= 1


@pytest.mark.long
def test_faults_cost_daskprs_the_culprits_only(session: Session) -> None:
    """One per cent raise, one dies, one hangs: nothing else is lost."""
    run = session.run_one(peer_list.BY_NAME["daskprs"], workloads.BY_NAME["faults"])
    assert run.problem is None
    assert run.measures["lost"] == 3


def test_a_hand_written_loop_does_not_survive_faults(session: Session) -> None:
    """What loses more than the culprits does not count, however fast it is."""
    quick = replace(workloads.BY_NAME["faults"], limit_s=3)
    run = session.run_one(peer_list.BY_NAME["limit"], quick)
    assert run.problem is not None


def test_a_peer_that_is_not_installed_says_so(session: Session) -> None:
    """It is reported with the reason, not left out."""
    gone = peer_list.Peer("gone", "gone", "never-made", program="no-such-program")
    assert gone.missing() == "no-such-program is not on this machine"
    results = type(session)([gone], [], 1, 1, 1, session.home).run(session.home / "results.json")
    assert results.unavailable == {"gone": "no-such-program is not on this machine"}
