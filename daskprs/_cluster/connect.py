"""The cluster that a job runs on: the one given, the current one, or one in this process."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import warnings
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socket import gaierror
from typing import TYPE_CHECKING, Any, TypeVar

import dask
from dask.utils import parse_timedelta
from distributed import (
    Client,
    LocalCluster,
    Security,
    Worker,
    core,
    default_client,
    rejoin,
)
from distributed.comm import connect
from distributed.core import send_recv
from distributed.utils import get_ip, silence_logging_cmgr

from daskprs._cluster.thread_pool import leave_the_threads
from daskprs._options.client_rules import SCHEDULER_FILE
from daskprs._system import forks
from daskprs._system.scarcity import explain
from daskprs.errors import AgentError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = logging.getLogger("daskprs.cluster")
T = TypeVar("T", Client, LocalCluster)
SILENT = logging.CRITICAL
LOOPBACK = "127.0.0.1:0"


class _Worker(Worker):  # type: ignore[misc] # distributed is not typed
    """A worker without a dashboard, which `LocalCluster` asks for with each HTTP server.

    Where bokeh is not installed, the import of the dashboard fails, and in another way if another
    thread imports the dashboard, too: then the worker did not start.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "dashboard": False})


IN_PROCESS = {
    "processes": False,
    "worker_class": _Worker,
    "n_workers": 1,
    # A worker that holds no data needs no limit; with one, it would pause when the caller holds
    # a big frame, since they are one process.
    "memory_limit": 0,
    # Dask starts its HTTP servers even without a dashboard: on loopback they stay private.
    "scheduler_kwargs": {"dashboard": False, "dashboard_address": LOOPBACK},
    "worker_dashboard_address": LOOPBACK,
    "silence_logs": SILENT,
}
QUIET = {
    "distributed.admin.tick.limit": "1h",
    # Dask keeps its last messages for debugging, and with them every lease that they carried: a
    # kilobyte for each mini-batch.
    "distributed.admin.low-level-log-length": 10,
    # The profiler of a worker asks for the stacks of all threads, a hundred times a second. Under
    # Python 3.11, a garbage collection in the middle of that may freeze the whole process for ever
    # where another thread starts a thread (CPython issue 106883). That was seen here, with 3.11.7.
    "distributed.worker.profile.enabled": False,
}

ADDRESS = (
    "Give the address that the scheduler prints when it starts, such as tcp://host:8786; that of a "
    "scheduler with TLS begins with tls://."
)
CERTIFICATES = (
    "Dask's config has to name the certificates of this cluster, as distributed.comm.tls.ca-file, "
    ".client.cert and .client.key; in Python, client= takes a Client made with security=."
)
CONNECT_PART = 0.9
"""The part of the timeout after which Dask says why it cannot connect."""
GRACE_S = 5.0
"""Seconds more for a connection whose event loop was kept from running."""


class DaskSettings:
    """Settings of Dask for this process, in force while any of its jobs needs them.

    Jobs in several threads end in any order. If each restored the settings that it found, the last
    one might restore another job's settings. So it is with Dask's log, if it `is_silent`, too: a
    cluster that finds it so leaves it as it is; else the first one that is closed would restore the
    log for all others.
    """

    def __init__(self, settings: dict[str, object], *, is_silent: bool = False) -> None:
        self._settings = settings
        self._is_silent = is_silent
        self._lock = threading.Lock()
        self._holders = 0
        self._set = ExitStack()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Apply the settings within the block."""
        with self._lock:
            if self._holders == 0:
                self._set.enter_context(dask.config.set(self._settings))
                if self._is_silent:
                    self._set.enter_context(silence_logging_cmgr(SILENT))
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    self._set.close()


_QUIET = DaskSettings(QUIET, is_silent=True)


def scheduler_address(client: str) -> str:
    """Return an address: the one given, or the one in a scheduler file.

    A batch script starts its scheduler in the background, and a job in the next line. So a file
    that is not there yet may come within Dask's connect timeout (its own client waits for ever).
    Raise `OptionError` if the file has no address.
    """
    if not client.endswith(SCHEDULER_FILE):
        return client
    timeout_s = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    end = time.monotonic() + timeout_s
    while not _is_written(Path(client)) and time.monotonic() < end:
        time.sleep(0.05)
    try:
        return str(json.loads(Path(client).read_text())["address"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it has no address"
        raise OptionError(
            Option("client", client),
            f": the scheduler file cannot be used: {why}. `dask scheduler --scheduler-file` "
            "writes it when it starts.",
        ) from error


def _is_written(file: Path) -> bool:
    """Say whether a file is there; Dask's scheduler makes it empty, and then writes it."""
    try:
        return file.stat().st_size > 0
    except OSError:
        return False


