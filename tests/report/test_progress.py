"""Progress, wherever it is shown: plain lines, a notebook, and what is said at once."""

from __future__ import annotations

import io
import subprocess
import sys
import types
from typing import TYPE_CHECKING

from daskprs._core.ending import JobStatus
from daskprs._core.events import AgentChanged, MessageLogged, SlotsChanged
from daskprs._core.lease import InitFailed
from daskprs._core.outcomes import Failure, Status
from daskprs._report.job_view import JobWatch
from daskprs._report.listeners import Listeners, listeners_of, report_preparation
from daskprs._report.progress_bar import PlainLines, ProgressBar, display_for
from tests.support.job_events import HERE, attempt, job_ended, job_started, stood
from tests.support.polling import poll_for

if TYPE_CHECKING:
    import pytest

    from daskprs._core.events import Event
    from daskprs._folders.job_folder import JobFolder

BAD = Failure("ValueError", "bad\nand more", "Traceback")


def lines_of(folder: JobFolder, *events: Event) -> list[str]:
    """Return what a log file gets of a job."""
    stream, watch = io.StringIO(), JobWatch()
    progress = ProgressBar(PlainLines(stream), folder, watch)
    for event in events:
        watch.tell(event)
        progress.tell(event)
    progress.close()
    return stream.getvalue().splitlines()


def test_a_log_file_gets_a_line_after_ten_seconds_and_then_more_and_more_seldom(
    folder: JobFolder,
) -> None:
    """A job of a day does not fill it."""
    day_s = 24 * 3600
    lines = lines_of(folder, *(stood(1, elapsed_s=second) for second in range(day_s)))
    shown = [line.split(", ")[1] for line in lines]
    assert shown[:4] == ["10 s", "25 s", "48 s", "1 min 22 s"]
    assert 250 < len(lines) < 320


def test_a_short_job_leaves_one_line(folder: JobFolder) -> None:
    """The last state."""
    assert lines_of(folder, job_started(), stood(5), job_ended()) == [
        "daskprs: 10/10 mini-batches, 12 s, 50.0/min"
    ]


def test_a_job_that_ends_before_it_begins_leaves_none(folder: JobFolder) -> None:
    """There is nothing to say."""
    assert lines_of(folder, job_started()) == []


def test_the_first_error_is_told_at_once_and_only_the_first(folder: JobFolder) -> None:
    """With the place of its traceback."""
    first, second, _ = lines_of(folder, attempt(3, BAD), attempt(4, BAD), job_ended())
    assert first == "daskprs: first error: ValueError: bad"
    log = folder.tracebacks(0, "process000")
    assert second == f"  in mini-batch 3 (rows 3-4), attempt 1; full traceback: {log}"


def test_a_terminal_obeys_nothing_that_is_told(folder: JobFolder) -> None:
    """Names of files, which stand in errors and warnings, may have any characters."""
    red = "\x1b[31mred\x1b[0m\x9b2J"
    events = (attempt(3, BAD._replace(message=red)), MessageLogged("warning", red))
    first, _, warning = lines_of(folder, *events)
    assert first == "daskprs: first error: ValueError: red2J"
    assert warning == "daskprs: warning: red2J"


def test_a_death_has_no_traceback_but_what_the_process_said_last(folder: JobFolder) -> None:
    """An error that never came up is not looked for; one without words ends in no colon."""
    _, where, _ = lines_of(folder, attempt(3, Failure("PROCESS_DIED", "it did")), job_ended())
    assert where.endswith(f"attempt 1; its stderr log: {folder.stderr(0, 'process000')}")
    first, where, _ = lines_of(folder, attempt(3, Failure("RUN_NULL_RETURN", "")), job_ended())
    assert first == "daskprs: first error: RUN_NULL_RETURN"
    assert where.endswith(f"its error log: {folder.tracebacks(0, 'process000')}")


