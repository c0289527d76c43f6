"""The command: `python -m benchmarks run`, `python -m benchmarks show`, and `page`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

from benchmarks import environments, peer_list, phases, tables, workloads
from benchmarks.peer_list import HOME, ROOT
from benchmarks.phases import PROFILER, Profiles
from benchmarks.results import Results
from benchmarks.session import Session

T = TypeVar("T")
PAGE = ROOT / "docs" / "explanation" / "performance.md"
PUBLISHED = ROOT / "benchmarks" / "published.json"
PUBLISHED_PROFILES = ROOT / "benchmarks" / "published_profiles.json"
LATEST = HOME / "latest.json"
LATEST_PROFILES = HOME / "latest_profiles.json"
PROFILED = ("nothing-100k", "parquet-1mb", "csv", "arrays", "keys", "frame")


@dataclass(frozen=True, slots=True)
class Preset:
    """A choice of peers, workloads and sizes."""

    peers: tuple[str, ...]
    workloads: tuple[str, ...]
    scale: float
    repeats: int
    limit_s: float


QUICK = Preset(
    peers=("limit", "daskprs", "multiprocessing", "joblib", "mpire", "dask-futures"),
    workloads=tuple(
        name for name in workloads.BY_NAME if name not in {"nothing-1m", "parquet-10mb", "faults"}
    ),
    scale=0.1,
    repeats=3,
    limit_s=60,
)
FULL = Preset(
    peers=tuple(peer_list.BY_NAME),
    workloads=tuple(name for name in workloads.BY_NAME if name != "nothing-1m"),
    scale=1,
    repeats=3,
    limit_s=300,
)
PRESETS = {"quick": QUICK, "full": FULL}


@click.group()
def main() -> None:
    """Measure daskprs beside its peers."""


@main.command()
@click.option("--preset", type=click.Choice(list(PRESETS)), default="quick", show_default=True)
@click.option("--peers", help="Names with commas between them; default: the preset's.")
@click.option("--workloads", "works", help="The same for workloads.")
@click.option("--scale", type=click.FloatRange(0, min_open=True), help="Of the data; 1 is full.")
@click.option("--repeats", type=click.IntRange(1), help="Runs of each peer on each workload.")
@click.option("--limit-s", type=float, help="What takes longer is ended, and counts as hanging.")
@click.option("--output", type=click.Path(path_type=Path), default=LATEST, help="Raw results.")
def run(
    preset: str,
    peers: str | None,
    works: str | None,
    scale: float | None,
    repeats: int | None,
    limit_s: float | None,
    output: Path,
) -> None:
    """Run whole processes in turns, check their outputs, print medians and ratios."""
    chosen = PRESETS[preset]
    session = Session(
        peers=[_named(peer_list.BY_NAME, name) for name in _names(peers, chosen.peers)],
        workloads=[_named(workloads.BY_NAME, name) for name in _names(works, chosen.workloads)],
        scale=scale or chosen.scale,
        repeats=repeats or chosen.repeats,
        limit_s=limit_s or chosen.limit_s,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    click.echo(tables.everything(session.run(output)))
    click.echo(f"\nThe raw results: {output}")


@main.command()
@click.argument("results", type=click.Path(path_type=Path), default=LATEST)
def show(results: Path) -> None:
    """Print the tables of raw results."""
    click.echo(tables.everything(Results.load(results)))


@main.command()
@click.option("--workloads", "works", help="Names with commas between them.")
@click.option("--scale", type=click.FloatRange(0, min_open=True), default=0.25, show_default=True)
def profile(works: str | None, scale: float) -> None:
    """Sample where the time goes, of daskprs and of the hand-written loop."""
    environments.main([PROFILER])
    session = Session(
        peers=[peer_list.BY_NAME["limit"], peer_list.BY_NAME["daskprs"]],
        workloads=[workloads.BY_NAME[name] for name in _names(works, PROFILED)],
        scale=scale,
        repeats=1,
        limit_s=FULL.limit_s,
    )
    found = phases.profiles(session)
    found.save(LATEST_PROFILES)
    click.echo(tables.phases(found))


@main.command()
def publish() -> None:
    """Put the latest results and profiles into the documentation, and keep the raw ones."""
    for latest, published in ((LATEST, PUBLISHED), (LATEST_PROFILES, PUBLISHED_PROFILES)):
        if latest.exists():
            shutil.copyfile(latest, published)
    PAGE.write_text(published_page())
    click.echo(f"{PAGE.relative_to(ROOT)} shows the results of {Results.load(PUBLISHED).date}.")


def published_page() -> str:
    """Return the page of the documentation with the figures of what is published."""
    page = PAGE.read_text()
    page = tables.page_with(page, "figures", tables.everything(Results.load(PUBLISHED)))
    return tables.page_with(page, "phases", tables.phases(Profiles.load(PUBLISHED_PROFILES)))


def _names(given: str | None, default: tuple[str, ...]) -> list[str]:
    return given.split(",") if given else list(default)


def _named(known: dict[str, T], name: str) -> T:
    if name not in known:
        msg = f"{name!r} is none of {', '.join(known)}"
        raise click.BadParameter(msg)
    return known[name]


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
