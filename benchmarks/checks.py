"""Whether an output is right: every row there, none twice, the sums as expected, the order."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from pyarrow import csv, dataset

from benchmarks.faulty import NOTES_VARIABLE, TIMEOUT_S
from benchmarks.work import (
    FIT_COLUMNS,
    GLANCE_COLUMNS,
    GROUP_COLUMNS,
    GROUPS,
    INFERENCE_COLUMNS,
    SCORE_COLUMNS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.data import Expected

Measures = dict[str, float]
NEAR = 1e-9
SLOPE_ERROR = 0.05
"""Of a fit: about twenty times its standard error."""
NOTES_FILE = NOTES_VARIABLE.lower()


class WrongOutputError(Exception):
    """What a peer has written is not what the work asks for."""


def check_names(output: Path, expected: Expected, *, ordered: bool) -> Measures:
    """Check that each file gave its line."""
    names = [line.partition(" ")[0] for line in output.read_text().splitlines()]
    _check_ids(np.array([int(name[:7]) for name in names]), expected["rows"], ordered=ordered)
    return {}


def check_arrays(output: Path, expected: Expected, *, ordered: bool) -> Measures:
    """Check names and the sum of the singular values."""
    check_names(output, expected, ordered=ordered)
    values = [float(line.partition(" ")[2]) for line in output.read_text().splitlines()]
    _check_sum("singular values", sum(values), expected["total"], 1e-5)
    return {}


def check_scores(output: Path, expected: Expected, *, ordered: bool) -> Measures:
    """Check that each id has its score."""
    columns = _columns(output, SCORE_COLUMNS)
    return _check_scores(columns["id"], columns["score"], expected, ordered=ordered)


def check_dataset(output: Path, expected: Expected, *, ordered: bool) -> Measures:
    """Check that each id has its score, in a folder of Parquet files."""
    table = dataset.dataset(output, format="parquet").to_table()
    ids, scores = (table[name].to_numpy().astype(float) for name in SCORE_COLUMNS)
    return _check_scores(ids, scores, expected, ordered=ordered)


def check_groups(output: Path, expected: Expected, *, ordered: bool) -> Measures:
    """Check the sum of the scores in each group of ids."""
    del ordered
    groups = _columns(output, GROUP_COLUMNS)
    numbers, totals = groups["group"], groups["total"]
    _check_ids(numbers, GROUPS, ordered=False)
    _check_sum("scores", totals.sum(), expected["total"], NEAR)
    _check_sum("scores by group", (totals * numbers).sum(), expected["crossed"], NEAR)
    return {}


def check_fits(output: Path, expected: Expected, *, ordered: bool) -> Measures:
    """Check that each key was fitted with all its rows; keys come as they first appear."""
    del ordered
    fits = _columns(output, FIT_COLUMNS)
    keys = int(expected["keys"])
    _check_ids(fits["key"], keys, ordered=False)
    if not (fits["rows"] == expected["rows_of_a_key"]).all():
        raise WrongOutputError("a key was fitted with some of its rows only")
    found = np.column_stack([fits["a"], fits["b"], fits["c"]])
    meant = np.column_stack([fits["key"] / keys, -np.ones(keys), fits["key"] % 7])
    if not (abs(found - meant) < SLOPE_ERROR).all():
        raise WrongOutputError("coefficients are not those that the data were made with")
    return {}


def check_glances(output: Path, expected: Expected, *, ordered: bool) -> Measures:
    """Check that the mini-batches of a frame cover it, and their sum."""
    glances = _columns(output, GLANCE_COLUMNS)
    _check_cover(glances["first"], glances["rows"], expected["rows"], ordered=ordered)
    _check_sum("column", glances["total"].sum(), expected["total"], NEAR)
    return {}


def check_inferences(output: Path, expected: Expected, *, ordered: bool) -> Measures:
    """Check that the mini-batches cover the table, and measure how busy the device was."""
    calls = _columns(output, INFERENCE_COLUMNS)
    _check_cover(calls["first"], calls["rows"], expected["rows"], ordered=ordered)
    busy_s = (calls["end"] - calls["begin"]).sum()
    return {"busy_share": float(busy_s / (calls["end"].max() - calls["begin"].min()))}


def check_faults(output: Path, expected: Expected, *, ordered: bool) -> Measures:
    """Check that nothing is lost but the culprits, and measure what a hang costs the others."""
    lines = [line.split() for line in output.read_text().splitlines()]
    numbers = [int(name[:7]) for name, *_ in lines]
    twice = [number for number, times in Counter(numbers).items() if times > 1]
    if twice or (ordered and numbers != sorted(numbers)):
        msg = f"mini-batches {twice[:5]} are there twice, or the order is wrong"
        raise WrongOutputError(msg)
    lost = expected["rows"] - len(numbers)
    innocent = lost - expected["culprits"]
    if innocent:
        msg = f"{innocent:.0f} mini-batches are lost besides those that fail"
        raise WrongOutputError(msg)
    ends = sorted(float(end) for *_, end in lines)
    return {"lost": lost} | _gaps(output.with_name(NOTES_FILE), ends)


def _gaps(notes: Path, ends: Sequence[float]) -> Measures:
    """Return how long after its deadline a hang was replaced, and the others' longest gap."""
    told = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
    hangs = [float(at) for what, _, at in told if what == "hang"]
    ups = [float(at) for what, _, at in told if what == "init"]
    if not hangs:
        return {}
    deadline = hangs[0] + TIMEOUT_S
    later = [at - deadline for at in ups if at > deadline]
    during = [stop - start for start, stop in pairwise(ends) if start > hangs[0]]
    before = [stop - start for start, stop in pairwise(ends) if stop < hangs[0]]
    return {
        "next_init_after_deadline_s": min(later, default=math.nan),
        "longest_gap_s": max(during, default=math.nan),
        "longest_gap_before_s": max(before, default=math.nan),
    }


