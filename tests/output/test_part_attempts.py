"""Attempts of other processes at a part: the driver takes one of them, whole."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from daskprs._output.dataset import part_file
from daskprs._output.dataset.part_attempt import PartAttempt, sweep, write_aside
from daskprs._output.dataset.part_file import write_part
from tests.support.datasets import part_plan

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._output.dataset.part_file import PartPlan

FRAME = pd.DataFrame({"n": range(100), "kind": ["a", "b"] * 50})


@pytest.fixture
def attempts(tmp_path: Path) -> Path:
    """Return the folder of all attempts."""
    folder = tmp_path / "attempts"
    folder.mkdir()
    return folder


def attempt(attempts: Path, number: int, plan: PartPlan) -> PartAttempt:
    """Return a finished attempt."""
    told = write_aside(str(attempts), number, pickle.dumps(plan))
    return PartAttempt.parsed(told, number)


@pytest.fixture(params=[(), ("kind",)])
def plan(tmp_path: Path, request: pytest.FixtureRequest) -> PartPlan:
    """Return the plan of a part: one file, or one in each folder."""
    return part_plan(tmp_path, [FRAME])._replace(partition_by=request.param)


def test_a_part_that_was_written_aside_is_the_part(plan: PartPlan, attempts: Path) -> None:
    """Byte for byte, and at its place."""
    here = write_part(plan)
    bodies = [(attempts.parent / "set" / one.name).read_bytes() for one in here.files]
    made = attempt(attempts, 1, plan)
    assert made.is_whole(attempts)
    sweep(attempts.parent / "set")
    (attempts.parent / "set").mkdir()
    assert made.put(attempts, plan) == here
    assert bodies == [(attempts.parent / "set" / one.name).read_bytes() for one in here.files]


def test_an_attempt_with_less_than_it_wrote_is_not_whole(plan: PartPlan, attempts: Path) -> None:
    """A file that is cut, or gone."""
    made = attempt(attempts, 1, plan)
    last = attempts / made.folder / made.made.files[-1].name
    last.write_bytes(last.read_bytes()[:-1])
    assert not made.is_whole(attempts)
    last.unlink()
    assert not made.is_whole(attempts)


def test_an_attempt_whose_folder_was_removed_makes_nothing(
    plan: PartPlan, attempts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither there nor elsewhere: it was stopped just before, and goes on when all is over."""
    before = sorted(attempts.parent.rglob("*"))

    def write_late(given: Any) -> Any:
        sweep(attempts)
        return write_part(given)

    monkeypatch.setattr(part_file, "write_part", write_late)
    with pytest.raises(FileNotFoundError):
        write_aside(str(attempts), 1, pickle.dumps(plan))
    with pytest.raises(FileNotFoundError):
        write_aside(str(attempts), 2, pickle.dumps(plan))
    before.remove(attempts)
    assert sorted(attempts.parent.rglob("*")) == before


def test_what_attempts_with_a_number_have_left_is_removed(attempts: Path, plan: PartPlan) -> None:
    """Those with others stay: they may be at work."""
    first, second = (attempt(attempts, 1, plan) for _ in range(2))
    other = attempt(attempts, 11, plan)
    assert first.folder != second.folder
    sweep(attempts, 1)
    assert [one.name for one in attempts.iterdir()] == [other.folder]


@pytest.mark.attack
@pytest.mark.parametrize(
    "told",
    [
        pickle.dumps(("1.ab", 7, 1, [])),
        b'["1.ab/../../keys", 7, 1, []]',
        b'["2.ab", 7, 1, []]',
        b'["1.ab", 7, 1, [["../../keys", 1, 2, 3, [1]]]]',
        b'["1.ab", 7, 1, [["/etc/passwd", 1, 2, 3, [1]]]]',
        b'["1.ab", 7, 1, [["a", 1]]]',
        b"[]",
    ],
)
def test_a_forged_attempt_is_refused(told: bytes) -> None:
    """It is neither unpickled, nor are files of others moved into the data set."""
    with pytest.raises((ValueError, TypeError)):
        PartAttempt.parsed(told, 1)
