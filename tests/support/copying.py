"""A job that copies the content of files, fails at some, and notes which it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import daskprs

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
from pathlib import Path


HERE = Path({home!r})


def run(paths):
    rows = []
    for path in map(Path, paths):
        with (HERE / "ran").open("a") as ran:
            ran.write(path.name + "\\n")
        if (HERE / "bad" / path.name).exists():
            raise ValueError(f"{{path.name}} is bad")
        rows.append(f"{{path.name}} {{path.read_text()}}")
    return rows
"""


class Place:
    """Files, a script that says which of them it has seen, and jobs over them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.input = home / "in"
        self.script = home / "script" / "copy.py"
        for folder in (self.input, home / "bad", self.script.parent):
            folder.mkdir()
        self.script.write_text(SCRIPT.format(home=str(home)))

    def add(self, *names: str) -> None:
        """Add files to the input."""
        for name in names:
            (self.input / name).write_text(f"content of {name}")

    def spoil(self, *names: str) -> None:
        """Make the script fail at files."""
        for name in names:
            (self.home / "bad" / name).touch()

    def mend(self) -> None:
        """Make it fail no more."""
        for path in (self.home / "bad").iterdir():
            path.unlink()

    def ran(self) -> list[str]:
        """Return which files were given to the script since the last call."""
        path = self.home / "ran"
        names = sorted(path.read_text().split()) if path.exists() else []
        path.unlink(missing_ok=True)
        return names

    def run(self, **options: Any) -> daskprs.ParallelRunResult:
        """Run the job, or go on with it."""
        given = {
            "job_dir": self.home / "job",
            "output_dir": self.home / "out",
            "mini_batch_size": 1,
            "process_count_per_node": 2,
            "allowed_failed_count": -1,
            "run_max_try": 2,
            "progress": False,
        }
        return daskprs.parallel_run(str(self.input), self.script, **(given | options))

    @property
    def failed(self) -> Path:
        """The table of what failed."""
        return self.home / "job" / "failed.parquet"

    def output(self) -> str:
        """Return what is published."""
        return (self.home / "out" / "parallel_run_step.txt").read_text()

    def serial(self) -> str:
        """Return what a serial run over the input writes."""
        return "".join(
            f"{path.name} {path.read_text()}\n"
            for path in sorted(self.input.iterdir())
            if not (self.home / "bad" / path.name).exists()
        )
