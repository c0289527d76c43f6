"""The pictures of the documentation, drawn from what daskprs really does.

``python -m tests.support.pictures`` draws them anew; names after it draw only these.
"""

from __future__ import annotations

import re
import sys
import tempfile
from contextlib import chdir
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

import daskprs
from tests.support.drawing import LINE_PX, Drawing
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

IMAGES = Path(__file__).parents[2] / "docs" / "images"
ORDERS = {"order": range(1, 13), "price": [3, 8, 5, 9, 2, 7, 4, 6, 1, 9, 5, 8]}
MINI_BATCH_BYTES = 24
COLUMNS, HALF, BAR = 190, 0.55, "━"
"""Of the terminal; the share of its work that it has done; what its bar is made of."""
CHARACTER_PX = 7.83
"""Width of a character of the class `mono`."""
SCORE = """\
import time
from pathlib import Path


def run(mini_batch):
    for path in map(Path, mini_batch):
        time.sleep(0.01)
        tried = path.parents[1] / "tried"
        if path.name == "0950.pgm" and not tried.exists():
            tried.touch()
            raise ValueError(f"{path.name} is not a whole PGM picture")
    return mini_batch
"""
COLORS = ("blue", "green", "amber")


def job() -> str:
    """Draw the processes of a job, and what they pass to each other."""
    drawing = Drawing(860, 330, "The processes of a job, and what they pass to each other")
    drawing.labelled(30, 40, 190, 90, "driver\nledger, journal, output", "blue")
    drawing.labelled(335, 40, 190, 90, "scheduler of Dask", "plain")
    drawing.arrow((220, 70), (335, 70))
    drawing.text(277, 62, "leases", "quiet small", middle=True)
    drawing.arrow((335, 105), (220, 105))
    drawing.text(277, 124, "outcomes", "quiet small", middle=True)
    drawing.box(640, 24, 190, 282, "plain")
    drawing.text(735, 46, "worker of Dask", "text bold", middle=True)
    for y in (60, 184):
        drawing.labelled(656, y, 158, 34, "slot", "plain")
        drawing.labelled(656, y + 60, 158, 44, "agent\nruns your script", "green")
        drawing.arrow((735, y + 34), (735, y + 60), both=True)
    drawing.arrow((525, 85), (640, 85), both=True)
    drawing.labelled(30, 210, 190, 76, "output\none file, in input order", "amber")
    drawing.labelled(335, 210, 190, 76, "job folder\nspools, journal, logs", "amber")
    drawing.arrow((640, 248), (525, 248))
    drawing.text(582, 240, "rows", "quiet small", middle=True)
    drawing.arrow((125, 130), (125, 210))
    drawing.text(135, 176, "publishes", "quiet small")
    drawing.arrow((200, 130), (365, 210))
    drawing.text(298, 168, "commits", "quiet small")
    drawing.arrow((335, 248), (220, 248))
    drawing.text(277, 240, "copied", "quiet small", middle=True)
    return drawing.svg()


