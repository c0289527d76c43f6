"""The loggers ``daskprs.*`` of Python's `logging`, for whoever collects logs in the driver."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from daskprs._core.events import AgentChanged, AttemptFailed
from daskprs._core.lease import AgentExited, InitFailed
from daskprs._report.attempts import MESSAGE_CHARS, sentence_about
from daskprs._report.job_logs import driver_messages
from daskprs._report.log_files import LogWriter

if TYPE_CHECKING:
    from daskprs._core.events import Event
    from daskprs._core.lease import AgentEvent
    from daskprs._folders.job_folder import JobFolder

ALL = logging.getLogger("daskprs")
DRIVER, AGENTS, ATTEMPTS = (ALL.getChild(name) for name in ("driver", "agents", "attempts"))
LEVELS = {**logging.getLevelNamesMapping(), "NOTICE": logging.INFO}


class Loggers(LogWriter):
    """Passes the driver's messages, the lives of agents and failed attempts to `logging`.

    Without a handler, it logs nothing: `logging` itself would write warnings to stderr then, where
    the progress of the job shows them already. A record has the name of the job folder as its
    attribute ``job``.
    """

    def __init__(self, folder: JobFolder) -> None:
        self._extra = {"job": folder.path.name}

    def tell(self, event: Event) -> None:
        """Log an event."""
        match event:
            case AgentChanged(place, change):
                told = f"node {place.node}: {sentence_about(change)}"
                self._log(AGENTS, _level_of(change), told)
            case AttemptFailed(place, mini_batch, outcome, final, charged):
                which = f"attempt {outcome.attempt}{'' if charged else ', not charged'}"
                told = (
                    f"{mini_batch.described}, {which}, {outcome.status.value} on node "
                    f"{place.node}: "
                    f"{str(outcome.failure)[:MESSAGE_CHARS]}"
                )
                self._log(ATTEMPTS, logging.WARNING if final else logging.INFO, told)
            case _:
                for level, message in driver_messages(event):
                    self._log(DRIVER, LEVELS[level.upper()], message)

    def _log(self, logger: logging.Logger, level: int, message: str) -> None:
        if logger.hasHandlers():
            logger.log(level, "%s", message, extra=self._extra)


def _level_of(change: AgentEvent) -> int:
    unexpected = isinstance(change, AgentExited) and not change.expected
    failed = unexpected or isinstance(change, InitFailed)
    return logging.WARNING if failed else logging.DEBUG
