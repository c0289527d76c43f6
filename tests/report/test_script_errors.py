"""``job_error.txt``: the script's errors, each kind once, and every traceback in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daskprs._core.events import AgentChanged
from daskprs._core.lease import AgentExited, InitFailed
from daskprs._core.outcomes import Failure, Status
from daskprs._report.log_files import LogFiles
from daskprs._report.script_errors import KINDS_KEPT, ScriptErrors, shape
from tests.support.job_events import HERE, attempt, job_ended, job_started, stood

if TYPE_CHECKING:
    from daskprs._core.events import Event
    from daskprs._folders.job_folder import JobFolder


def tell(folder: JobFolder, *events: Event) -> None:
    """Tell a job's errors of its events."""
    files = LogFiles()
    errors = ScriptErrors(folder, files, clock=lambda: 100.0)
    for event in events:
        errors.tell(event)
    files.flush()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("row 17 is bad", "row 4 is bad"),
        ("no such file: 'a.csv'", "no such file: 'b c.csv'"),
        ("<object at 0x7f00aa>", "<object at 0x7f01bb>"),
        ("died\nits last words", "died\nand others"),
    ],
)
def test_errors_that_differ_in_particulars_are_of_one_kind(one: str, other: str) -> None:
    """Numbers, addresses, quoted names, and what follows the first line."""
    assert shape(Failure("ValueError", one)) == shape(Failure("ValueError", other))


def test_errors_that_differ_in_words_or_class_are_not() -> None:
    """They have different causes."""
    bad = Failure("ValueError", "bad")
    assert (
        len({shape(one) for one in (bad, Failure("ValueError", "good"), Failure("E", "bad"))}) == 3
    )


def test_each_kind_is_there_once_the_most_frequent_first(folder: JobFolder) -> None:
    """With its count, its first place, and the traceback of that."""
    few = Failure("KeyError", "'name'", "Traceback of the few\n")
    many = [Failure("ValueError", f"row {n} is bad", f"Traceback of {n}\n") for n in range(3)]
    events = [attempt(0, few), *(attempt(n + 1, many[n]) for n in range(3))]
    tell(folder, *events, job_ended())
    first, second = folder.job_error.read_text().split("\n\n1 × ")
    assert first.startswith("3 × ValueError: row 0 is bad\nfirst: mini-batch 1 (rows 1-2)")
    assert "Traceback of 0" in first
    assert "Traceback of 1" not in first
    assert second.startswith("KeyError: 'name'")
    log = folder.tracebacks(0, HERE.process)
    assert str(log) in first
    for text in ("of the few", "of 0", "of 1", "of 2"):
        assert f"Traceback {text}\n" in log.read_text()


def test_errors_outside_of_run_are_among_them(folder: JobFolder) -> None:
    """Of import, init() and shutdown(), and of a node that was lost without a process."""
    bad_init = InitFailed("process001", Failure("ImportError", "no module"), 0.1)
    bad_end = AgentExited("process002", 0, "stopped", True, Failure("OSError", "late"))
    lost = attempt(
        3,
        Failure("NODE_LOST", "gone"),
        place=HERE._replace(process=""),
        status=Status.NODE_LOST,
    )
    fine = AgentExited("process003", 0, "stopped", True)
    tell(
        folder,
        *(AgentChanged(HERE, change) for change in (bad_init, bad_end, fine)),
        lost,
        job_ended(),
    )
    text = folder.job_error.read_text()
    assert "1 × ImportError: no module\nfirst: import or init()" in text
    assert "1 × OSError: late\nfirst: shutdown()" in text
    assert "no_process.txt" in text
    assert text.count("×") == 3


def test_the_summary_can_be_read_while_the_job_runs(folder: JobFolder) -> None:
    """With the first error at once, and then every ten seconds."""
    now_s = 100.0
    errors = ScriptErrors(folder, LogFiles(), clock=lambda: now_s)
    failure = Failure("ValueError", "bad")

    def count() -> str:
        errors.tell(attempt(0, failure))
        errors.tell(stood())
        return folder.job_error.read_text()[0]

    assert count() == "1"
    now_s += 9
    assert count() == "1"
    now_s += 1
    assert count() == "3"


def test_a_driver_that_breaks_off_leaves_the_summary(folder: JobFolder) -> None:
    """Without the end of a job, as when an error of daskprs itself ends it."""
    files = LogFiles()
    errors = ScriptErrors(folder, files)
    errors.tell(attempt(0, Failure("ValueError", "bad")))
    errors.close()
    assert folder.job_error.read_text().startswith("1 × ValueError: bad")


def test_a_resumed_job_begins_without_the_errors_of_the_last_run(folder: JobFolder) -> None:
    """One that completes then has no file that says otherwise; the tracebacks are kept."""
    tell(folder, attempt(0, Failure("ValueError", "bad")), job_ended())
    tell(folder, job_started(resumed=True), attempt(0), job_ended())
    assert not folder.job_error.exists()
    assert "ValueError: bad" in folder.tracebacks(0, HERE.process).read_text()


def test_a_script_of_a_thousand_errors_takes_no_more_memory(folder: JobFolder) -> None:
    """What is beyond the first kinds is counted."""
    words = [f"{'a' * (n % 40)} {'b' * (n // 40)}" for n in range(KINDS_KEPT + 7)]
    events = [attempt(n, Failure("ValueError", word)) for n, word in enumerate(words)]
    tell(folder, *events, job_ended())
    text = folder.job_error.read_text()
    assert text.count("×") == KINDS_KEPT
    assert f"7 errors of more kinds: {folder.tracebacks_of_all}" in text


def test_text_that_is_no_unicode_does_not_lose_the_summary(folder: JobFolder) -> None:
    """A message may hold what a path of bytes has turned into."""
    tell(folder, attempt(0, Failure("OSError", "no \udcff here")), job_ended())
    assert r"no \udcff here" in folder.job_error.read_text()
