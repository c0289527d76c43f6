"""Runs the benchmark on a card, and writes its figures to a file with date, card and commit."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from benchmarks.gpu.data import SIZES
from benchmarks.gpu.workloads import WORKLOADS, Bench, Figure, WrongOutputError
from benchmarks.machine import checked_out, machine_facts
from daskprs._system.nvml import gpus

FIGURES = Path(__file__).with_name("figures.json")
PACKAGES = ("torch", "torchvision", "PIL")


def device(*, stand_in: bool) -> tuple[str, str]:
    """Return the device of the scripts, and the name of the card; refuse where there is none."""
    lacking = [one for one in PACKAGES if importlib.util.find_spec(one) is None]
    if stand_in:
        return ("" if lacking else "cpu"), "none: a stand-in"
    cards = sorted({one.kind for one in gpus()})
    if not cards:
        msg = (
            "there is no card: the NVIDIA driver reports none. Run this on a machine that has "
            "one. --stand-in --size tiny tries the programs without a card."
        )
        raise click.ClickException(msg)
    if lacking:
        msg = (
            f"{' and '.join(lacking)} cannot be imported. Run this with a Python that has them: "
            "make bench-gpu GPU_PYTHON=python3. That needs no network."
        )
        raise click.ClickException(msg)
    return "cuda", ", ".join(cards)


def told(figure: Figure) -> str:
    """Return a line about a case."""
    values = ", ".join(f"{name} {value}" for name, value in figure.values.items())
    goals = "; ".join(
        f"{words}: {'yes' if is_met else 'NO'}" for words, is_met in figure.goals.items()
    )
    return f"{figure.name}: {values}{f' ({goals})' if goals else ''}"


def versions() -> dict[str, str]:
    """Return the versions of what the figures depend on."""
    known = {}
    for name in ("torch", "torchvision", "pillow", "dask", "distributed"):
        if importlib.util.find_spec({"pillow": "PIL"}.get(name, name)) is not None:
            known[name] = importlib.metadata.version(name)
    return known


@click.command()
@click.option("--workloads", default=",".join(WORKLOADS), show_default=True)
@click.option("--size", type=click.Choice([*SIZES]), default="full", show_default=True)
@click.option(
    "--stand-in", is_flag=True, help="Try the programs on the CPU; measures the cores at most."
)
@click.option("--results", type=click.Path(path_type=Path), help="The file for the figures.")
@click.option("--commit", help="What is measured, where the folder is no clone.")
def main(
    workloads: str, size: str, results: Path | None, commit: str | None, *, stand_in: bool
) -> None:
    """Run the workloads, print a line for each case, and write the figures."""
    unknown = set(workloads.split(",")) - WORKLOADS.keys()
    if unknown:
        msg = f"unknown workloads: {', '.join(sorted(unknown))}. There are {', '.join(WORKLOADS)}."
        raise click.ClickException(msg)
    on, card = device(stand_in=stand_in)
    facts: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "card": card,
        "commit": commit or checked_out(),
        "size": size,
        "machine": machine_facts(),
        "versions": versions(),
    }
    target = results or (None if stand_in else FIGURES)
    found: dict[str, dict[str, Any]] = {}
    cores = len(os.sched_getaffinity(0))
    os.environ["BENCH_DEVICE"] = on
    for name in workloads.split(","):
        # In memory where there is room: a disk is not what is measured.
        with tempfile.TemporaryDirectory() as folder:
            try:
                for figure in WORKLOADS[name](Bench(Path(folder), SIZES[size], on, cores)):
                    # Whether a stand-in meets a goal says nothing.
                    shown = figure._replace(goals={}) if stand_in else figure
                    click.echo(f"{name}: {told(shown)}")
                    found.setdefault(name, {})[figure.name] = shown._asdict()
                    if target is not None:  # at once: a machine is lent for minutes
                        text = json.dumps({**facts, "workloads": found}, indent=2)
                        target.write_text(text + "\n")
            except WrongOutputError as error:
                msg = f"{name}: {error}"
                raise click.ClickException(msg) from error


if __name__ == "__main__":
    main()
