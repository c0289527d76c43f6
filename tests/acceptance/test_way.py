"""The modules that a mini-batch and its rows pass, as the page says and as a job does it."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client

import daskprs
from daskprs._core import leasing, settling
from daskprs._inputs import parquet

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "inside-path.md"
THERE, BACK = "### From the plan to `run`", "### From a row to the file"
MOST_THERE, MOST_BACK = 19, 18
BELOW = {
    "daskprs._api",
    "daskprs._job.job",
    "daskprs._job.job_input",
    "daskprs._job.publisher",
    "daskprs._agent.supervision.zygote_main",
}
"""Where the steps of the driver and an agent's loop begin, which the page says beforehand."""
SCRIPT = """\
import os
from multiprocessing.connection import Connection
from tests.acceptance.test_way import Way
from daskprs._inputs import parquet

WAY = Way({folder!r})


class Row:
    def __str__(self):
        WAY.record("back")
        return "row"


def init():
    WAY.watch(Connection, "recv", "there")
    WAY.watch(parquet.RowGroupReader, "load", "there", "daskprs._inputs.parquet")
    WAY.watch(Connection, "send", "back", below="Outbox")
    WAY.watch(os, "pwrite", "back", below="Outbox")


def run(mini_batch):
    WAY.record("there")
    return [Row()]
"""


class Way:
    """Writes down the modules of daskprs on the stack whenever a function is called.

    Parameters
    ----------
    folder
        Where each process writes a file of its own.

    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def watch(
        self, owner: Any, name: str, way: str, *modules: str, below: str = ""
    ) -> tuple[Any, str, Callable[..., Any]]:
        """Record the stack at each call of a function, if a class or function is below it."""
        inner = getattr(owner, name)

        def watched(*given: Any, **named: Any) -> Any:
            self.record(way, *modules, below=below)
            return inner(*given, **named)

        setattr(owner, name, watched)
        return owner, name, inner

    def record(self, way: str, *modules: str, below: str = "") -> None:
        """Write down the modules on the stack, and some more."""
        frame, found, names = sys._getframe(1), set(modules), []
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.startswith("daskprs."):
                found.add(module)
                names.append(f"{type(frame.f_locals.get('self')).__name__}.{frame.f_code.co_name}")
            frame = frame.f_back  # type: ignore[assignment]
        if any(below in name for name in names):
            with Path(self._folder, str(os.getpid())).open("a") as file:
                file.write(json.dumps([way, sorted(found - BELOW)]) + "\n")

    def modules(self, way: str) -> set[str]:
        """Return the modules that were found on a way."""
        lines = [
            json.loads(line)
            for path in Path(self._folder).iterdir()
            for line in path.read_text().splitlines()
        ]
        return {module for kind, modules in lines if kind == way for module in modules}


def listed(heading: str) -> list[str]:
    """Return the modules that the page lists under a heading, in order."""
    section = PAGE.read_text().partition(f"{heading}\n")[2].partition("\n#")[0]
    return [f"daskprs.{name}" for name in re.findall(r"^\d+\. `([\w.]+)`", section, re.MULTILINE)]


def test_the_page_lists_the_modules_that_a_mini_batch_and_its_rows_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each place where a mini-batch, its lease, its outcome or its rows are handed on."""
    folder = tmp_path / "way"
    folder.mkdir()
    way = Way(str(folder))
    watched = [
        (parquet, "MiniBatch", "there", ""),
        (leasing, "Submit", "there", ""),
        (Client, "submit", "there", ""),
        (os, "write", "there", "run_lease"),
        (os, "readv", "back", "run_lease"),
        (Client, "gather", "back", ""),
        (settling, "Commit", "back", ""),
        (os, "pwrite", "back", "ResultStore.commit"),
        (os, "preadv", "back", "OrderedText"),
        (os, "replace", "back", "ResultStore"),
    ]
    for owner, name, kind, below in watched:
        monkeypatch.setattr(owner, name, getattr(owner, name))  # undone after the test
        way.watch(owner, name, kind, below=below)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    script = tmp_path / "code" / "script.py"
    script.parent.mkdir()
    script.write_text(SCRIPT.format(folder=str(folder)))
    pq.write_table(pa.table({"n": range(40)}), tmp_path / "in.parquet")
    result = daskprs.parallel_run(
        tmp_path / "in.parquet",
        script,
        mini_batch_size="1 KB",
        job_dir=tmp_path / "job",
        output_dir=tmp_path / "out",
        process_count_per_node=1,
        progress=False,
    )
    assert Path(str(result.output_file)).read_text() == "row\n" * result.mini_batches.succeeded
    assert sorted(listed(THERE)) == sorted(way.modules("there"))
    assert sorted(listed(BACK)) == sorted(way.modules("back"))
    assert len(listed(THERE)) <= MOST_THERE
    assert len(listed(BACK)) <= MOST_BACK
