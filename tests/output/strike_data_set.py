"""Strike a job that publishes a data set at every file operation, and go on.

A program of its own, since it forks: ``strike_data_set.py FOLDER HOW FIRST STRIDE [WORD]``. A
job publishes its data set, without the rows of one mini-batch; its input grows; what failed is
tried again. The driver of each run is struck at its n-th operation, in one of the ways that
`reaper` knows. The word ``in_two_steps`` takes the exchange of names away; ``aside`` has parts
written as workers do. Says what went wrong, and exits with 0 when nothing did.
"""

from __future__ import annotations

import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset  # noqa: F401 - once, before the forks
from kill_at_every_step import COMPLETED, NOT_COMPLETED, in_a_child

from daskprs._output.dataset import ordered_parts
from daskprs._output.publish import output_file
from daskprs.errors import DaskprsError
from tests.support.datasets import PARQUET, AsideAtOnce, AtOnce, text_of
from tests.support.every_step import STRUCK, at_every_step
from tests.support.growth import drive, serial, target_of
from tests.support.reaper import Reaper

if TYPE_CHECKING:
    from daskprs._output.journal.recovery import Runs

AT_FIRST, FAILS, GROWN = "bdf", "d", "abcdefg"
RUNS: list[tuple[Runs, str, str]] = [
    ("all that is left", AT_FIRST, AT_FIRST.replace(FAILS, "")),
    ("what is new", GROWN, GROWN.replace(FAILS, "")),
    ("what failed", GROWN, GROWN),
]
"""How a run goes on, its input, and what it publishes."""


def run(base: Path, number: int, nth: int | None, how: str, *, aside: bool) -> int:
    """Do a run, and be struck; return whether it came to its end."""
    runs, names, _ = RUNS[number]
    if nth is not None:
        Reaper(nth, how, base / f"{STRUCK}.{number}")
    try:
        drive(
            base,
            names,
            runs,
            fails="" if number == len(RUNS) - 1 else FAILS,
            spec=SPEC,
            new_executor=AsideAtOnce if aside else None,
        )
    except (KeyboardInterrupt, OSError, DaskprsError):
        return NOT_COMPLETED
    return COMPLETED


def there(base: Path) -> bytes | None:
    """Return the rows of the data set that is there; each file has to be whole."""
    return text_of(target_of(base)) if target_of(base).exists() else None


def strike(base: Path, number: int, nth: int, how: str, word: str) -> None:
    """Let a driver be struck, and another one come through: the old rows are there, or the new."""
    doing = partial(run, aside=word == "aside")
    before = None if number == 0 else serial(RUNS[number - 1][2])
    after = serial(RUNS[number][2])
    code = in_a_child(partial(doing, base, number, nth, how))
    assert code in {COMPLETED, NOT_COMPLETED, -signal.SIGKILL}, f"exit code {code}"
    found = there(base)
    if word != "in_two_steps" or code != -signal.SIGKILL or found is not None:
        assert found in {before, after}, "half a data set, or none"
    assert found == after or code != COMPLETED, "Completed, and the old rows"
    if how == "interrupt":
        for ours in (".*.part", ".*.attempts"):
            assert not list(target_of(base).parent.glob(ours)), "half a data set is left"
    assert in_a_child(partial(doing, base, number, None, "")) == COMPLETED, "no resume"
    assert there(base) == after, "other rows"
    names = [path.name for path in target_of(base).parent.iterdir()]
    assert names == [target_of(base).name], "something of ours is left"
    assert not list((base / "job").glob("spool.*")), "a spool is left"


def main(base: Path, how: str, first: int, stride: int, word: str = "") -> None:
    """Go through every step."""
    ordered_parts._threads = AtOnce  # type: ignore[assignment]
    if word == "in_two_steps":
        output_file.exchanged = lambda *_: False

    def play(folder: Path, nth: int) -> None:
        for number in range(len(RUNS)):
            strike(folder, number, nth, how, word)

    at_every_step(base, how, first, stride, play)


SPEC = PARQUET._replace(file_size_bytes=2_000)

if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
