"""A folder with an MLTable is run as what it says, and gone on with only while it says the same."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs.errors import JobChanged
from tests.support.mltables import mltable

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """\
def run(rows, context):
    return rows.assign(index=context.minibatch_index)
"""
FAILING = """\
from pathlib import Path

def run(rows):
    if not Path({switch!r}).exists() and (rows["number"] == 42).any():
        raise ValueError("not yet")
    return rows
"""


def script(root: Path, body: str) -> Path:
    """Return a script in a folder of its own."""
    path = root / "code" / "score.py"
    path.parent.mkdir()
    path.write_text(body)
    return path


def numbers(root: Path, *transformations: Any) -> Path:
    """Return an MLTable over the numbers up to 100 in two files."""
    files: dict[str, str | bytes] = {
        f"{part}.csv": "number\n" + "".join(f"{part * 50 + one}\n" for one in range(50))
        for part in range(2)
    }
    content = {
        "type": "mltable",
        "paths": [{"pattern": "./*.csv"}],
        "transformations": ["read_delimited", *transformations],
    }
    return mltable(root, content, files)


def test_a_folder_with_an_mltable_is_a_table(tmp_path: Path) -> None:
    """In Python, with its transformations, and mini-batches that are numbered in their order."""
    score = script(tmp_path, SCRIPT)
    folder = numbers(tmp_path, {"filter": "number % 2 == 0"}, {"skip": 5}, {"take": 30})
    result = daskprs.parallel_run(
        folder, score, mini_batch_size=40, job_dir=tmp_path / "job", progress=False
    )
    rows = result.to_pandas()
    assert list(rows["number"]) == list(range(10, 70, 2))
    assert rows["index"].is_monotonic_increasing
    assert rows["index"].iloc[0] == 0
    plan = daskprs.plan(folder, mini_batch_size=40)
    assert len(plan) == result.mini_batches.total


@pytest.mark.long
def test_the_command_line_takes_the_folder_too(tmp_path: Path) -> None:
    """Without the package that Azure has for it."""
    score = script(tmp_path, "def run(rows):\n    return rows\n")
    folder = numbers(tmp_path, {"take": 3})
    command = [sys.executable, "-m", "daskprs"]
    for arguments in (["plan", folder], ["run", score, folder, "--output-dir", "out"]):
        subprocess.run(
            [*command, *map(str, arguments)], cwd=tmp_path, check=True, capture_output=True
        )
    assert (tmp_path / "out" / "parallel_run_step.txt").read_text() == "0\n1\n2\n"


def test_a_job_goes_on_while_the_mltable_says_the_same(tmp_path: Path) -> None:
    """Another transformation makes it another job; a comment does not."""
    switch = tmp_path / "switch"
    score = script(tmp_path, FAILING.format(switch=str(switch)))
    folder = numbers(tmp_path, {"take_random_sample": {"probability": 1.0}}, {"skip": 10})
    options: dict[str, Any] = {
        "mini_batch_size": 40,
        "job_dir": tmp_path / "job",
        "progress": False,
        "run_max_try": 1,
        "process_count_per_node": 1,  # in order: something is committed, which has to fit
    }
    with pytest.raises(daskprs.ParallelRunFailed):
        daskprs.parallel_run(folder, score, **options)
    switch.touch()
    written = (folder / "MLTable").read_text()
    (folder / "MLTable").write_text(written.replace("skip: 10", "skip: 11"))
    with pytest.raises(JobChanged, match="input transformations 2 skip was 10 and is 11"):
        daskprs.parallel_run(folder, score, resume=True, **options)
    (folder / "MLTable").write_text(f"# more to come\n{written}")
    result = daskprs.parallel_run(folder, score, resume=True, **options)
    pd.testing.assert_frame_equal(result.to_pandas(), pd.DataFrame({"number": range(10, 100)}))
