"""Jobs on a virtual clock: whatever dies, each promise holds."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.simulation import simulate
from tests.simulation.scenario import drawn
from tests.simulation.simulate import seeds_played

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

SEEDS = 300
GROUP = 10
"""Seeds that one test plays: test workers share them."""
SEEDS_WITH_KEYS = (250, 268, 968)
"""Seeds that find faults in the exchange of rows."""
SEEDS_WITH_STAGES = (509, 1304, 11113, 544546)
"""Seeds that find faults in stages that have processes of their own."""


@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_no_seed_breaks_a_promise(first: int) -> None:
    """A seed that does is shrunk by `make sim REPLAY=…`."""
    assert seeds_played(first, GROUP).violations == []


@pytest.mark.parametrize("seed", SEEDS_WITH_KEYS)
def test_no_seed_with_keys_breaks_a_promise(seed: int) -> None:
    """Few of the seeds above have them."""
    assert drawn(seed).keyed is not None
    assert seeds_played(seed, 1).violations == []


@pytest.mark.parametrize("seed", SEEDS_WITH_STAGES)
def test_no_seed_with_stages_breaks_a_promise(seed: int) -> None:
    """Few of the seeds above have them."""
    assert drawn(seed).stages is not None
    assert seeds_played(seed, 1).violations == []


def test_sigterm_is_heard_while_results_are_fetched_from_a_stopped_scheduler() -> None:
    """In this seed, the scheduler stops twice, for 40 s."""
    strikes = [what for _, what in drawn(284620).strikes]
    assert {"terminate job", "stop scheduler"} <= {*strikes}
    assert seeds_played(284620, 1).violations == []


def test_a_seed_is_the_same_each_time() -> None:
    """What was found is found again."""
    one, other = (seeds_played(3, 2) for _ in range(2))
    assert one.counts == other.counts
    assert one.virtual_s == other.virtual_s


SHOWN = "import sys; from tests.simulation.simulate import seeds_played as played; "
SHOWN += "made = [played(int(seed), 1) for seed in sys.argv[1:]]; "
SHOWN += "print([(sorted(one.counts.items()), one.virtual_s) for one in made])"


@pytest.mark.long
def test_a_seed_is_the_same_in_another_process() -> None:
    """Whatever the hashes of strings are there: sets of names have another order with each."""
    played = [
        subprocess.run(
            [sys.executable, "-c", SHOWN, "5037", "5054", "268"],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            cwd=Path(simulate.__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "3")
    ]
    assert played[0] == played[1]


def test_a_seed_is_shrunk_to_the_events_that_break_the_same_promise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A smaller job that breaks another promise tells nothing of this one."""
    events = [(1.0, "kill worker"), (2.0, "cut client"), (3.0, "rot")]
    scenario = replace(drawn(3), strikes=events, on_disk={("opening", 3): "torn"}, lies=True)

    def fault_of(one: Scenario, _: Path) -> str:
        names = {name for _, name in one.strikes}
        lost = f"Violation: the commit of {one.count} is lost"
        return lost if names >= {"kill worker", "rot"} else "Violation: there is no output"

    monkeypatch.setattr(simulate, "fault_of", fault_of)
    least = simulate.shrunk(scenario, tmp_path)
    assert least.strikes == [events[0], events[2]]
    assert (least.count, least.on_disk, least.lies, least.bad) == (1, {}, False, {})
    assert "cut client" not in simulate.told(least)
