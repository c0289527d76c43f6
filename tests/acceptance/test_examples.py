"""The examples do what they say, as `make demo` runs them, but in one process.

Each process would import scikit-learn: `test_make.py` has the demo with agents, which is long.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path

import pandas as pd
import pytest
from distributed import Client, Worker

INLINE = "DASK_DASKPRS__START_METHOD"
IN_ONE_PROCESS = """
import runpy, subprocess, sys

def run(words, check=False, **of_others):
    if of_others:  # of a package that is imported, such as NumPy
        return plain_run(words, check=check, **of_others)
    own, sys.argv = sys.argv, words[2:] if words[1] == "-m" else words[1:]
    try:
        if words[1] == "-m":
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[1], run_name="__main__")
    except SystemExit as end:
        assert not (check and end.code), end
    finally:
        sys.argv = own

plain_run = subprocess.run
subprocess.run = run  # what the demo starts runs here: each start would import scikit-learn
runpy.run_path(sys.argv[1], run_name="__main__")
"""
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return what the demo said, and the folder that it filled."""
    folder = tmp_path_factory.mktemp("demo")
    path = os.pathsep.join([str(EXAMPLES.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, str(EXAMPLES / "demo.py")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path.strip(os.pathsep), INLINE: "inline"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, folder / "demo-output"


@pytest.mark.long
def test_the_digits_are_those_that_a_plain_loop_reads(demo: tuple[str, Path]) -> None:
    """Every picture is in the output once, in order, with what the model says of it."""
    folder = demo[1] / "digits"
    sys.path.insert(0, str(EXAMPLES / "digits"))
    try:
        import score
    finally:
        sys.path.pop(0)
    score.model = pickle.loads((folder / "model.pickle").read_bytes())
    pictures = sorted(map(str, (folder / "images").iterdir()))

    scored = pd.concat([score.run(pictures[at : at + 25]) for at in range(0, len(pictures), 25)])

    assert (folder / "output" / "predictions.csv").read_text() == scored.to_csv(index=False)


@pytest.mark.long
def test_each_scan_is_judged_among_those_of_its_label(demo: tuple[str, Path]) -> None:
    """Labels come in order of first appearance, each with all its scans, the oddest first."""
    folder = demo[1] / "odd-ones-out"
    table = pd.read_csv(folder / "digits.csv")
    judged = pd.read_csv(folder / "output" / "odd.csv")
    assert list(judged["label"].unique()) == list(table["label"].unique())
    for label, rows in judged.groupby("label"):
        assert sorted(rows["scan"]) == list(table.loc[table["label"] == label, "scan"])
        assert rows["oddness"].is_monotonic_decreasing


def test_the_demo_shows_output_and_logs(demo: tuple[str, Path]) -> None:
    """It shows the first lines of each output, and where the logs are."""
    said, folder = demo
    assert said.count("daskprs job Completed") == 2
    for job, name in [("digits", "predictions.csv"), ("odd-ones-out", "odd.csv")]:
        first = (folder / job / "output" / name).read_text().splitlines()[:5]
        assert "\n  ".join(["", *first]) in said
        logs = Path("demo-output") / job / "job" / "logs"
        assert str(logs) in said
        assert (folder.parent / logs / "readme.txt").exists()


def test_two_groups_of_workers_share_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are those of a plain loop, in order."""
    monkeypatch.syspath_prepend(EXAMPLES / "two_groups")
    import embed
    import two_groups

    with two_groups.two_groups(Worker) as cluster, Client(cluster) as client:
        client.wait_for_workers(3)
        rows = two_groups.embedded(client, 200)
    texts = [zlib.compress((word * 200_000).encode()) for word in two_groups.WORDS] * 50
    embed.init()
    scored = embed.run(embed.decode(pd.DataFrame({"text": texts})))
    assert list(rows["text"]) == list(range(200))
    assert list(rows["score"]) == list(scored["scores"])
