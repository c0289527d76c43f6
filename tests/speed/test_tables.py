"""The page of the documentation shows what was measured, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import tables
from benchmarks.__main__ import published_pages
from benchmarks.results import Results, Run

if TYPE_CHECKING:
    from pathlib import Path


def test_the_pages_show_the_published_results() -> None:
    """No figure was changed by hand."""
    pages = published_pages()
    assert len(pages) == 3
    assert {page: page.read_text() for page in pages} == pages


def test_the_summary_has_the_fastest_library_that_passed() -> None:
    """It leaves out the loop by hand, daskprs itself, and wrong outputs."""
    results = Results(scale=1, repeats=1, titles={"w": "work"}, versions={}, unavailable={})
    results.runs += [_run("limit", 0, 1.0), _run("daskprs", 0, 3.0), _run("joblib", 0, 2.0)]
    results.runs += [_run("daskprs-cluster", 0, 1.5), _run("mpire", 0, 0.1, "wrong output")]
    assert "| work | 1.0 | 3.0 | joblib: 2.0 | 1.5 |" in tables.summary(results, "daskprs")


def test_ratios_are_of_runs_of_the_same_turn(tmp_path: Path) -> None:
    """A turn on a busy machine was slow for both; a wrong output does not count."""
    results = Results(
        scale=1, repeats=3, titles={"w": "work"}, versions={}, unavailable={"ray": "no wheel"}
    )
    for repeat, seconds in enumerate([1.0, 10.0, 2.0]):
        results.runs.append(_run("limit", repeat, seconds))
        results.runs.append(_run("daskprs", repeat, seconds * 1.5))
    results.runs.append(_run("mpire", 0, 0.1, "wrong output: 3 rows"))
    results.save(tmp_path / "results.json")
    loaded = Results.load(tmp_path / "results.json")
    assert loaded == results
    ratios = loaded.ratios("w", "daskprs")
    assert ratios is not None
    assert (ratios.least, ratios.most) == (1.5, 1.5)
    assert "| work | 2.0 | 3.0 (1.5) | ✗ |" in tables.seconds(loaded)
    problems = tables.problems(loaded)
    assert "wrong output: 3 rows" in problems
    assert "no wheel" in problems


def _run(peer: str, repeat: int, seconds: float, problem: str | None = None) -> Run:
    return Run(
        workload="w",
        peer=peer,
        repeat=repeat,
        wall_s=seconds,
        seconds=seconds,
        cpu_s=seconds,
        peak_pss_bytes=1 << 20,
        load_before=0.0,
        problem=problem,
    )
