"""What an agent has no use for is free at once, and what is free is used again."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import daskprs

if TYPE_CHECKING:
    from pathlib import Path

PICTURES, BYTES = 64, 150_000
PAGES = PICTURES * BYTES // resource.getpagesize()


def faults_of_one(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the page faults of making some pictures and a batch of them."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    pictures = [np.frombuffer(bytes(BYTES), "u1") for _ in range(PICTURES)]
    np.stack(pictures)
    return rows.assign(faults=resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


@pytest.mark.parametrize(
    ("variables", "is_kept"), [({}, True), ({"MALLOC_TRIM_THRESHOLD_": "131072"}, False)]
)
def test_a_mini_batch_gets_the_memory_of_the_one_before(
    variables: dict[str, str], *, is_kept: bool
) -> None:
    """The kernel gives it once; one who sets the C library himself has it as he says."""
    result = daskprs.parallel_run(
        pd.DataFrame({"n": range(8)}),
        faults_of_one,
        mini_batch_size=1,
        process_count_per_node=1,
        environment_variables=variables,
        progress=False,
    )
    first, *others = result.to_pandas()["faults"]
    assert first > PAGES / 2
    assert (np.median(others) < PAGES / 10) == is_kept


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["one after the other", "coroutines", "threads"])
def test_attempts_are_no_garbage(kind: str, tmp_path: Path) -> None:
    """Else their rows, and what `run` has made of them, stay until Python looks for garbage."""
    is_async = kind == "coroutines"
    script, found = tmp_path / "code" / "script.py", tmp_path / "garbage.txt"
    script.parent.mkdir()
    script.write_text(
        f"""
import asyncio, gc
from pathlib import Path
{"thread_safe = True" if kind == "threads" else ""}

def init():
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)

{"async " if is_async else ""}def run(rows):
    {"await asyncio.sleep(0.001)" if is_async else ""}
    if rows["n"].iloc[0] % 10 == 3:
        raise ValueError("a bad row")
    return rows

def shutdown():
    gc.collect()
    Path({str(found)!r}).write_text(" ".join({{type(one).__name__ for one in gc.garbage}}))
"""
    )
    concurrency = {} if kind == "one after the other" else {"concurrency_per_process": 4}
    daskprs.parallel_run(
        pd.DataFrame({"n": range(40)}),
        script,
        mini_batch_size=1,
        process_count_per_node=1,
        allowed_failed_count=-1,
        run_max_try=1,
        job_dir=tmp_path / "job",
        progress=False,
        **concurrency,  # type: ignore[arg-type]
    )
    names = {*found.read_text().split()}
    assert not names & {"AttemptRun", "DataFrame", "BlockManager", "BlockValuesRefs", "Task"}
