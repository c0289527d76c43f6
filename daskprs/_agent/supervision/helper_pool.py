"""Helpers: processes that call functions of this package, without the lock of this interpreter."""

from __future__ import annotations

import itertools
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from daskprs._agent.protocol.messages import ProcessSpec
from daskprs._agent.supervision.zygote import discard_kept, keep_ahead, take_zygote
from daskprs._core.outcomes import NAMED, signal_of
from daskprs.errors import AgentError, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daskprs._agent.supervision.agent_process import AgentProcess
    from daskprs._agent.supervision.zygote import Zygote

PROGRAM = "daskprs._agent.child.helper"
LOOK_EVERY_S = 1.0
END_S = 5.0
"""Seconds in which an idle helper ends by itself."""
ATTEMPTS = 2
OVER = "the job is over: no more helper processes are started."
FORK, SPAWN = "fork", "spawn"


class HelperPool:
    """Starts helpers as they are needed: as many as there are calls at a time.

    All methods may be called from any thread. A helper ends with this process. Its environment is
    that of the agents, so that both have one zygote; where helpers are few and need no pandas, they
    start by ``spawn``, and each imports what it needs. A call may take `timeout_s`: a helper may
    hang as an agent may.
    """

    def __init__(
        self, environment: Mapping[str, str], timeout_s: float, start_method: str = FORK
    ) -> None:
        self._environment = environment
        self._timeout_s = timeout_s
        self._start_method = start_method
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._kept: Zygote | None = None
        self._starting: Zygote | None = None
        """The zygote while it starts a helper, under the lock."""
        self._idle: list[AgentProcess] = []
        self._busy: set[AgentProcess] = set()
        self._closed = False
        self._numbers = itertools.count()

    def call(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a helper, once more if the helper dies or hangs; return its result.

        `what` says, for errors, what the function does, and with how many bytes.
        """
        for attempt in range(1, ATTEMPTS + 1):
            helper = self._taken()
            helper.channel.send((function, arguments))
            answers: list[Any] = []
            until = time.monotonic() + self._timeout_s
            while not answers and not helper.channel.closed and time.monotonic() < until:
                answers = helper.channel.receive(LOOK_EVERY_S, helper.sentinel.fileno())
            if answers:
                self._put_back(helper)
                is_done, result = answers[0]
                if is_done:
                    return result
                raise result
            hangs = not helper.channel.closed
            returncode = self._buried(helper)
            if self._closed or attempt == ATTEMPTS:
                break
        if hangs:
            msg = (
                f"the process that was to {what} took longer than "
                f"{Option('task_overhead_timeout', self._timeout_s)} s, {ATTEMPTS} times. Look at "
                "the disks and the load of the machine, or give it more time."
            )
            raise AgentError(msg)
        why = NAMED.get(-returncode, "it has ended")  # type: ignore[call-overload]
        msg = (
            f"the process that was to {what} ended with returncode {returncode}"
            f"{signal_of(returncode)}, {ATTEMPTS} times: {why}. Look at the memory of the machine."
        )
        raise AgentError(msg)

    def rest(self) -> None:
        """End the helpers that are idle, and keep their zygote for the agents of this process."""
        with self._lock:
            idle, self._idle = self._idle, []
            zygote = None
            # A helper at work is a child of the zygote, which its next owner may end.
            if not self._busy:
                zygote, self._zygote = self._zygote, None
        for helper in idle:
            helper.channel.close()  # it reads the end of its input
        for helper in idle:
            if helper.returncode(END_S) is None:
                helper.kill()
            helper.close()
        if zygote is not None:
            self._kept = zygote
            keep_ahead(zygote)

    def close(self) -> None:
        """Kill all helpers; calls that wait for one raise."""
        self._closed = True
        # A zygote that does not answer would hold the lock for minutes; its end frees the lock.
        starting = self._starting
        if starting is not None:
            starting.close()
        with self._lock:
            zygote, self._zygote = self._zygote, None
            idle, self._idle = self._idle, []
        if zygote is not None:
            zygote.close()
        for helper in idle:
            helper.close()
        if self._kept is not None:
            discard_kept(self._kept)

    def _taken(self) -> AgentProcess:
        with self._lock:
            if self._closed:
                raise AgentError(OVER)
            # It starts under the lock: a call beside `rest` started a second zygote, and the first
            # one was neither kept for the agents nor closed.
            helper = self._idle.pop() if self._idle else self._started()
            self._busy.add(helper)
            return helper

    def _put_back(self, helper: AgentProcess) -> None:
        with self._lock:
            self._busy.discard(helper)
            if not self._closed:
                self._idle.append(helper)
                return
        helper.close()

    def _buried(self, helper: AgentProcess) -> int:
        returncode = helper.kill()
        helper.close()
        with self._lock:
            self._busy.discard(helper)
        return returncode

    def _started(self) -> AgentProcess:
        if self._zygote is None or not self._zygote.alive:
            if self._zygote is not None:
                self._zygote.close()
            self._zygote = take_zygote(self._environment, self._start_method)
        spec = ProcessSpec(
            name=f"helper{next(self._numbers):03d}",
            node=0,
            working_dir="/",
            stdout=os.devnull,
            stderr=os.devnull,
            entry_script_log=os.devnull,
            spool=None,
            environment={},
            program=PROGRAM,
        )
        self._starting = self._zygote
        try:
            if self._closed:  # `close` may not have seen this zygote
                raise AgentError(OVER)
            return self._zygote.start_agent(spec, runs_script=False)
        finally:
            self._starting = None
