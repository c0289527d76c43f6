"""A program that shows the progress of a job that never was, event by event."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from daskprs._core.events import MessageLogged, SlotsChanged
from daskprs._core.outcomes import Failure
from daskprs._folders.job_folder import JobFolder
from daskprs._report.job_view import JobWatch
from daskprs._report.progress_bar import ProgressBar, display_for, display_on
from tests.support.job_events import attempt, job_ended, job_started, slot, stood

if TYPE_CHECKING:
    from daskprs._core.events import Event

MOVING = (slot("running", 0.1, 3), slot("running", 0.2, 4, process=1))
STRAGGLER = (slot("running", 50, 9, process=1), slot("idle", 40))


def main(how: str) -> None:
    """Tell the story of a job: it ends by itself, or is interrupted while a line is drawn."""
    watch = JobWatch()
    folder = JobFolder("/j")
    progress = ProgressBar(display_for(sys.stderr, folder), folder, watch)

    def tell(event: Event) -> None:
        watch.tell(event)
        progress.tell(event)

    tell(job_started())
    tell(SlotsChanged(1, 2))
    try:
        for tenth in range(5, 15):
            tell(attempt(tenth))
            tell(stood(tenth // 2, elapsed_s=tenth / 10, slots=MOVING))
        tell(attempt(3, Failure("ValueError", "row 3 is bad\nand more", "Traceback")))
        print("printed by other code")
        tell(MessageLogged("warning", "the disk is slow"))
        tell(stood(9, elapsed_s=60, quiet_s=50, slots=STRAGGLER))
        if how == "interrupted":
            raise KeyboardInterrupt
        tell(job_ended())
    except KeyboardInterrupt:
        pass
    finally:
        progress.close()
    print("the end")


def two_jobs() -> None:
    """Show two jobs at a time, as `daskprs.start` does; the first ends before the other."""
    watches = [JobWatch(), JobWatch()]
    displays = [display_on(sys.stderr, name) for name in ("first", "second")]
    for watch in watches:
        watch.tell(job_started())
        watch.tell(SlotsChanged(1, 2))
    for tenth in range(5, 15):
        for display, watch in zip(displays, watches, strict=True):
            watch.tell(stood(tenth // 2, elapsed_s=tenth / 10, slots=MOVING))
            display.show(watch)
            if tenth == 5 and display is displays[0]:
                displays[1].say("before its lines")
    displays[1].say("a warning")
    displays[1].output(["[mini-batch 1] one", "[mini-batch 2] two"])
    displays[0].end(watches[0].view())
    watches[1].tell(stood(9, elapsed_s=9, slots=MOVING))
    displays[1].show(watches[1])
    displays[1].end(watches[1].view())
    print("the end")


if sys.argv[1] == "two":
    two_jobs()
else:
    main(sys.argv[1])
