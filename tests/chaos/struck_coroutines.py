"""The entry script of a job that is struck, as coroutines: several calls at a time in a process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import moments
from struck_script import FOLDER, write_file

if TYPE_CHECKING:
    import pandas as pd

TIMES = 4
"""A call takes so many times as long as one that has the process to itself."""


async def init() -> None:
    """Tell who this is, and load something."""
    await asyncio.sleep(0.03)
    moments.enter_agent(FOLDER)


async def run(mini_batch: pd.DataFrame, context: Any) -> list[str]:
    """Wait for a while; in the middle of it may be the moment."""
    lines = []
    for row in mini_batch.to_dict("records"):
        await asyncio.sleep(TIMES * row["seconds"])
        if row["run"]:
            await asyncio.to_thread(moments.reach, FOLDER, row["run"])
        lines.append(f"{row['number']} squared is {row['number'] ** 2}")
    write_file(context.minibatch_index, lines)
    return lines
