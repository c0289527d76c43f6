"""Where a script may die, and how; what is left of the job, and what its user reads."""

from __future__ import annotations

import sys
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

import daskprs
from tests.support.cases import mostly_long

SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import deeds  # noqa: E402 - the agents import it under this name, and so does its pickle

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Linux has it
MARK = "DASKPRS_TEST_MARK"
AGENTS = {"PYTHONPATH": str(SCRIPTS), "DASKPRS_TEST_AGENT": "1"}
HANGS = ("hang", "hang with the GIL", "SIGSTOP")
ENDS = tuple(deed for deed in deeds.DEEDS if deed not in HANGS)
TIMEOUT_S = 4
"""For what hangs; its neighbours have that long, twice."""
TIMEOUTS = ("run_invocation_timeout", "task_overhead_timeout", "init_timeout", "shutdown_timeout")

WHAT_IS_READ = {
    "raise": "ValueError: the deed was done",
    "exit 0": "exits with returncode 0",
    "exit 3": "exits with returncode 3",
    "sys.exit": "SystemExit: sys.exit(4) was called",
    "SIGSEGV": "exits with returncode -11 (SIGSEGV)",
    "SIGKILL": "exits with returncode -9 (SIGKILL)",
    "hang": f"exceeded {TIMEOUT_S} s",
    "hang with the GIL": f"exceeded {TIMEOUT_S} s",
    "SIGSTOP": f"exceeded {TIMEOUT_S} s",
    "leave a grandchild": "exits with returncode 5",
    "close descriptors": "its socket to daskprs was closed",
    "flood stdout": "exits with returncode 6",
}


def test_the_table_covers_every_deed() -> None:
    """A new way to die has to say what its user reads."""
    assert WHAT_IS_READ.keys() == deeds.DEEDS.keys()


def job(frame: pd.DataFrame, folder: Path, *arguments: str, **options: Any) -> Any:
    """Run the dying script over one row at a time."""
    given: dict[str, Any] = {
        "mini_batch_size": 1,
        "job_dir": folder / "job",
        "output_dir": folder / "out",
        "arguments": arguments,
        "environment_variables": AGENTS,
        "process_count_per_node": 2,
        "allowed_failed_count": -1,
        "run_max_try": 2,
        "progress": False,
    }
    return daskprs.parallel_run(frame, SCRIPTS / "dying.py", **given | options)


def haste(of_deeds: tuple[str, ...]) -> dict[str, int]:
    """Return short timeouts where something hangs; else the defaults, however busy the machine."""
    return dict.fromkeys(TIMEOUTS, TIMEOUT_S) if set(of_deeds) & set(HANGS) else {}


def rows_between(column: str, of_deeds: tuple[str, ...]) -> pd.DataFrame:
    """Return a frame with innocent rows around each row that does a deed."""
    cells = [cell for deed in of_deeds for cell in ("", deed, "")]
    return pd.DataFrame({"number": range(len(cells)), column: cells})


def serial(frame: pd.DataFrame, column: str) -> str:
    """Return what a serial run over the innocent rows would have written."""
    innocent = frame.loc[frame[column] == "", "number"]
    return "".join(f"{number} begins\n{number} ends\n" for number in innocent)


@pytest.mark.parametrize(
    ("column", "ways"),
    [
        pytest.param("run", ENDS, id="run-ends"),
        pytest.param("run", HANGS, id="run-hangs", marks=pytest.mark.long),
        pytest.param("return", ENDS, id="return-ends", marks=pytest.mark.long),
        pytest.param("return", HANGS, id="return-hangs", marks=pytest.mark.long),
    ],
)
def test_a_death_in_run_costs_its_own_mini_batch_and_nothing_else(
    tmp_path: Path, column: str, ways: tuple[str, ...]
) -> None:
    """Many ways to die in one job, each between two neighbours that must not suffer."""
    frame = rows_between(column, ways)
    result = job(frame, tmp_path, **haste(ways))
    failed = dict(zip(result.failed["mini_batch"], result.failed["error"], strict=True))
    guilty = frame.index[frame[column] != ""]
    assert {number: failed[number] for number in set(failed) - set(guilty)} == {}
    assert sorted(failed) == list(guilty)
    assert result.output_file.read_text() == serial(frame, column)
    for number in guilty:
        assert WHAT_IS_READ[frame.loc[number, column]] in failed[number]