def plan() -> str:
    """Draw how a file is cut, as `daskprs.plan` says, with the rows that agents would read."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        pd.DataFrame(ORDERS).to_csv("orders.csv", index=False)
        lines = Path("orders.csv").read_text().splitlines(keepends=True)
        made = daskprs.plan("orders.csv", mini_batch_size=MINI_BATCH_BYTES)
        table = made.to_pandas()
        parts = made.to_dask_dataframe()
        rows = [parts.get_partition(number).compute() for number in table["mini_batch"]]
    row_px, top = 22, 74
    height = top + row_px * len(lines) + 24
    drawing = Drawing(780, height, "A text file of twelve rows, cut into three mini-batches")
    drawing.text(90, 40, "orders.csv", "text bold")
    drawing.text(30, 60, "byte", "quiet small")
    drawing.text(330, 40, f"mini_batch_size={MINI_BATCH_BYTES}", "text bold")
    drawing.text(560, 40, "run(mini_batch) gets", "text bold")
    numbers = [len(part) for part in rows]
    owners = [None, *(n for n, count in enumerate(numbers) for _ in range(count))]
    at = 0
    for number, (line, owner) in enumerate(zip(lines, owners, strict=True)):
        y = top + number * row_px
        if owner is not None:
            drawing.box(82, y - 1, 150, row_px - 2, COLORS[owner])
        drawing.text(30, y + 15, str(at), "quiet mono")
        drawing.text(92, y + 15, line.rstrip(), "text mono" if owner is not None else "quiet mono")
        at += len(line)
    first = 1
    for number, label in enumerate(table["label"]):
        y, tall = top + first * row_px, numbers[number] * row_px
        middle = y + tall // 2
        drawing.labelled(330, middle - 26, 190, 48, f"mini-batch {number}", COLORS[number])
        drawing.arrow((236, middle - 2), (326, middle - 2))
        orders = rows[number]["order"]
        drawing.arrow((520, middle - 2), (556, middle - 2))
        drawing.text(560, middle - 4, label, "quiet small")
        shown = f"{len(orders)} rows: order {orders.iloc[0]} to {orders.iloc[-1]}"
        drawing.text(560, middle + 14, shown)
        first += numbers[number]
    return drawing.svg()


def lease() -> str:
    """Draw the states of a mini-batch, from the plan to its end."""
    drawing = Drawing(900, 330, "The states of a mini-batch: waiting, leased, running, committed")
    x = {"waiting": 30, "leased": 205, "running": 380, "succeeded": 555, "committed": 730}
    words = {
        "waiting": "waiting\nin the plan",
        "leased": "leased\nby a slot",
        "running": "running\nloaded, in run",
        "succeeded": "succeeded\nrows in the spool",
        "committed": "committed\nin the journal",
    }
    kinds = {"running": "blue", "committed": "green"}
    for name, left in x.items():
        drawing.labelled(left, 120, 140, 60, words[name], kinds.get(name, "plain"))
    for left in list(x.values())[1:]:
        drawing.arrow((left - 35, 150), (left, 150))
    drawing.arrow((450, 120), (450, 76), (120, 76), (120, 120))
    drawing.arrow((275, 120), (275, 78))
    drawing.text(130, 48, "taken back before it ran, or the worker was lost:", "quiet small")
    drawing.text(130, 66, "no try is counted", "quiet small")
    drawing.labelled(380, 236, 140, 60, "failed\nor timed out", "amber")
    drawing.arrow((450, 180), (450, 236))
    drawing.arrow((380, 266), (100, 266), (100, 180))
    drawing.text(130, 258, "retried: tries are left", "quiet small")
    drawing.labelled(730, 236, 140, 60, "given up\ncounts as failed", "red")
    drawing.arrow((520, 266), (730, 266))
    drawing.text(552, 258, "run_max_try is reached", "quiet small")
    return drawing.svg()


def notebook() -> str:
    """Draw a cell of a notebook with a result, as the result describes itself in HTML."""
    code = (
        "result = daskprs.parallel_run(orders, add_tax, allowed_failed_count=1,\n"
        '                              mini_batch_size=48, job_dir="orders-job")\n'
        "result"
    )
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        result = daskprs.parallel_run(
            pd.DataFrame(ORDERS),
            _add_tax,
            allowed_failed_count=1,
            mini_batch_size=48,
            job_dir="orders-job",
            progress=False,
        )
        table = _Table(result._repr_html_())
        here = Path.cwd()
    row_px = 24
    top = 120
    height = top + 48 + row_px * len(table.rows) + 16
    drawing = Drawing(820, height, "A result in a notebook: status, counts, time, and its files")
    drawing.text(24, 40, "In [1]:", "quiet mono")
    drawing.box(100, 20, 700, 66, "plain")
    drawing.text(112, 40, code, "text mono")
    drawing.text(24, top + 18, "Out[1]:", "quiet mono")
    drawing.text(108, top + 18, table.caption, "text bold")
    for number, (name, value) in enumerate(table.rows):
        y = top + 36 + number * row_px
        if number % 2 == 0:
            drawing.box(100, y, 700, row_px, "plain")
        drawing.text(108, y + 17, name, "text bold")
        drawing.text(240, y + 17, value.replace(f"{here}/", ""))
    return drawing.svg()


def run() -> str:
    """Draw a terminal in the middle of a run, after the first error of the script."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("pictures").mkdir()
        for number in range(898, 1797):
            Path(f"pictures/{number:04}.pgm").write_text("P2 1 1 15 0\n")
        Path("score.py").write_text(SCORE)
        program = str(Path(sys.executable).with_name("daskprs"))
        arguments = ["run", "score.py", "pictures/", "--job-dir", "job"]
        with Terminal([program, *arguments], columns=COLUMNS) as terminal:
            terminal.read_until(lambda: _share(terminal.screen.lines) >= HALF)
            lines = [line.replace(f"{Path.cwd()}/", "") for line in terminal.screen.lines if line]
            terminal.read_to_the_end()
    width = 48 + round(max(map(len, lines)) * CHARACTER_PX)
    height = 40 + (len(lines) + 1) * LINE_PX
    drawing = Drawing(width, height, "A run in a terminal: the first error, and the progress")
    drawing.text(24, 36, f"$ daskprs {' '.join(arguments)}", "text mono bold")
    for number, line in enumerate(lines, 1):
        y = 36 + number * LINE_PX
        bar, rest = BAR * line.count(BAR), line.replace(BAR, "")
        drawing.text(24, y, " " * len(bar) + rest, "text mono")
        if bar:
            done = round(len(bar) * _share([line]))
            drawing.text(24, y, " " * done + bar[done:], "quiet mono")
            drawing.text(24, y, bar[:done], "good mono")
    return drawing.svg()


def _share(lines: list[str]) -> float:
    """Return the share of the mini-batches that are done, as the progress shows it."""
    found = re.findall(r"(\d+)/90 mini-batches", "\n".join(lines))
    return int(found[-1]) / 90 if found else 0.0


def _add_tax(rows: pd.DataFrame) -> pd.DataFrame:
    if 5 in rows["order"].to_numpy():
        message = "order 5 has no tax"
        raise ValueError(message)
    return rows.assign(tax=rows["price"] / 5)


class _Table(HTMLParser):
    """The caption and the rows of a table in HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.caption = ""
        self.rows: list[list[str]] = []
        self._cell: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - of the class
        """Begin a row or a cell."""
        if tag == "tr":
            self.rows.append([])
        elif tag in {"caption", "th", "td"}:
            self._cell = []

    def handle_data(self, data: str) -> None:
        """Take the text of a cell."""
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag: str) -> None:
        """End a cell."""
        if tag == "caption":
            self.caption = "".join(self._cell or [])
        elif tag in {"th", "td"}:
            self.rows[-1].append("".join(self._cell or []))
        if tag in {"caption", "th", "td"}:
            self._cell = None


FIXED: dict[str, Callable[[], str]] = {"job": job, "plan": plan, "lease": lease}
"""Pictures that are the same in each run."""
OF_A_RUN: dict[str, Callable[[], str]] = {"notebook": notebook, "run": run}
"""Pictures with times in them."""


def main(names: list[str]) -> None:
    """Draw some pictures, or all."""
    drawn = FIXED | OF_A_RUN
    for name in names or drawn:
        (IMAGES / f"{name}.svg").write_text(drawn[name]())


if __name__ == "__main__":
    main(sys.argv[1:])
