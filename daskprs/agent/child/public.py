"""`EntryScript`: what a script may ask about the process that it runs in."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from daskprs.agent.protocol.messages import JobSpec, ProcessSpec


class EntryScript:
    """The process of an entry script, seen from inside; there is one in each process.

    Outside of an agent it works as well, for debugging: logs go to stderr, and the folders are
    the working directory.

    Attributes
    ----------
    logger : logging.Logger
        Writes to a log file of this process.
    log_dir : str
        The folder of that file.
    output_dir : str
        The output folder of the job.
    agent_name : str
        ``process000``, …
    working_dir : str
        The private working directory of this process.
    side_inputs : dict
        Where the side inputs of the job are, by name.

    """

    _only: Any = None

    logger: logging.Logger
    log_dir: str
    output_dir: str
    agent_name: str
    working_dir: str
    side_inputs: dict[str, str]

    def __new__(cls) -> Self:
        """Return the one that there is."""
        if cls._only is None:
            cls._only = super().__new__(cls)
            here = str(Path.cwd())
            cls._only._describe(here, here, here, "process000")  # noqa: SLF001 - its own class
            cls._only._log_to(logging.StreamHandler(sys.stderr), "INFO")  # noqa: SLF001 - the same
        only: Self = cls._only
        return only

    @classmethod
    def install(cls, job: JobSpec, process: ProcessSpec) -> None:
        """Describe the agent that this process is."""
        one = super().__new__(cls)
        log = Path(process.entry_script_log)
        log.parent.mkdir(parents=True, exist_ok=True)
        one._describe(str(log.parent), job.output_dir, process.working_dir, process.name)
        one.side_inputs = {side.name: side.path for side in job.side_inputs}
        one._log_to(logging.FileHandler(log, delay=True, encoding="utf-8"), job.logging_level)
        cls._only = one

    def _describe(self, log_dir: str, output_dir: str, working_dir: str, name: str) -> None:
        self.log_dir = log_dir
        self.output_dir = output_dir
        self.working_dir = working_dir
        self.agent_name = name
        self.side_inputs = {}

    def _log_to(self, handler: logging.Handler, level: str) -> None:
        handler.setFormatter(logging.Formatter("%(asctime)s|%(levelname)s|%(process)d|%(message)s"))
        self.logger = logging.getLogger("entry_script")
        self.logger.handlers[:] = [handler]
        self.logger.setLevel(level)
        self.logger.propagate = False
