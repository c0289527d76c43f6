"""What an agent frees it uses again, and does not get anew from the kernel."""

from __future__ import annotations

import resource

import numpy as np
import pandas as pd
import pytest

import daskprs

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
