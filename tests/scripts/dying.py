"""An entry script that dies where and how its arguments say."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import deeds

if TYPE_CHECKING:
    from collections.abc import Iterator

parser = argparse.ArgumentParser()
parser.add_argument("--where")
parser.add_argument("--how")
parser.add_argument("--marker")
options, _ = parser.parse_known_args()


def die(where: str) -> None:
    """Do the deed, the first time in this job."""
    if options.where == where and deeds.once(options.marker):
        deeds.DEEDS[options.how]()


die("import")


def init() -> None:
    """Die here if told to."""
    die("init")


def run(mini_batch: Any) -> Iterator[str]:
    """Return a line for each row; die before, or while they are written."""
    for deed in mini_batch.get("run", []):
        if deed:
            deeds.DEEDS[deed]()
    return lines(mini_batch)


def lines(mini_batch: Any) -> Iterator[str]:
    """Yield the lines."""
    for row in mini_batch.to_dict("records"):
        yield f"{row['number']} begins"
        if row.get("return"):
            deeds.DEEDS[row["return"]]()
        yield f"{row['number']} ends"


def shutdown() -> None:
    """Die here if told to."""
    die("shutdown")
