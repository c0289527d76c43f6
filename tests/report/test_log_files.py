"""Log files: buffered, whole lines, and no memory taken when they cannot be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daskprs._report.log_files import LogFile, LogFiles
from tests.support.job_events import job_ended, stood

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def test_a_new_file_has_one_header(tmp_path: Path) -> None:
    """Whoever goes on with it adds none."""
    path = tmp_path / "new" / "table.csv"
    for row in ("1\n", "2\n"):
        file = LogFile(path, "a\n")
        file.write(row)
        file.flush()
    assert path.read_text() == "a\n1\n2\n"


def test_what_has_nothing_to_say_is_not_made(tmp_path: Path) -> None:
    """Not even with a header."""
    LogFile(tmp_path / "table.csv", "a\n").flush()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("found", "left"),
    [("a\n1\n2", "a\n1\n"), ("a", "a\n"), ("", "a\n"), ("a\n1\n", "a\n1\n")],
)
def test_a_torn_line_is_cut_by_the_next_driver(tmp_path: Path, found: str, left: str) -> None:
    """A killed one leaves half a row, and what follows must be a row of its own."""
    path = tmp_path / "table.csv"
    path.write_text(found)
    file = LogFile(path, "a\n")
    file.write("9\n")
    file.flush()
    assert path.read_text() == f"{left}9\n"


def test_lines_wait_for_a_second_and_not_longer(tmp_path: Path) -> None:
    """A file is opened once a second, not once a line."""
    clock, path = Clock(), tmp_path / "log.txt"
    files = LogFiles(clock)
    files.file(path).write("1\n")
    clock.now_s += 0.9
    files.tell(stood())
    assert not path.exists()
    clock.now_s += 0.1
    files.tell(stood())
    assert path.read_text() == "1\n"
    files.file(path).write("2\n")
    files.tell(job_ended())
    assert path.read_text() == "1\n2\n"


def test_files_that_cannot_be_written_cost_no_memory(tmp_path: Path) -> None:
    """It raises once, and forgets what it is given from then on."""
    (tmp_path / "no_folder").touch()
    clock = Clock()
    files = LogFiles(clock)
    file = files.file(tmp_path / "no_folder" / "log.txt")
    file.write("1\n")
    clock.now_s += 1
    with pytest.raises(OSError, match="no_folder"):
        files.tell(stood())
    for one in (file, files.file(tmp_path / "later.txt")):
        one.write("2\n")
    files.close()
    assert not (tmp_path / "later.txt").exists()