@pytest.mark.parametrize(
    "ways",
    [pytest.param(ENDS, id="ends"), pytest.param(HANGS, id="hangs", marks=pytest.mark.long)],
)
def test_a_death_while_loading_costs_its_own_mini_batch_and_nothing_else(
    tmp_path: Path, ways: tuple[str, ...]
) -> None:
    """The same for objects that end the process in the moment in which they are unpickled."""
    frame = rows_between("load", ways)
    with_bombs = frame.assign(load=[deeds.Bomb(deed) for deed in frame["load"]])
    result = job(with_bombs, tmp_path, **haste(ways))
    failed = dict(zip(result.failed["mini_batch"], result.failed["error"], strict=True))
    guilty = frame.index[frame["load"] != ""]
    assert {number: failed[number] for number in set(failed) - set(guilty)} == {}
    assert sorted(failed) == list(guilty)
    assert result.output_file.read_text() == serial(frame, "load")
    for number, error in failed.items():
        assert WHAT_IS_READ[frame.loc[number, "load"]] in error


@pytest.mark.parametrize(
    ("where", "how"),
    mostly_long(
        product(["import", "init"], deeds.DEEDS),
        suite=[("import", "raise"), ("init", "hang with the GIL")],
    ),
)
def test_a_death_before_the_first_mini_batch_costs_an_agent(
    tmp_path: Path, where: str, how: str
) -> None:
    """One agent does not come up, another one takes its place, and the job completes."""
    frame = pd.DataFrame({"number": range(4), "run": ""})
    told = ("--where", where, "--how", how, "--marker", str(tmp_path / "marker"))
    result = job(frame, tmp_path, *told, **haste((how,)))
    assert result.status == "Completed"
    assert result.output_file.read_text() == serial(frame, "run")
    main_log = (result.logs_dir / "sys" / "node" / "0" / "_main.txt").read_text()
    assert WHAT_IS_READ[how] in main_log


@pytest.mark.parametrize("how", mostly_long(deeds.DEEDS, suite=["raise", "hang"]))
def test_a_death_in_shutdown_is_a_warning(tmp_path: Path, how: str) -> None:
    """The output is complete, the log says what happened."""
    frame = pd.DataFrame({"number": range(4), "run": ""})
    told = ("--where", "shutdown", "--how", how, "--marker", str(tmp_path / "marker"))
    if how == "close descriptors":  # nobody hears that it goes on
        how = "hang"
    result = job(frame, tmp_path, *told, **haste((how,)))
    assert result.status == "Completed"
    assert result.output_file.read_text() == serial(frame, "run")
    main_log = (result.logs_dir / "sys" / "node" / "0" / "_main.txt").read_text()
    if how != "exit 0":
        assert WHAT_IS_READ[how] in main_log


def test_a_generator_without_end_is_not_said_to_hang_in_our_code(tmp_path: Path) -> None:
    """Its rows are taken between two of its lines: no line of the script is to blame."""
    script = tmp_path / "script.py"
    script.write_text("def run(rows):\n    return map(str, iter(int, 1))\n")
    result = daskprs.parallel_run(
        pd.DataFrame({"n": [0]}),
        script,
        run_invocation_timeout=1,
        run_max_try=1,
        allowed_failed_count=-1,
        job_dir=tmp_path / "job",
        output_action="summary_only",
        progress=False,
    )
    (error,) = result.failed["error"]
    assert "s while daskprs took what it yields or returns. The stacks" in error


def test_no_grandchild_is_left(tmp_path: Path) -> None:
    """What a script started dies with its agent, in a session of its own or not.

    What ends last is the resource tracker of Python, which removes the shared memory.
    """
    frame = rows_between("run", ("leave a grandchild",))
    job(frame, tmp_path, environment_variables=AGENTS | {MARK: str(tmp_path)})
    left = [
        process.pid
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get(MARK) == str(tmp_path)
    ]
    assert left == []
    for file in SHARED_MEMORY.glob("psm_*"):
        with suppress(FileNotFoundError):  # of another test, which is over by now
            assert not file.read_bytes().startswith(deeds.SHARED)
