"""The command: `python -m benchmarks run`, `python -m benchmarks show`, and `page`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

from benchmarks import environments, peer_list, phases, store_reads, tables, workloads
from benchmarks.peer_list import HOME, ROOT
from benchmarks.phases import PROFILER, Profiles
from benchmarks.results import Results
from benchmarks.session import Session

T = TypeVar("T")
EXPLANATION = ROOT / "docs" / "explanation"
SHORT, TABLES, PHASES = (
    EXPLANATION / name
    for name in ("performance.md", "performance-tables.md", "inside-performance.md")
)
FIGURES, CLUSTER_FIGURES, PROFILES = "", "_cluster", "_profiles"
"""What there is to publish, as it stands in the names of files."""


def latest(kind: str) -> Path:
    """Return the file of the latest results."""
    return HOME / f"latest{kind}.json"


def published(kind: str) -> Path:
    """Return the file of the results that the pages show."""
    return ROOT / "benchmarks" / f"published{kind}.json"


PROFILED = ("nothing-100k", "parquet-1mb", "csv", "arrays", "keys", "frame")


@dataclass(frozen=True, slots=True)
class Preset:
    """A choice of peers, workloads and sizes; `kind` is that of the results."""

    peers: tuple[str, ...]
    workloads: tuple[str, ...]
    scale: float
    repeats: int
    limit_s: float
    kind: str = FIGURES


ALONE = tuple(one.name for one in workloads.WORKLOADS if not one.on_cluster)
QUICK = Preset(
    peers=("limit", "daskprs", "multiprocessing", "joblib", "mpire", "dask-futures"),
    workloads=tuple(name for name in ALONE if name not in {"nothing-1m", "parquet-10mb", "faults"}),
    scale=0.1,
    repeats=3,
    limit_s=60,
)
FULL = Preset(
    peers=tuple(peer_list.BY_NAME),
    workloads=tuple(name for name in ALONE if name != "nothing-1m"),
    scale=1,
    repeats=3,
    limit_s=300,
)
CLUSTER = Preset(
    peers=workloads.CLUSTERS,
    workloads=tuple(one.name for one in workloads.WORKLOADS if one.on_cluster),
    scale=1,
    repeats=3,
    limit_s=300,
    kind=CLUSTER_FIGURES,
)
PRESETS = {"quick": QUICK, "full": FULL, "cluster": CLUSTER}


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
@click.option("--processes", type=click.IntRange(1), help="At a time; default: the cores.")
@click.option("--output", type=click.Path(path_type=Path), help="Raw results.")
def run(
    preset: str,
    peers: str | None,
    works: str | None,
    scale: float | None,
    repeats: int | None,
    limit_s: float | None,
    processes: int | None,
    output: Path | None,
) -> None:
    """Run whole processes in turns, check their outputs, print medians and ratios."""
    chosen = PRESETS[preset]
    session = Session(
        peers=[_named(peer_list.BY_NAME, name) for name in _names(peers, chosen.peers)],
        workloads=[_named(workloads.BY_NAME, name) for name in _names(works, chosen.workloads)],
        scale=scale or chosen.scale,
        repeats=repeats or chosen.repeats,
        limit_s=limit_s or chosen.limit_s,
        processes=processes,
    )
    output = output or latest(chosen.kind)
    output.parent.mkdir(parents=True, exist_ok=True)
    click.echo(tables.everything(session.run(output)))
    click.echo(f"\nThe raw results: {output}")


@main.command()
@click.argument("results", type=click.Path(path_type=Path), default=latest(FIGURES))
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
    found.save(latest(PROFILES))
    click.echo(tables.phases(found))


@main.command("store-reads")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True)
def store_reads_command(repeats: int) -> None:
    """Fetch objects that are 100 ms away, and compare with fsspec's own get; prints medians."""
    click.echo(store_reads.table(list(store_reads.reads(repeats))))


@main.command()
def publish() -> None:
    """Put the latest results and profiles into the documentation, and keep the raw ones."""
    for kind in (FIGURES, CLUSTER_FIGURES, PROFILES):
        if latest(kind).exists():
            shutil.copyfile(latest(kind), published(kind))
            click.echo(f"The documentation shows {latest(kind).relative_to(ROOT)}.")
    for page, text in published_pages().items():
        page.write_text(text)


def published_pages() -> dict[Path, str]:
    """Return the pages of the documentation with the figures of what is published."""
    alone, clusters = (Results.load(published(kind)) for kind in (FIGURES, CLUSTER_FIGURES))
    profiles = Profiles.load(published(PROFILES))
    texts = {
        SHORT: {
            "summary": tables.summary(alone, "daskprs"),
            "summary of clusters": tables.summary(clusters, "daskprs-cluster"),
        },
        TABLES: {
            "figures": tables.everything(alone),
            "figures of clusters": tables.everything(clusters),
        },
        PHASES: {"phases": tables.phases(profiles)},
    }
    pages = {page: page.read_text() for page in texts}
    for page, marks in texts.items():
        for mark, text in marks.items():
            pages[page] = tables.page_with(pages[page], mark, text)
    return pages


def _names(given: str | None, default: tuple[str, ...]) -> list[str]:
    return given.split(",") if given else list(default)


def _named(known: dict[str, T], name: str) -> T:
    if name not in known:
        msg = f"{name!r} is none of {', '.join(known)}"
        raise click.BadParameter(msg)
    return known[name]


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
