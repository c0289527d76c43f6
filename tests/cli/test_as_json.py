"""`--json`: what a command shows, for programs."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from daskprs._cli import main
from daskprs._cli.as_json import json_value
from daskprs._core.ending import JobStatus
from daskprs._core.events import Counts


def call(*words: str) -> Result:
    """Call the command line as a shell would."""
    return CliRunner().invoke(main, words, prog_name="daskprs")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Counts(3, 2, 1), {"total": 3, "succeeded": 2, "failed": 1}),
        ({"path": Path("a/b"), 1: (True, None)}, {"path": "a/b", "1": [True, None]}),
        ([math.nan, math.inf, 0.5], [None, None, 0.5]),
        ([np.int64(3), np.float32("nan"), np.bool_(True)], [3, None, True]),
        (datetime(2027, 1, 5, tzinfo=UTC), "2027-01-05T00:00:00+00:00"),
        (pd.Timestamp("2027-01-05"), "2027-01-05T00:00:00"),
        (JobStatus.COMPLETED, "Completed"),
    ],
    ids=repr,
)
def test_a_value_is_shown_as_json_has_it(value: object, shown: object) -> None:
    """By name where it has names, and nothing that JSON has no word for."""
    assert json_value(value) == shown
    json.dumps(json_value(value), allow_nan=False)


def test_a_plan_is_shown_with_each_mini_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By size, whose items are not known, and by keys of any type."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(
        {"day": pd.to_datetime(["2027-01-05", None, "2027-01-05"]), "n": [1, 2, 3]}
    )
    frame.to_csv("t.csv", index=False)
    frame.to_parquet("t.parquet")
    by_size = json.loads(call("plan", "t.csv", "--mini-batch-size", "20", "--json").stdout)
    assert by_size["unit"] == "row"
    assert by_size["totals"]["mini_batches"] == len(by_size["mini_batches"]) > 1
    assert by_size["totals"]["items"] is None
    assert by_size["totals"]["size_bytes"] == Path("t.csv").stat().st_size
    by_keys = json.loads(call("plan", "t.parquet", "--partition-keys", "day", "--json").stdout)
    assert by_keys["totals"]["items"] == 3
    assert [one["partition_key"] for one in by_keys["mini_batches"]] == [
        {"day": "2027-01-05T00:00:00"},
        {"day": None},
    ]
    refused = call("plan", "nothing.csv", "--json")
    assert (refused.exit_code, refused.stdout) == (2, "")