def _columns(output: Path, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Return the columns of an output as numbers; ids are exact up to 2 to the 53rd."""
    table = csv.read_csv(output, csv.ReadOptions(column_names=list(names)))
    return {name: table[name].to_numpy().astype(float) for name in names}


def _check_scores(
    ids: NDArray[np.float64], scores: NDArray[np.float64], expected: Expected, *, ordered: bool
) -> Measures:
    _check_ids(ids, expected["rows"], ordered=ordered)
    _check_sum("scores", scores.sum(), expected["total"], NEAR)
    _check_sum("scores by id", (scores * (ids % GROUPS)).sum(), expected["crossed"], NEAR)
    return {}


def _check_ids(ids: NDArray[np.float64], count: float, *, ordered: bool) -> None:
    if len(ids) != count or not (np.sort(ids) == np.arange(count)).all():
        msg = f"{len(ids)} rows, {len(np.unique(ids))} different; {count:g} expected"
        raise WrongOutputError(msg)
    if ordered and (np.diff(ids) < 0).any():
        raise WrongOutputError("the rows are not in the order of the input")


def _check_cover(
    first: NDArray[np.float64], rows: NDArray[np.float64], count: float, *, ordered: bool
) -> None:
    order = np.argsort(first)
    ends = (first + rows)[order]
    if not (np.append(0, ends[:-1]) == first[order]).all() or ends[-1] != count:
        raise WrongOutputError("the mini-batches do not cover the input, each row once")
    if ordered and (np.diff(first) < 0).any():
        raise WrongOutputError("the mini-batches are not in the order of the input")


def _check_sum(what: str, found: float, expected: float, near: float) -> None:
    if not math.isclose(found, expected, rel_tol=near):
        msg = f"the sum of the {what} is {found!r}, {expected!r} was expected"
        raise WrongOutputError(msg)
