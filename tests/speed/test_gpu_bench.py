"""The benchmark on a card: its programs run without one, on the CPU, and it says what it lacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from benchmarks.gpu import __main__ as bench
from benchmarks.gpu.workloads import WORKLOADS
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", mostly_long([*WORKLOADS], suite=["W2"]))
def test_the_programs_make_what_the_loops_make(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each workload checks its rows; the figures go to a file with date, card and commit."""
    monkeypatch.setenv("BENCH_DEVICE", "")
    if name == "W2":  # the cheapest form, which the suite plays: without agents
        monkeypatch.setenv("DASK_DASKPRS__START_METHOD", "inline")
    monkeypatch.setattr(bench, "PACKAGES", ("no_such_package",))
    target = tmp_path / "figures.json"
    words = ["--stand-in", "--size", "tiny", "--workloads", name, "--results", str(target)]
    done = CliRunner().invoke(bench.main, words)
    assert done.exit_code == 0, done.output
    found = json.loads(target.read_text())
    assert found["card"] == "none: a stand-in"
    assert {"date", "commit", "machine", "versions"} < found.keys()
    assert [*found["workloads"]] == [name]


def test_it_refuses_where_it_cannot_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words, with the next step."""
    monkeypatch.setattr(bench, "gpus", list)
    assert "--stand-in --size tiny" in CliRunner().invoke(bench.main, []).output
    done = CliRunner().invoke(bench.main, ["--workloads", "W1,W9"])
    assert "unknown workloads: W9" in done.output
