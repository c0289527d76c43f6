"""Runs the examples one after the other, and shows what there is to see: `make demo`.

From the root of the project, with daskprs and scikit-learn installed:

    python examples/demo.py
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(os.path.relpath(Path(__file__).parent))
FOLDER = Path("demo-output")
LINES_SHOWN = 5


def main() -> None:
    """Run both examples in a fresh folder."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    digits, odd = FOLDER / "digits", FOLDER / "odd-ones-out"

    say("1. Pictures: a model reads 899 handwritten digits, 25 pictures a mini-batch.")
    make(HERE / "digits" / "make_data.py", digits)
    run(
        [str(HERE / "digits" / "score.py"), str(digits / "images"), "--mini-batch-size", "25"],
        digits,
        "predictions.csv",
        ["--model", str((digits / "model.pickle").absolute())],
    )
    show(digits, "predictions.csv")
    compare(digits)

    say("2. A table: how odd each scan is among those of its label, a mini-batch for each label.")
    make(HERE / "odd_ones_out" / "make_data.py", odd)
    run(
        [str(HERE / "odd_ones_out" / "find.py"), str(odd / "digits.csv"), "--partition-keys=label"],
        odd,
        "odd.csv",
    )
    show(odd, "odd.csv")


def say(text: str) -> None:
    """Say what comes next."""
    print(f"\n{text}\n", flush=True)


def make(script: Path, folder: Path) -> None:
    """Make the data of an example."""
    subprocess.run([sys.executable, str(script), str(folder)], check=True)


def run(what: list[str], folder: Path, name: str, arguments: Sequence[str] = ()) -> None:
    """Run a job by the command line, and show the command."""
    words = ["daskprs", "run", *what, "--job-dir", str(folder / "job")]
    words += ["--output", str(folder / "output" / name)]
    words += ["--", *arguments] if arguments else []
    print(f"$ {shlex.join(words)}\n", flush=True)
    subprocess.run([sys.executable, "-m", *words], check=True)


def show(folder: Path, name: str) -> None:
    """Show the first lines of the output, and what to read next."""
    output = folder / "output" / name
    with output.open() as file:
        lines = list(islice(file, LINES_SHOWN))
    print(f"\nThe first lines of {output}:\n\n  {'  '.join(lines)}  …")
    print(f"\nHow it went, and where the time went: daskprs report {folder / 'job'} --text")


def compare(folder: Path) -> None:
    """Say how many digits were read as they were meant."""
    read = pd.read_csv(folder / "output" / "predictions.csv")
    meant = pd.read_csv(folder / "truth.csv")
    both = read.merge(meant, on="picture", suffixes=("", "_meant"), validate="one_to_one")
    right = (both["digit"] == both["digit_meant"]).sum()
    print(f"{right} of {len(meant)} digits were read as they were meant.")


if __name__ == "__main__":
    main()
