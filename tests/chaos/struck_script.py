"""The entry script of a job that is struck: a line for each row, or a file for each mini-batch."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import moments

from daskprs import EntryScript

if TYPE_CHECKING:
    import pandas as pd

ACTION = "DASKPRS_CHAOS_ACTION"
FOLDER = Path(os.environ[moments.FOLDER])


def init() -> None:
    """Tell who this is, and load something."""
    time.sleep(0.03)
    moments.enter_agent(FOLDER)


def before(mini_batch: pd.DataFrame) -> list[dict[str, Any]]:
    """Make records of rows; in the middle of it may be the moment."""
    records = mini_batch.drop(columns=["load", "deal", "gather"]).to_dict("records")
    for row in records:
        if row["before"]:
            moments.reach(FOLDER, row["before"])
    return records


def after(lines: list[tuple[str, str]]) -> list[str]:
    """Return the lines; in the middle of it may be the moment."""
    for _, moment in lines:
        if moment:
            moments.reach(FOLDER, moment)
    return [line for line, _ in lines]


def run(mini_batch: Any, context: Any) -> Any:
    """Work for a while; in the middle of it may be the moment."""
    lines, is_before = [], isinstance(mini_batch, list)
    rows = mini_batch if is_before else mini_batch.to_dict("records")
    for row in rows:
        time.sleep(row["seconds"])
        if row["run"]:
            moments.reach(FOLDER, row["run"])
        if row["search"] and context.piece is not None:
            moments.reach(FOLDER, row["search"])
        if row["bad"] == "raises":
            raise ValueError(row["number"])
        if row["bad"] == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        lines.append(f"{row['number']} squared is {row['number'] ** 2}")
    write_file(context.minibatch_index, lines)
    return [*zip(lines, (row["after"] for row in rows), strict=True)] if is_before else lines


def write_file(index: int, lines: list[str]) -> None:
    """Write a file of the script's own, as contract and documentation recommend it."""
    folder = Path(EntryScript().output_dir)
    if os.environ[ACTION] != "summary_only":
        return
    part = folder / f".{index}.{os.getpid()}"
    part.write_text("\n".join(lines))
    part.replace(folder / f"{index}.txt")
