"""The service as a process: its socket, its server, its shutdown."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import uvicorn

from daskprs._serve.app import application
from daskprs._serve.audit_log import AuditLog
from daskprs._serve.connection import MOST_HEAD_BYTES, Connection
from daskprs._serve.gate import Gate
from daskprs._serve.health import Health
from daskprs._serve.listening_socket import CallerLimits, ListeningSocket
from daskprs._serve.own_files import refuse_foreign
from daskprs._system.file_lock import held
from daskprs._system.linux import close_to_same_user
from daskprs.errors import OptionError

if TYPE_CHECKING:
    import socket
    import types
    from collections.abc import Callable
    from pathlib import Path

    from daskprs._serve.endpoint import Endpoint
    from daskprs._serve.job_queue import JobQueue
    from daskprs._serve.tokens import Tokens

GRACE_S = 2
"""Seconds for requests that came while the server drained."""
LOOK_EACH_TICKS = 10
"""Ticks of uvicorn, each a tenth of a second, between two looks at the connections."""
LOOPBACK = ("127.", "::1")


class Service(NamedTuple):
    """An endpoint with its queue of jobs, and the settings of its server."""

    endpoint: Endpoint
    queue: JobQueue
    folder: Path
    """The folder of all job folders."""
    tokens: Tokens
    most_bytes: int
    """Upper bound for the size of a request's body."""
    limits: CallerLimits
    drain_s: float
    """Upper bound for the time of requests in flight after the signal that ends the service."""
    host: str = "127.0.0.1"
    port: int = 8000
    certificate: str | None = None
    key: str | None = None
    audit_log: Path | None = None
    """None: it lies in the folder of all job folders."""
    requests_per_s: float | None = None
    """The limit of a token that has no limit of its own."""

    def run(self, show: Callable[[str], None]) -> None:
        """Serve until a signal ends the service; jobs continue without it."""
        close_to_same_user()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        refuse_foreign(self.folder)
        alone = held(self.folder / "lock", f"the folder of a service, {self.folder}")
        with alone, ListeningSocket(self.host, self.port, self.limits) as listener:
            self.queue.open()
            try:
                self._serve(listener, show)
            finally:
                self.queue.close()

    def _serve(self, listener: ListeningSocket, show: Callable[[str], None]) -> None:
        audit = AuditLog(self.audit_log or self.folder / "audit.jsonl")
        app = application(self.endpoint, Health(self.folder, self.queue))
        gate = Gate(app, self.tokens, self.most_bytes, audit, self.requests_per_s)
        server = Server(self._config(gate), self.drain_s, self.queue.drain)
        host, port = listener.getsockname()[:2]
        if not self.certificate and not host.startswith(LOOPBACK):
            show(
                f"Warning: {host} is seen by others, and tokens travel unprotected. Give "
                "--certificate and --key, or stand behind a proxy that has them."
            )
        kind = "https" if self.certificate else "http"
        shown = f"[{host}]" if ":" in host else host
        show(f"{self.endpoint.name} is served at {kind}://{shown}:{port}/jobs")
        with asyncio.Runner(loop_factory=partial(_Loop, self.limits)) as runner:
            runner.run(server.serve(sockets=[listener]))

    def _config(self, app: Gate) -> uvicorn.Config:
        config = uvicorn.Config(
            app,
            http=partial(Connection, self.limits),  # type: ignore[arg-type]
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
            ws="none",
            lifespan="off",
            log_level="error",  # a caller's mistakes are answered, and fill no log
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=self.certificate,
            ssl_keyfile=self.key,
        )
        try:
            config.load()
        except OSError as error:
            msg = f"--certificate {self.certificate} --key {self.key}: not usable: {error}."
            raise OptionError(msg) from error
        return config


class Server(uvicorn.Server):
    """The server of uvicorn, which ends slow connections, and lets requests in flight end.

    The first signal begins to drain: the server still answers, and calls `drain`, which has jobs
    refused. The second signal ends the process at once, as a crash would: that loses nothing.
    """

    def __init__(self, config: uvicorn.Config, drain_s: float, drain: Callable[[], None]) -> None:
        super().__init__(config)
        self._drain_s = drain_s
        self._drain = drain
        self._until_s: float | None = None
        self._in_flight: set[asyncio.Task[None]] = set()

    def handle_exit(self, sig: int, frame: types.FrameType | None) -> None:
        """Begin to drain; end at once when that has begun."""
        del sig, frame
        if self.should_exit:
            os._exit(0)
        self.should_exit = True
        self._drain()

    async def on_tick(self, counter: int) -> bool:
        """Look at all connections, about once a second; return whether to stop serving."""
        if counter % LOOK_EACH_TICKS == 0:
            for connection in self._connections():
                connection.check()
        return await super().on_tick(counter) and not self._is_draining()

    def _is_draining(self) -> bool:
        """Say whether requests that were in flight at the signal may still go on."""
        now_s = asyncio.get_running_loop().time()
        if self._until_s is None:
            self._until_s = now_s + self._drain_s
            self._in_flight = {*self.server_state.tasks}
        return now_s < self._until_s and any(not task.done() for task in self._in_flight)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and end what has not ended in time."""
        if any(not task.done() for task in self._in_flight):
            for connection in self._connections():
                connection.transport.abort()
        await super().shutdown(sockets)

    def _connections(self) -> list[Connection]:
        return [one for one in self.server_state.connections if isinstance(one, Connection)]


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers wait for a TLS handshake as long as for the head of a request."""

    def __init__(self, limits: CallerLimits) -> None:
        super().__init__()
        self._limits = limits

    async def create_server(self, *given: Any, **more: Any) -> asyncio.Server:
        """Listen."""
        if more.get("ssl"):
            more["ssl_handshake_timeout"] = more["ssl_shutdown_timeout"] = self._limits.head_s
        return await super().create_server(*given, **more)
