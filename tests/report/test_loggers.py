"""The loggers ``daskprs.*``: the driver's events for whoever collects logs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from daskprs._core.events import AgentChanged, MessageLogged
from daskprs._core.lease import AgentExited, AgentStarted
from daskprs._core.outcomes import Failure
from daskprs._report.listeners import Listeners, listeners_of
from tests.support.job_events import HERE, attempt, job_ended, job_started, stood

if TYPE_CHECKING:
    import pytest

    from daskprs._folders.job_folder import JobFolder

BAD = Failure("ValueError", "bad")
EVENTS = [
    job_started(options={"environment_variables": {"TOKEN": "secret"}}),
    stood(),
    AgentChanged(HERE, AgentStarted("process000", 41)),
    MessageLogged("notice", "the job waits for workers"),
    attempt(0),
    attempt(1, BAD),
    attempt(2, BAD, charged=False),
    attempt(1, BAD, final=True),
    AgentChanged(HERE, AgentExited("process000", -9, "killed", expected=False)),
    MessageLogged("warning", "the disk is slow"),
    job_ended(),
]


def told(folder: JobFolder) -> None:
    """Tell the events to the listeners of a job without progress."""
    listeners = Listeners(listeners_of(folder, progress=False), folder)
    for event in EVENTS:
        listeners.tell(event)
    listeners.close()


def test_each_kind_of_event_has_a_logger_and_a_level(
    folder: JobFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """Values of environment variables are not logged, and each record names the job."""
    with caplog.at_level(logging.DEBUG, "daskprs"):
        told(folder)
    failed = "mini-batch 1 (rows 1-2), attempt 1, RUN_EXCEPTION on node 0: ValueError: bad"
    uncharged = failed.replace("1 (rows 1-2), attempt 1", "2 (rows 2-3), attempt 1, not charged")
    assert [one for one in caplog.record_tuples if one[0].startswith("daskprs.")] == [
        ("daskprs.driver", logging.INFO, "job 1a2b starts: score.py"),
        ("daskprs.driver", logging.INFO, "option environment_variables=['TOKEN']"),
        ("daskprs.agents", logging.DEBUG, "node 0: process000 started, pid 41"),
        ("daskprs.driver", logging.INFO, "the job waits for workers"),
        ("daskprs.attempts", logging.INFO, failed),
        ("daskprs.attempts", logging.INFO, uncharged),
        ("daskprs.attempts", logging.WARNING, failed),
        (
            "daskprs.agents",
            logging.WARNING,
            "node 0: process000 exits with returncode -9 (SIGKILL): killed",
        ),
        ("daskprs.driver", logging.WARNING, "the disk is slow"),
        ("daskprs.driver", logging.INFO, "job Completed"),
    ]
    assert {vars(one)["job"] for one in caplog.records} == {folder.path.name}


def test_without_a_handler_nothing_is_written(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python's handler of last resort would repeat on stderr what the progress shows."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    told(folder)
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("daskprs").handlers == []
