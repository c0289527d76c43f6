"""Samples are sorted into phases by what stands in their stacks."""

from __future__ import annotations

import pytest

from benchmarks.phases import phase_of, sort_samples

STACKS = {
    'process 7:"python daskprs";Agent.serve (daskprs/_agent/child/main.py:3);'
    "score (benchmarks/work.py:9);dot (numpy/core.py:1)": "run",
    "TextRows.frame (daskprs/_output/rows/text_rows.py:3);to_csv (pandas/io.py:1)": "format",
    "Loader._load (daskprs/_agent/child/inbox.py:9);f (daskprs/_inputs/parquet.py:1)": "read",
    "prepare (daskprs/_inputs/keys/shuffle.py:1);take (pyarrow/compute.py:2)": "prepare",
    "run (daskprs/_api.py:2);_find_and_load (<frozen importlib._bootstrap>:1);a (a.py:1)": "import",
    "Thread._bootstrap (threading.py:9);Condition.wait (threading.py:331)": None,
    "_bootstrap (multiprocessing/process.py:3);fit (benchmarks/work.py:9)": "run",
    'process 7:"python -c import a; b": "c"': None,
    "x (somewhere.py:1)": "other",
}


@pytest.mark.parametrize(("stack", "phase"), STACKS.items())
def test_a_stack_has_one_phase(stack: str, phase: str | None) -> None:
    """The most telling frame decides; who waits has none."""
    assert phase_of(stack) == phase


def test_samples_are_counted_by_phase() -> None:
    """The number at the end of a line is how often a stack was seen."""
    lines = [f"{stack} 3" for stack in STACKS] + ["half a line", ""]
    assert sort_samples(lines)["run"] == 6
    assert sum(sort_samples(lines).values()) == 3 * 7
