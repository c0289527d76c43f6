"""Goes through all steps at which something may be struck, until nothing is struck any more."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STRUCK = "struck"
"""A file whose name begins so lies in the folder of a step that was reached."""


def at_every_step(
    base: Path, how: str, first: int, stride: int, play: Callable[[Path, int], None]
) -> None:
    """Play every `stride`-th step from the first on, each in a folder of its own.

    The program ends with what was wrong at a step; in the end the number of steps is printed.
    """
    nth, struck = first, True
    while struck:
        folder = base / str(nth)
        folder.mkdir()
        try:
            play(folder, nth)
        except AssertionError as error:
            sys.exit(f"{how} at operation {nth}: {error}")
        struck = any(folder.glob(f"{STRUCK}*"))
        shutil.rmtree(folder)
        nth += stride
    print(f"{nth - stride} operations")
