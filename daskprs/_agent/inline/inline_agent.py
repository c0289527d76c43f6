"""Agents in the caller's process: a channel whose two ends are called in turn.

The supervisor, the agent and the messages between them are those of agent processes. What differs
is `receive`: instead of waiting for the other end, it lets the agent work for a moment.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections import deque
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._agent.child.debugging import QUIT
from daskprs._agent.child.main import steps
from daskprs._agent.child.outbox import MemoryReserve
from daskprs._agent.foreign.raised import broken_text
from daskprs._agent.inline.process_state import ProcessState, one_script
from daskprs._agent.inline.tee import Tee
from daskprs._agent.protocol.answers import parsed
from daskprs._agent.protocol.messages import InitRaised, Outcomes
from daskprs._agent.protocol.shared_page import SharedPage, new_page
from daskprs._agent.supervision.agent_process import AgentProcess
from daskprs._system.scarcity import explain
from daskprs.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._agent.child.debugging import Raised
    from daskprs._agent.protocol.messages import JobSpec, ProcessSpec
    from daskprs._system.masks import Mask


class InlineStarter:
    """Starts agents in this process, one after the other, in place of a zygote."""

    alive = True
    """Whether it can start agents."""

    def __init__(self, job: JobSpec, raised: Raised) -> None:
        self._job = job
        self._raised = raised
        self._agent: AgentProcess | None = None

    def start_agent(self, spec: ProcessSpec, mask: Mask | None = None) -> AgentProcess:
        """Start an agent, and return its handle."""
        page_fd = new_page()
        try:
            page = SharedPage(page_fd)
            channel = InlineChannel(self._job, spec, mask, page, self._raised)
            try:
                agent = AgentProcess(spec, os.getpid(), channel, page_fd, lambda _: channel.close())
            except OSError as error:  # no more descriptors
                channel.close()
                msg = f"the script cannot work in this process: {error}. {explain(error)}"
                raise AgentError(msg.rstrip()) from error
        finally:
            os.close(page_fd)
        channel.over = agent.ended
        self._agent = agent
        return agent

    def close(self) -> None:
        """End the agent that is left; its script is not called again."""
        if self._agent is not None:
            self._agent.kill()


class InlineChannel:
    """Both ends of the messages between a supervisor and its agent, in one thread.

    The page is the agent's own mapping. `raised` is called with each exception of the script, while
    the script's state holds.
    """

    over: Callable[[int], None] = staticmethod(lambda _: None)
    """Called with the return code when the agent has ended."""

    def __init__(
        self,
        job: JobSpec,
        spec: ProcessSpec,
        mask: Mask | None,
        page: SharedPage,
        raised: Raised,
    ) -> None:
        self.closed = False
        self._reserve = MemoryReserve(page)
        self._connection = _AgentsEnd()
        root = job.script.source_directory
        with ExitStack() as undo:
            undo.callback(page.close)
            undo.enter_context(one_script())
            stdout, stderr = Tee(sys.stdout, spec.stdout, mask), Tee(sys.stderr, spec.stderr, mask)
            undo.callback(stdout.close)
            undo.callback(stderr.close)
            self._state = ProcessState(
                Path(spec.working_dir),
                {**job.environment, **spec.environment},
                (stdout, stderr),
                None if root is None else Path(root),
            )
            undo.callback(self._state.close)
            connection: Any = self._connection
            streams = stdout.fd, stderr.fd
            self._steps = steps(connection, page, self._reserve, streams, raised)
            undo.callback(self._steps.close)
            self._at_end = undo.pop_all()
        self._waits = next(self._steps)
        """Whether the agent waits for a message."""

    def send(self, message: Any) -> None:
        """Give the agent a message, as a pickle: it must not share objects with the driver."""
        self._connection.given.append(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def receive(self, within_s: float, *others: int) -> list[Any]:  # noqa: ARG002
        """Let the agent work for `within_s` seconds or one mini-batch, and return its messages.

        Raise `KeyboardInterrupt` if Ctrl-C was pressed meanwhile, or the caller has left the
        debugger.
        """
        if not self.closed:
            with self._state.of_script():
                returncode = self._work(time.monotonic() + within_s)
            if returncode is not None:
                self._end(returncode)
        if self._state.interrupt is not None:
            raise self._state.interrupt
        messages, self._connection.sent = self._connection.sent, []
        if any(map(_quits, messages)):
            raise KeyboardInterrupt
        return messages

    def _work(self, until_s: float) -> int | None:
        """Let the agent work; return its return code if it ends."""
        try:
            while not self._waits or self._connection.poll():
                self._waits = next(self._steps)
                if time.monotonic() > until_s:
                    break
        except StopIteration as ended:
            code: int = ended.value
            return code
        except Exception as error:  # noqa: BLE001 - our own code fails in what the script has spoilt
            code = self._reserve.note(error)
            with suppress(Exception):
                sys.stderr.write(broken_text(error).decode())
            return code
        return None

    def _end(self, returncode: int) -> None:
        """End the agent, and put back what it has changed in this process."""
        if not self.closed:
            self.closed = True
            self._at_end.close()
            self.over(returncode)

    def close(self) -> None:
        """Close the channel; the agent ends, too."""
        self._end(0)


class _AgentsEnd:
    """The agent's end of the connection: two queues in the same process."""

    def __init__(self) -> None:
        self.given: deque[bytes] = deque()
        self.sent: list[Any] = []

    def poll(self) -> bool:
        return bool(self.given)

    def recv(self) -> Any:
        return pickle.loads(self.given.popleft())

    def send_bytes(self, body: bytes) -> None:
        self.sent.append(parsed(body))

    def close(self) -> None:
        """Do nothing: a fork of this process has a copy of its own."""


def _quits(message: Any) -> bool:
    """Say whether the caller has left the debugger in `init` or in one of these mini-batches."""
    if isinstance(message, InitRaised):
        return message.failure.kind == QUIT
    if not isinstance(message, Outcomes):
        return False
    failures = message.results.outcomes.column("failure")
    return any(one is not None and one.kind == QUIT for one in failures)
