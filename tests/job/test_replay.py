"""When a replay calls two errors the same: they differ in numbers and folders at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from daskprs._core.outcomes import Failure
from daskprs._job.replay import is_same

FOLDERS = Path("/jobs/score"), Path("/scratch/daskprs-debug-1/job")


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        ("<Model at 0x7f12ab> is closed", "<Model at 0x7fffe0> is closed", True),
        (
            "/jobs/score/work/0/process001/a",
            "/scratch/daskprs-debug-1/job/work/0/process000/a",
            True,
        ),
        ("it has 1.5 GB", "it has 900 MB", True),
        (
            "run() exceeded 2 s, which was killed after 2.1 s in a.py, line 3, in run: wait()",
            "run() exceeded 2 s, which was killed after 2.0 s in b.py, line 9, in get: read()",
            True,
        ),
        ("column 'a' is missing", "column 'b' is missing", False),
        ("loading exceeded 1 s", "run() exceeded 1 s", False),
        ("returncode -11 (SIGSEGV)", "returncode -6 (SIGABRT)", False),
    ],
)
def test_errors_are_the_same_but_for_numbers(then: str, now: str, *, same: bool) -> None:
    """Their classes have to be equal, too."""
    assert is_same(Failure("E", then), Failure("E", now), *FOLDERS) is same
    assert not is_same(Failure("E", then), Failure("F", now), *FOLDERS)