def test_a_lost_worker_is_no_error_of_the_script_unless_it_fails_a_mini_batch(
    folder: JobFolder,
) -> None:
    """The loss has a warning of its own, and the first error of the script is still shown."""
    lost = Failure("NODE_LOST", "the worker was lost")
    events = [attempt(3, lost, final=False, status=Status.NODE_LOST), attempt(3, BAD)]
    assert lines_of(folder, *events)[0] == "daskprs: first error: ValueError: bad"
    given_up = attempt(3, lost, final=True, status=Status.NODE_LOST)
    assert lines_of(folder, given_up)[0] == "daskprs: first error: NODE_LOST: the worker was lost"


def test_an_init_that_fails_is_told_too(folder: JobFolder) -> None:
    """It may be all that the script has to say."""
    failed = AgentChanged(HERE, InitFailed("process000", BAD, 0.1))
    said = lines_of(folder, failed)
    assert said[0] == "daskprs: first error: ValueError: bad"
    assert said[1].startswith("  in import or init(); full traceback: ")


def test_warnings_are_told_and_lesser_remarks_are_not(folder: JobFolder) -> None:
    """Those are in the driver's log."""
    remarks = [MessageLogged(level, level) for level in ("debug", "info", "warning", "error")]
    assert lines_of(folder, *remarks) == ["daskprs: warning: warning", "daskprs: error: error"]


def test_a_resumed_job_says_how_much_was_done(folder: JobFolder) -> None:
    """Which is not run again."""
    started = job_started(resumed=True, recovered=6)
    said = lines_of(folder, started, stood(6, elapsed_s=12, recovered=6))
    assert said[0] == "daskprs: resumed: what an earlier run has committed is not run again"
    assert "6 done in an earlier run" in said[1]


def test_a_resume_to_which_nothing_was_left_promises_nothing(folder: JobFolder) -> None:
    """An earlier run may have ended before its first commit."""
    said = lines_of(folder, job_started(resumed=True), stood(1, elapsed_s=12))
    assert not any("resumed" in line for line in said)


def test_the_lines_of_two_jobs_of_a_program_have_their_names() -> None:
    """Those of one alone have none."""
    stream = io.StringIO()
    first = PlainLines(stream, "first")
    first.say("begins")
    second = PlainLines(stream, "second")
    for one in (first, second):
        one.say("works")
        one.end(None)
    PlainLines(stream, "third").say("begins")
    names = [line.partition(":")[0] for line in stream.getvalue().splitlines()]
    assert names == ["daskprs", "daskprs first", "daskprs second", "daskprs"]


