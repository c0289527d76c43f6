"""The seconds of `run`: those of the script, without the work of daskprs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs._folders.job_folder import JobFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SLOW_S, TIMEOUT_S = 1.6, 1


class Slow:
    """An element whose text takes long."""

    def __str__(self) -> str:
        """Return the text, which our formatting asks for."""
        time.sleep(SLOW_S)
        return "slow"


def in_a_list(_: pd.DataFrame) -> list[Any]:
    """Return at once."""
    return [Slow()]


def in_a_generator(_: pd.DataFrame) -> Iterator[Any]:
    """Yield at once."""
    yield pd.DataFrame({"x": [Slow()]})


def after_a_while(_: pd.DataFrame) -> Iterator[Any]:
    """Take long between two elements."""
    yield 1
    time.sleep(SLOW_S)
    yield 2


def run_seconds(script: Callable[..., Any], folder: Path, timeout_s: float) -> float:
    """Return the seconds of `run` that a job over one mini-batch reports."""
    daskprs.parallel_run(
        pd.DataFrame({"x": [1]}),
        script,
        job_dir=folder / "job",
        output_dir=folder / "out",
        run_invocation_timeout=timeout_s,
        run_max_try=1,
        progress=False,
    )
    (seconds,) = pd.read_csv(JobFolder(folder / "job").attempts)["Run Method Seconds"]
    return float(seconds)


def test_writing_what_run_returned_is_not_the_time_of_run(tmp_path: Path) -> None:
    """It meets no timeout of `run` either."""
    assert run_seconds(in_a_list, tmp_path, TIMEOUT_S) < TIMEOUT_S


def test_of_a_generator_only_the_script_takes_the_time_of_run(tmp_path: Path) -> None:
    """Not what is written between two of its pieces."""
    assert run_seconds(in_a_generator, tmp_path / "ours", 60) < SLOW_S
    assert run_seconds(after_a_while, tmp_path / "its", 60) >= SLOW_S


def test_a_generator_has_the_timeout_of_run(tmp_path: Path) -> None:
    """Its code is that of the script."""
    with pytest.raises(daskprs.ParallelRunFailed, match=r"run\(\) exceeded 1 s"):
        run_seconds(after_a_while, tmp_path, TIMEOUT_S)