def check_scheduler(client: str) -> None:
    """Refuse an address at which no Dask scheduler answers within Dask's connect timeout.

    `client` is the address, or a scheduler file. A client that cannot connect delays the exit of
    Python. So the scheduler is asked for its identity first, over a connection without a client.
    Raise `OptionError` with the reason, and `AgentError` where this machine allows no more open
    files or threads, which asking takes.
    """
    if dask.config.get("distributed.client.security-loader", None):
        return  # only a client knows how to log in there
    address = scheduler_address(client)
    timeout_s = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    answer: Future[str] = Future()
    asked = threading.Thread(
        target=_ask_in_a_loop,
        args=(address, timeout_s, answer),
        name="daskprs-connect",
        daemon=True,  # Ctrl-C does not wait for it, nor for a name server
    )
    try:
        asked.start()
        kind = answer.result(timeout_s + GRACE_S)
    except TimeoutError:
        why = f"there was no answer within {timeout_s:g} s"
    except Exception as error:  # whatever addresses, networks and TLS raise
        limit = explain(error)
        if limit:
            msg = f"The scheduler at {address} cannot be asked whether it is there: {error}. "
            raise AgentError(msg + limit) from error
        why = _why_unreachable(error, address)
    else:
        if kind == "Scheduler":
            return
        why = f"a {kind} answers there"
    advice = CERTIFICATES if address.startswith("tls://") else ADDRESS
    raise OptionError(
        Option("client", client),
        f": no Dask scheduler can be reached: {why.rstrip('.')}. {advice}",
    )


def _why_unreachable(error: Exception, address: str) -> str:
    """Return in a word why nothing answers at an address, or what Dask says."""
    causes, cause = [], error.__cause__
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(one, gaierror) for one in causes):
        return f"the host of {address} has no address: its name is not known here"
    if any("Connection refused" in f"{one}" for one in (error, *causes)):
        return f"nothing listens at {address}: the connection was refused"
    because = f" ({causes[0]})" if causes and str(causes[0]) else ""
    return f"{str(error) or type(error).__name__}{because}"


def _ask_in_a_loop(address: str, timeout_s: float, answer: Future[str]) -> None:
    """Ask in an event loop of this thread; the error is the answer where there can be no loop."""
    try:
        asyncio.run(_ask(address, timeout_s, answer))
    except Exception as error:  # noqa: BLE001 - raised again by the thread that asks
        if not answer.done():
            answer.set_exception(error)


async def _ask(address: str, timeout_s: float, answer: Future[str]) -> None:
    """Set the answer to the kind of server at an address, or to the error."""
    try:
        answer.set_result(await asyncio.wait_for(_kind(address, timeout_s), timeout_s))
    except Exception as error:  # noqa: BLE001 - raised again by the thread that asks
        answer.set_exception(error)


async def _kind(address: str, timeout_s: float) -> str:
    arguments: dict[str, Any] = Security().get_connection_args("client")
    comm = await connect(address, timeout=CONNECT_PART * timeout_s, **arguments)
    try:
        identity = await send_recv(comm, op="identity")
    finally:
        comm.abort()
    return str(identity["type"])