def test_a_job_that_begins_meanwhile_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may begin one while the others are told to show their names."""
    stream, plain, later = io.StringIO(), PlainLines.tell_name, ["third"]
    jobs = [PlainLines(stream, "first")]

    def tell(one: PlainLines) -> None:
        plain(one)
        if later:
            jobs.append(PlainLines(stream, later.pop()))

    monkeypatch.setattr(PlainLines, "tell_name", tell)
    jobs.append(PlainLines(stream, "second"))
    for one in jobs:
        one.say("works")
        one.end(None)
    assert len(stream.getvalue().splitlines()) == 3


def test_attempts_that_are_tried_again_are_counted(folder: JobFolder) -> None:
    """Not those that gave their mini-batch up: they are failed."""
    events = [attempt(1, BAD), attempt(1, BAD), attempt(1, BAD, final=True)]
    assert "1 failed, 2 retried" in lines_of(folder, *events, stood(9, elapsed_s=10, failed=1))[2]


def test_a_failed_job_ends_with_its_counts(folder: JobFolder) -> None:
    """Not with what it was waiting for."""
    last = lines_of(folder, SlotsChanged(0, 0), stood(3), job_ended(JobStatus.FAILED, failed=2))[-1]
    assert "2 failed" in last
    assert "waiting" not in last


def test_progress_that_is_not_wanted_is_not_shown(folder: JobFolder) -> None:
    """Wherever the job runs."""
    listeners = listeners_of(folder, progress=False)
    assert not any(isinstance(one, ProgressBar) for one in listeners)


def test_a_stream_that_is_no_terminal_gets_plain_lines(folder: JobFolder) -> None:
    """Live lines would fill a log."""
    stream = io.StringIO()
    progress = ProgressBar(display_for(stream, folder), folder, JobWatch())
    progress.tell(MessageLogged("warning", "slow"))
    assert stream.getvalue() == "daskprs: warning: slow\n"


def test_progress_for_a_closed_stderr_is_dropped(folder: JobFolder) -> None:
    """Python has None in its place."""
    progress = ProgressBar(display_for(None, folder), folder, JobWatch())
    progress.tell(MessageLogged("warning", "nobody reads this"))


def test_rich_is_imported_only_where_a_live_line_is_drawn() -> None:
    """It takes longer than a small job."""
    code = "import sys, daskprs._report.listeners; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Kernel:
    """What IPython has of a notebook: a shell with a kernel, and outputs that can be replaced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, kernel: object) -> None:
        self.bundles: list[dict[str, str]] = []
        shell = types.SimpleNamespace(kernel=kernel)
        display = types.ModuleType("IPython.display")
        display.display = self._display  # type: ignore[attr-defined]
        ipython = types.ModuleType("IPython")
        ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def _display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> Kernel:
        assert raw
        assert display_id
        self.bundles.append(bundle)
        return self

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        """Replace the output."""
        assert raw
        self.bundles.append(bundle)


def shown_in(folder: JobFolder, *events: Event) -> None:
    """Show a job where it would be shown."""
    watch = JobWatch()
    progress = ProgressBar(display_for(io.StringIO(), folder), folder, watch)
    for event in events:
        watch.tell(event)
        progress.tell(event)
    progress.close()


def test_a_notebook_has_one_output_that_is_replaced(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As HTML, and as text where there is no HTML; once a second at most."""
    kernel = Kernel(monkeypatch, kernel=object())
    looks = [stood(n // 20, elapsed_s=n / 20) for n in range(100)]
    shown_in(folder, attempt(3, Failure("ValueError", "<bad>")), *looks, job_ended())
    assert len(kernel.bundles) == 1 + 1 + 5 + 1
    last = kernel.bundles[-1]
    assert last["text/plain"].splitlines()[0] == "first error: ValueError: <bad>"
    assert last["text/plain"].endswith("10/10 mini-batches, 1 retried, 12 s, 54.3/min")
    assert "&lt;bad&gt;" in last["text/html"]
    assert "<progress value='1.0000' max='1' " in last["text/html"]


def test_a_notebook_keeps_the_last_of_many_warnings(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are in the driver's log."""
    kernel = Kernel(monkeypatch, kernel=object())
    shown_in(folder, *(MessageLogged("warning", str(n)) for n in range(100)))
    lines = kernel.bundles[-1]["text/plain"].splitlines()
    assert lines == [f"warning: {n}" for n in range(80, 100)]


def test_ipython_in_a_terminal_is_no_notebook(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a shell, and no kernel."""
    kernel = Kernel(monkeypatch, kernel=None)
    shown_in(folder, stood(1), job_ended())
    assert kernel.bundles == []


def test_a_long_preparation_tells_how_far_it_is(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else happens meanwhile, and a person wants to know that it is alive."""
    monkeypatch.setattr("daskprs._report.listeners.FIRST_AFTER_S", 0.01)
    stream = io.StringIO()
    listeners = Listeners([ProgressBar(PlainLines(stream), folder, JobWatch())], folder)
    with report_preparation(listeners, lambda: "3 of 7 parts"):
        assert poll_for(lambda: stream.getvalue().count("\n") > 1)
    listeners.close()
    assert "preparing the input for 0 s: 3 of 7 parts" in stream.getvalue()
