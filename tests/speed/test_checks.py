"""A wrong output is found, whatever is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import workloads
from benchmarks.checks import WrongOutputError
from benchmarks.slices import pieces, worked
from benchmarks.work import score

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.session import Session

WORKLOAD = workloads.BY_NAME["parquet-1mb"]


def with_swapped_scores(lines: list[bytes]) -> list[bytes]:
    """Give the first two rows each other's score."""
    (first, one), (second, other) = (line.split(b",") for line in lines[:2])
    return [first + b"," + other, second + b"," + one, *lines[2:]]


RUINS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a row is lost": lambda lines: lines[:-1],
    "a row is there twice": lambda lines: [*lines, lines[-1]],
    "a row is there for another": lambda lines: [lines[1], *lines[1:]],
    "a score is wrong": lambda lines: [lines[0].split(b",")[0] + b",0.123\n", *lines[1:]],
    "scores are swapped": with_swapped_scores,
    "there is no row": lambda _: [],
}


@pytest.fixture
def lines(session: Session) -> list[bytes]:
    """Return the lines of a right output."""
    source, _ = WORKLOAD.data.made(session.home / "data", session.scale)
    texts = (worked(score, piece) for piece in pieces(str(source), WORKLOAD.size))
    return b"".join(texts).splitlines(keepends=True)


def check(lines: list[bytes], session: Session, tmp_path: Path, *, ordered: bool) -> None:
    """Check lines as the output of a run."""
    output = tmp_path / "output.csv"
    output.write_bytes(b"".join(lines))
    _, expected = WORKLOAD.data.made(session.home / "data", session.scale)
    WORKLOAD.check(output, expected, ordered=ordered)


@pytest.mark.parametrize("ruin", RUINS.values(), ids=RUINS.keys())
def test_a_wrong_output_is_refused(
    ruin: Callable[[list[bytes]], list[bytes]],
    lines: list[bytes],
    session: Session,
    tmp_path: Path,
) -> None:
    """Lost, doubled and mixed up rows are found, and wrong scores."""
    with pytest.raises((WrongOutputError, ValueError)):
        check(ruin(lines), session, tmp_path, ordered=False)


def test_the_order_counts_only_where_it_is_promised(
    lines: list[bytes], session: Session, tmp_path: Path
) -> None:
    """A peer that promises none may write rows in any order."""
    turned = [lines[1], lines[0], *lines[2:]]
    check(turned, session, tmp_path, ordered=False)
    check(lines, session, tmp_path, ordered=True)
    with pytest.raises(WrongOutputError, match="order"):
        check(turned, session, tmp_path, ordered=True)