@contextmanager
def connected(client: Client | str | None, threads: int) -> Iterator[Client]:
    """Yield a client; a client or cluster started here is closed afterwards.

    `client` is a client, an address, a scheduler file, or None: the current client if there is one,
    else an in-process cluster with so many threads, which is not made the default. Raise
    `OptionError` if no scheduler answers at the address.
    """
    # A fork of this process has no copies of Dask's threads, and a job in it would wait for them
    # for ever. So it is refused there.
    forks.note_dask()
    client = current_client() if client is None else client
    if isinstance(client, str):
        check_scheduler(client)
        with _owned(Client(scheduler_address(client), set_as_default=False)) as own:
            yield own
    elif client is not None:
        yield client
    else:
        with _in_process(threads) as own:
            yield own


@contextmanager
def outside_pool() -> Iterator[None]:
    """Leave the thread pool of the Dask task that this thread runs, if there is one.

    A task that keeps its thread while it waits for a job of its own cluster may wait for ever,
    since leases need a thread to begin. Addresses do not tell which cluster that is, since each has
    several spellings: a job on another cluster leaves the pool, too, and loses nothing by it. A
    task that has left the pool before does not return here. Errors are those of `leave_pool`.
    """
    left = leave_pool()
    try:
        yield
    finally:
        if left:
            with suppress(RuntimeError):  # the worker is being closed
                rejoin()


def leave_pool() -> bool:
    """Leave the thread pool, and say whether this thread runs a task that was in it.

    Raise `AgentError` if the worker cannot start a thread in place of this one.
    """
    try:
        leave_the_threads()
    except (ValueError, AttributeError, KeyError):  # no task, a coroutine, or a task outside
        return False
    except RuntimeError as error:
        msg = f"the worker could not start a thread in place of the one of this job: {error}. "
        raise AgentError(f"{msg}{explain(error)}".rstrip()) from error
    return True


def current_client() -> Client | None:
    """Return the client that Dask itself would use, or None."""
    try:
        return default_client()
    except ValueError:
        return None


@contextmanager
def _in_process(threads: int) -> Iterator[Client]:
    _choose_name()
    with (
        _QUIET.held(),
        _owned(LocalCluster(threads_per_worker=threads, **IN_PROCESS)) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
    with suppress(AttributeError):  # another version of Dask
        # Dask keeps the handlers of schedulers and workers, and so these themselves, for ever: some
        # hundred kilobytes for each job.
        core._expects_comm.cache_clear()  # noqa: SLF001 - there is no public name


def _choose_name() -> None:
    """Let Dask choose the host in the addresses of this process, which it keeps.

    On a host without a route to the internet, such as a node of a batch system, Dask warns that
    other hosts cannot reach the address. None of them has to.
    """
    with warnings.catch_warnings(), suppress(OSError):
        warnings.simplefilter("ignore", RuntimeWarning)
        get_ip()


@contextmanager
def _owned(started: T) -> Iterator[T]:
    """Yield a cluster or client whose loop is its own, and close it.

    In a program that ends, Python 3.12.0 to 3.12.2 start no thread (CPython issue 113964), and the
    end of a loop may need one. This error must not replace the interrupt of a job that such a
    program cancels.
    """
    try:
        started.loop.asyncio_loop.set_exception_handler(_report)
        yield started
    finally:
        try:
            started.close()
        except RuntimeError:
            LOG.debug("the end of %s", started, exc_info=True)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error of a loop, unless it is a wait that was over when the loop ended.

    Dask waits with a time limit for messages that it sends in batches. If the loop ends at the time
    limit, no coroutine is left that would receive the error, and asyncio would print it.
    """
    is_of_a_future = str(context.get("message")).startswith("Future exception was never retrieved")
    if not (is_of_a_future and isinstance(context.get("exception"), TimeoutError)):
        loop.default_exception_handler(context)
