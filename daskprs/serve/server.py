"""The service as a process: its socket, its server, its shutdown."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, NamedTuple

import uvicorn

from daskprs.errors import OptionError
from daskprs.serve.app import application
from daskprs.serve.auth_middleware import Gate
from daskprs.serve.endpoint import Endpoint
from daskprs.serve.job_queue import JobQueue
from daskprs.system.file_lock import held

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from daskprs.serve.allowed_paths import Roots
    from daskprs.serve.deployment import Deployments
    from daskprs.serve.tokens import Tokens

GRACE_S = 5
BACKLOG = 2048
LOOPBACK = ("127.", "::1")


class Service(NamedTuple):
    """The settings of a service."""

    name: str
    deployments: Deployments
    tokens: Tokens
    inputs: Roots
    outputs: Roots
    folder: Path
    """The folder of all job folders."""
    max_jobs: int
    max_queued: int
    most_bytes: int
    """Upper bound for the size of a request's body."""
    host: str = "127.0.0.1"
    port: int = 8000
    certificate: str | None = None
    key: str | None = None

    def run(self, show: Callable[[str], None]) -> None:
        """Serve until a signal ends the service; jobs continue without it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        alone = held(self.folder / "lock", f"the folder of a service, {self.folder}")
        with alone, _listening(self.host, self.port) as listener:
            queue = JobQueue(self.folder, self.max_jobs, self.max_queued)
            queue.open()
            try:
                self._serve(queue, listener, show)
            finally:
                queue.close()

    def _serve(self, queue: JobQueue, listener: socket.socket, show: Callable[[str], None]) -> None:
        endpoint = Endpoint(
            self.name,
            self.deployments,
            self.inputs,
            self.outputs,
            queue,
            lambda: server.should_exit,
        )
        gate = Gate(application(endpoint), self.tokens, self.most_bytes)
        server = uvicorn.Server(self._config(gate))
        host, port = listener.getsockname()[:2]
        if not self.certificate and not host.startswith(LOOPBACK):
            show(
                f"Warning: {host} is seen by others, and tokens travel unprotected. Give "
                "--certificate and --key, or stand behind a proxy that has them."
            )
        kind = "https" if self.certificate else "http"
        shown = f"[{host}]" if ":" in host else host
        show(f"{self.name} is served at {kind}://{shown}:{port}/jobs")
        server.run(sockets=[listener])

    def _config(self, app: Gate) -> uvicorn.Config:
        config = uvicorn.Config(
            app,
            http="h11",
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_level="warning",
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


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        near = " Give another --port." if error.errno == errno.EADDRINUSE else ""
        msg = f"--host {host} --port {port}: this address cannot be served: {error.strerror}.{near}"
        raise OptionError(msg) from error
