"""Our own code fails in a process that the script has spoilt: the agent ends, and does not wait."""

from __future__ import annotations

import os
import sys
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs._agent.child.inbox import Inbox, Loader
from daskprs._agent.child.outbox import Outbox
from daskprs._agent.protocol.messages import Stop
from daskprs._agent.protocol.shared_page import SharedPage, new_page
from daskprs._core.outcomes import Outcome, Status
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

SPOILS = """
class Refuses(Exception):
    def __getattribute__(self, name):
        raise RuntimeError(name)

def run(rows):
    if 3 in rows["n"].tolist():
        raise Refuses
    return rows
"""
SPOILT = RuntimeError("spoilt")


class Ends(list[BaseException]):
    """Remembers the errors for which an agent would end."""

    end = list.append


@pytest.fixture
def page() -> Iterator[SharedPage]:
    """Yield a page."""
    page_fd = new_page()
    one = SharedPage(page_fd)
    os.close(page_fd)
    yield one
    one.close()


@pytest.fixture
def pipe() -> Iterator[tuple[Connection, Connection]]:
    """Yield the supervisor's and the agent's end."""
    ends = Pipe()
    yield ends
    for end in ends:
        end.close()


def raise_error(*_: Any) -> Any:
    """Fail as a replaced function does."""
    raise SPOILT


def test_an_agent_ends_when_the_thread_of_its_outbox_fails() -> None:
    """Its outcomes would never arrive."""
    connection: Any = type("Connection", (), {"send_bytes": raise_error})()
    ends: Any = Ends()
    outbox = Outbox(connection, ends)
    outbox.start()
    outbox.open(1)
    outbox.add(Outcome(0, 1, Status.RUN_DONE, 1, 1, 0.0, 0.0, 0.0, 0.0), b"")
    assert poll_for(lambda: ends == [SPOILT])


def test_an_agent_ends_when_the_thread_of_its_loader_loses_a_message(
    page: SharedPage, pipe: tuple[Connection, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor would wait for the mini-batches in it."""
    ours, theirs = pipe
    ends: Any = Ends()
    loader = Loader(page, ends)
    loader.start()
    inbox = Inbox(theirs, page, loader, Outbox(theirs, ends))
    monkeypatch.setattr(inbox, "process", raise_error)
    loader.listen(0, lambda: inbox._await(0))
    ours.send(Stop())
    assert poll_for(lambda: ends == [SPOILT])
    inbox.close()


def test_an_agent_does_not_ignore_a_message_that_it_does_not_know(
    page: SharedPage, pipe: tuple[Connection, Connection]
) -> None:
    """Its modules were imported again, so that the classes are others."""
    ends: Any = Ends()
    inbox = Inbox(pipe[1], page, Loader(page, ends), Outbox(pipe[1], ends))
    with pytest.raises(TypeError, match="does not know the message str"):
        inbox.process("what?")
    inbox.close()


def in_this_process(folder: Path, script: str, numbers: Iterable[int]) -> daskprs.ParallelRunResult:
    """Run a script inline over numbers, one for each mini-batch, of which one may fail."""
    path = folder / "script.py"
    path.write_text(script)
    return daskprs.parallel_run(
        pd.DataFrame({"n": numbers}),
        path,
        mini_batch_size="1 row",
        start_method="inline",
        run_max_try=1,
        allowed_failed_count=1,
        job_dir=folder / "job",
        progress=False,
    )


def test_a_mini_batch_is_charged_for_a_spoilt_process_only_as_its_first_one(
    tmp_path: Path,
) -> None:
    """An earlier one may have spoilt it; the message does not blame `os._exit`."""
    result = in_this_process(tmp_path, SPOILS, range(6))
    assert result.to_pandas()["n"].tolist() == [0, 1, 2, 4, 5]
    (error,) = result.failed["error"]
    assert "while it was at work: daskprs failed in it" in error
    attempts = pd.read_parquet(result.failed_file)["attempts"][0]
    assert [one["charged"] for one in attempts] == [False, True]


def test_a_spoilt_process_of_another_interpreter_is_told_as_well(tmp_path: Path) -> None:
    """Its agent is whole, and ends as it has."""
    script, file = tmp_path / "script.py", tmp_path / "a.txt"
    script.write_text("import os\ndef run(paths):\n    os.closerange(3, 99)\n    return paths\n")
    file.touch()
    result = daskprs.parallel_run(
        str(file),
        script,
        python=sys.executable,
        input_type="files",
        run_max_try=1,
        allowed_failed_count=1,
        job_dir=tmp_path / "job",
        output_action="summary_only",
        progress=False,
    )
    assert "daskprs failed in it (OSError: [Errno 9] Bad" in result.failed["error"][0]


def test_an_agent_in_this_process_says_that_memory_was_lacking(tmp_path: Path) -> None:
    """The script has spoilt nothing then."""
    result = in_this_process(tmp_path, SPOILS.replace("RuntimeError", "MemoryError"), [3, 4])
    (error,) = result.failed["error"]
    assert "ran out of memory while it was at work" in error
