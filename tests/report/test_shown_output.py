"""Output of the script on the screen: whose it is, how much of it, and what is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import AgentChanged, MiniBatchesDone
from daskprs._core.lease import AgentStarted
from daskprs._core.outcomes import UNKNOWN, Printed
from daskprs._report.shown_output import FIRST_LINES, LINES_A_LOOK, LINES_IN_ALL, ShownOutput
from tests.support.job_events import HERE, attempt, slot, stood

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder


class Screened:
    """A process that prints, and the screen on which its output is shown second by second."""

    def __init__(self, folder: JobFolder) -> None:
        self.lines: list[str] = []
        self._now_s = 0.0
        self.shown = ShownOutput(self.output, folder, clock=lambda: self._now_s)
        self._log = folder.stdout(0, "process000")
        self._log.parent.mkdir(parents=True)
        self._log.touch()
        self._begun = 0
        self._running: int | None = None
        self.shown.tell(AgentChanged(HERE, AgentStarted("process000", 41)))

    def output(self, lines: list[str]) -> None:
        """Show lines."""
        self.lines += lines

    def print(self, text: str) -> None:
        """Write to stdout."""
        with self._log.open("a") as file:
            file.write(text)

    def run(self, index: int) -> None:
        """Begin a mini-batch."""
        self._running, self._begun = index, self._size()

    def end(self, index: int, part: tuple[int, int] | None = None) -> None:
        """End it; it has printed a part of the log."""
        done = attempt(index)
        assert isinstance(done, MiniBatchesDone)
        printed = Printed(part or (self._begun, self._size()), (0, 0))
        outcomes = ColumnBatch([done.outcomes[0]._replace(printed=printed)])
        self.shown.tell(done._replace(outcomes=outcomes))
        self._running, self._begun = None, self._size()

    def look(self, *, at_another: bool = False) -> list[str]:
        """Let a second pass, and return the new lines on the screen."""
        self._now_s += 1.0
        self.lines.clear()
        working = slot("running", index=self._running)._replace(printed=(self._begun, 0))
        self.shown.tell(stood(slots=() if at_another else (working,)))
        return self.lines

    def _size(self) -> int:
        return self._log.stat().st_size


@pytest.fixture
def process(folder: JobFolder) -> Screened:
    """Return a process of a job whose output is shown."""
    return Screened(folder)


def test_lines_have_their_mini_batch_while_it_runs(process: Screened) -> None:
    """A line that is not finished waits; so does what another run may have written."""
    process.run(3)
    process.print("one\ntwo\nthr")
    assert process.look() == []
    assert process.look() == ["[mini-batch 3] one", "[mini-batch 3] two"]
    process.print("ee\n")
    process.end(3)
    process.run(4)
    process.print("four\n")
    assert process.look() == ["[mini-batch 3] three"]
    assert process.look() == ["[mini-batch 4] four"]


def test_output_of_import_and_init_has_its_process(process: Screened) -> None:
    """As soon as a run shows that it was before it; a node besides the first is named."""
    process.print("model loaded\n")
    process.run(0)
    process.end(0)
    process.print("between\n")
    process.run(1)
    process.print("last line")
    process.end(1)
    assert process.look() == [
        "[process000] model loaded",
        "[process000] between",
        "[mini-batch 1] last line",
    ]


def test_lines_of_a_process_with_several_at_a_time_have_their_own_marks(process: Screened) -> None:
    """Its slot tells of the mini-batch that has run longest, and of no part of the log."""
    process.print("model loaded\n[3] three\n[4] four\n")
    process.run(3)
    process._begun = UNKNOWN
    process.look()
    assert process.look() == [
        "[process000] model loaded",
        "[process000] [3] three",
        "[process000] [4] four",
    ]


def test_a_process_that_never_runs_anything_is_heard_too(process: Screened) -> None:
    """Its import may take long, and say how far it is."""
    process.print("loading\n")
    assert [line for _ in range(6) for line in process.look()] == ["[process000] loading"]


def test_a_flood_is_limited_and_what_is_left_out_is_counted(
    process: Screened, folder: JobFolder
) -> None:
    """Now and then, and at the end; all of it is in the logs. A short job is shown whole."""
    process.run(300)
    process.print("first\n" * FIRST_LINES)
    process.end(300)
    shown = process.look()[:]
    assert shown == ["[mini-batch 300] first"] * FIRST_LINES
    for index in range(300):
        process.run(index)
        process.print("x" * 9 + "\n" + "y" * 9 + "\n")
        process.print(f"{'z' * 9}\n" * LINES_A_LOOK)
        process.end(index)
        new = process.look()
        assert len(new) <= LINES_A_LOOK + 1
        shown += new
    lines = [line for line in shown if line.startswith("[")]
    assert len(lines) == LINES_IN_ALL
    process.lines.clear()
    process.shown.close()
    assert len(process.lines) <= 1
    told = [line.split() for line in [*shown, *process.lines] if line.startswith("…")]
    left_out = 10 * (300 * (LINES_A_LOOK + 2) - (LINES_IN_ALL - FIRST_LINES))
    assert sum(int(words[1].replace(",", "")) for words in told) == left_out
    assert f"after {LINES_IN_ALL:,} lines" in " ".join(told[-1])
    assert told[-1][-1] == str(folder.user_logs)


def test_a_process_of_which_nothing_is_told_any_more_has_its_own_name(process: Screened) -> None:
    """A slot tells of one of its processes: it may be another stage process by now."""
    process.run(3)
    process.print("three\n")
    assert [*process.look(), *process.look()] == ["[mini-batch 3] three"]
    process.print("four\n")
    shown = [line for _ in range(8) for line in process.look(at_another=True)]
    assert shown == ["[process000] four"]


def test_a_run_that_postprocess_has_held_up_keeps_its_lines(process: Screened) -> None:
    """Its end is told after that of the next run in its process."""
    process.run(0)
    process.print("early\nlater\n")
    process.look()
    process.end(1, (6, 12))
    process.end(0, (0, 6))
    assert process.look() == ["[mini-batch 0] early", "[mini-batch 1] later"]


def test_what_would_move_the_cursor_is_not_shown(process: Screened) -> None:
    """A progress bar is shown as it stands in the end; a line of a megabyte is cut."""
    process.run(0)
    process.print("\r 10%\r 20%\r100%\n\x1b[31mred\x1b[0m\x07\n\n" + "w" * 1_000_000 + "\nend")
    process.end(0)
    *lines, long = process.look()[:3]
    assert lines == ["[mini-batch 0] 100%", "[mini-batch 0] red"]
    assert len(long) < 1_000
    assert long.endswith("w…")


def test_the_rest_is_shown_at_the_end(process: Screened) -> None:
    """Of a run that was under way, too: the job ended before it did."""
    process.run(5)
    process.look()
    process.print("half a line")
    process.shown.close()
    assert process.lines == ["[mini-batch 5] half a line"]


def test_a_process_that_prints_much_leaves_room_for_the_others(folder: JobFolder) -> None:
    """Another process comes first each second."""
    one = Screened(folder)
    log = folder.stdout(0, "process001")
    log.touch()
    other = HERE._replace(process="process001")
    seen = []
    one.run(0)
    one.print("a\n" * FIRST_LINES)
    one.end(0)
    one.look()
    for index in range(2):
        one.run(0)
        one.print("a\n" * LINES_A_LOOK)
        with log.open("a") as file:
            file.write("b\n" * LINES_A_LOOK)
        done = attempt(1, place=other)
        assert isinstance(done, MiniBatchesDone)
        ends = 2 * LINES_A_LOOK * index, 2 * LINES_A_LOOK * (index + 1)
        printed = done.outcomes[0]._replace(printed=Printed(ends, (0, 0)))
        one.end(0)
        one.shown.tell(done._replace(outcomes=ColumnBatch([printed])))
        seen.append({line for line in one.look() if line.startswith("[")})
    assert seen == [{"[mini-batch 1] b"}, {"[mini-batch 0] a"}]
