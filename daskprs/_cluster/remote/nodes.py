"""Nodes that do not see the job folder: sending inputs to them, and fetching their output.

A worker finds out whether it sees the folder when the job's plugin is set up (see
`agent.node.site`), and the driver asks for the answer before it sends leases. A worker that does
not see the folder receives the script's snapshot, once for all workers that share a disk. Its
leases carry the data that only the driver has. Its logs and large results are fetched.
"""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import Future as Promise
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._agent.node.site import THIS_PROCESS, DriverInfo, ProbeFile, new_probe, snapshot_key
from daskprs._agent.script.snapshot import refuse_too_large
from daskprs._cluster.connect import DaskSettings
from daskprs._cluster.lease import fetched
from daskprs._cluster.remote.logs import FarLogs
from daskprs._cluster.remote.node_service import NodeCalls, Unreachable
from daskprs._cluster.remote.transfer import bring, send
from daskprs._cluster.topics import forget, logs_topic
from daskprs._core.columnar import ColumnBatch
from daskprs._folders.job_folder import JobFolder, for_other_users
from daskprs._inputs.frames.inline_data import CarryingReader, FarReader, carried
from daskprs._inputs.source.input_file import is_url
from daskprs._inputs.source.pieces import Uncomputed
from daskprs._report.humanize import counted
from daskprs.errors import DaskprsError, Option, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distributed import Client, Future

    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._cluster.worker_events import Heartbeat
    from daskprs._core.lease import Lease, LeaseReturned
    from daskprs._core.stages import StageHost

IN_PROCESS = "inproc://"
THREADS = 16
READY_S = 1.0
"""Seconds that the driver waits once for new workers. Workers that need no files are ready much
sooner."""
LOGS_EVERY_S = 1.0
CARRIED_BYTES = 4 << 20
"""Bytes of data that a lease carries, at least one mini-batch: the scheduler holds them
meanwhile."""
END_S = 15.0
# Dask warns its users of graphs above 10 MB, and a lease that carries its rows may be one.
LARGE_LEASES = DaskSettings({"distributed.admin.large-graph-warning-threshold": "1TB"})


class FarNodes:
    """Serves workers that do not see the job folder; does nothing for others.

    The job has the driver's paths. `say` is called with a level and a sentence to show to the user.
    """

    def __init__(self, client: Client, job: JobSpec, say: Callable[[str, str], None]) -> None:
        self._client = client
        self._job = job
        self._folder = JobFolder(job.job_dir)
        self._say = say
        self._said: set[str] = set()
        self._over = threading.Event()
        self._call = NodeCalls(client, job.job_id)
        self._send = NodeCalls(client, job.job_id, until=self._over)
        """Calls that send files; the end of the job interrupts them, as they may take an hour."""
        self._logs = FarLogs(self._call, self._folder.logs)
        self._lives: dict[str, str] = {}
        """The life of each worker at the last look."""
        self._standing: dict[str, Promise[str]] = {}
        """For each worker its folder, empty if the worker sees the driver's job folder."""
        self._locks: dict[str, threading.Lock] = {}
        """For each folder, a lock held while files are sent to it."""
        self._busy: dict[str, Promise[None]] = {}
        """For each folder, the last task that copies its logs."""
        self._lock = threading.Lock()
        self._closing = ExitStack()
        self._threads: ThreadPoolExecutor | None = None
        self._output: ProbeFile | None = None
        self.origin = DriverInfo(THIS_PROCESS, ProbeFile("", ""), b"")
        """The driver's data that workers receive."""
        if not client.scheduler.address.startswith(IN_PROCESS):
            self._open()

    def _open(self) -> None:
        """Make ready for workers in other processes."""
        job, folder = self._job, self._folder
        self._reader = pickle.loads(job.reader)
        self._parcels = {one.key: (one.path, Path(one.path).name) for one in job.side_inputs}
        if job.script.source_directory is not None:
            for is_whole in (False, True):
                key = snapshot_key(job.script, is_whole=is_whole)
                self._parcels[key] = (job.script.source_directory, ".")
        self.origin = self.origin._replace(
            job_folder=new_probe(folder.seen(job.job_id), self._closing),
            reader=pickle.dumps(FarReader(self._reader)),
        )
        if not (job.output.text or job.output.typed or is_url(job.output_dir)):
            place = Path(job.output_dir, f".daskprs-seen.{job.job_id}")
            self._output = new_probe(place, self._closing)
        self._closing.enter_context(LARGE_LEASES.held())
        self._threads = ThreadPoolExecutor(THREADS, "daskprs-far")
        self._copier = threading.Thread(target=self._copy_logs, name="daskprs-logs", daemon=True)
        topic = logs_topic(job.job_id)
        self._client.subscribe_topic(topic, self._last_news)
        self._closing.callback(forget, self._client, topic)

    # ---- workers ----

    def ready(self, workers: Mapping[str, Heartbeat]) -> Mapping[str, Heartbeat]:
        """Return the workers that can receive leases; start to prepare the others.

        Raise `OutputError` if scripts write to a folder that a node does not see.
        """
        if self._threads is None:
            return workers
        lives = {address: worker.life for address, worker in workers.items()}
        for address in [*self._standing]:
            if lives.get(address) != self._lives[address]:
                del self._standing[address]  # the files sent to it went with its plugin
        self._lives = lives
        new = []
        for address, worker in workers.items():
            if address not in self._standing:
                self._standing[address] = self._threads.submit(self._prepare, address, worker.host)
                new.append(self._standing[address])
        wait(new, READY_S)
        return {address: worker for address, worker in workers.items() if self._is_ready(address)}

    def obstacles(self) -> tuple[str, ...]:
        """Return how many workers are being sent what the job needs, in clauses for people."""
        sending = sum(not standing.done() for standing in self._standing.values())
        if not sending:
            return ()
        return (f"{counted(sending, 'worker')} being sent the script and its files",)

    def _is_ready(self, address: str) -> bool:
        standing = self._standing.get(address)
        if standing is None or not standing.done():
            return False
        error = standing.exception()
        if isinstance(error, DaskprsError):
            raise error
        if error is not None:  # it went meanwhile, or its plugin is not there yet: once more
            del self._standing[address]
            if not isinstance(error, Unreachable):
                told = f"the worker {address} cannot be given what the job needs: {error}"
                self._say_once("warning", told)
        elif standing.result():
            told = f"the worker {address} does not see the job folder: what it needs was sent to it"
            self._say_once("info", told)
        return error is None

    def _say_once(self, level: str, told: str) -> None:
        if told not in self._said:
            self._said.add(told)
            self._say(level, told)

    def _far(self, address: str) -> str:
        """Return the folder of a worker that does not see ours; empty for others."""
        standing = self._standing.get(address)
        if standing is None or not standing.done() or standing.exception() is not None:
            return ""
        return standing.result()

    def _prepare(self, address: str, host: str) -> str:
        """Send a worker the files it lacks; return its folder, empty if it sees ours."""
        seen = self._call(address, "look", self._output)
        if not seen["sees_output"]:
            raise _unseen_output(self._job, host)
        if seen["lacks"]:
            with self._lock_of(seen["store"]):
                # Asked again under the lock: another worker of the node may have received the files
                # meanwhile.
                for key in self._call(address, "look", None)["lacks"]:
                    place, name = self._parcels[key]
                    left_out = self._left_out(key, host)
                    send(Path(place), name, key, self._send, address, left_out)
        folder: str = seen["folder"]
        if not folder:
            return ""
        with self._lock:
            if not self._copier.is_alive() and not self._over.is_set():
                self._copier.start()
        return folder

    def _left_out(self, key: str, host: str) -> frozenset[str]:
        """Return the files of a snapshot that are not sent, since the node links to them.

        Raise `ScriptError` if the node does not see them, and they are too large to travel.
        """
        script = self._job.script
        if key == snapshot_key(script, is_whole=True):
            folder = Path(script.source_directory or "")
            files = {str(one.relative_to(folder)): one for one in folder.rglob("*")}
            sizes = {name: one.stat().st_size for name, one in files.items() if one.is_file()}
            original = Path(script.original_directory or folder)
            refuse_too_large(original, sizes, f" on {host}, which does not see it")
        elif key == snapshot_key(script, is_whole=False):
            return frozenset(file.path for file in script.linked)
        return frozenset()

    def _lock_of(self, folder: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(folder, threading.Lock())

    def alike(self, worker: str, hosts: tuple[StageHost, ...]) -> tuple[StageHost, ...]:
        """Return those of some workers that can load what a lease has for this one."""
        if not hosts or self._threads is None or not isinstance(self._reader, CarryingReader):
            return hosts
        is_far = bool(self._far(worker))
        return tuple(one for one in hosts if bool(self._far(one.worker)) == is_far)

    # ---- leases ----

    def loaded(self, lease: Lease, worker: str) -> Lease:
        """Return a lease with the data that its worker does not see.

        Only the first mini-batches of a large lease are kept; the others are leased again.
        """
        if not self._far(worker) or not isinstance(self._reader, CarryingReader):
            return lease
        work = []
        size = 0
        for assigned in lease.work:
            if isinstance(assigned.mini_batch.piece, Uncomputed):
                return lease  # it has no rows
            mini_batch = carried(assigned.mini_batch, self._reader)
            work.append(assigned._replace(mini_batch=mini_batch))
            size += len(mini_batch.piece.body)
            if size >= CARRIED_BYTES:
                break
        return replace(lease, work=ColumnBatch(work))

    def deliver(
        self, worker: str, lease_id: int, put: Callable[[tuple[int, Any]], None], future: Future
    ) -> None:
        """Put an ended lease into the inbox: its future, or what was fetched from its node.

        That is None if its worker went meanwhile.
        """
        if self._threads is None or future.status != "finished" or not self._far(worker):
            put((lease_id, future))
            return
        with suppress(RuntimeError):  # the job is over
            self._threads.submit(self._bring, worker, lease_id, put, future)

    def _bring(
        self, worker: str, lease_id: int, put: Callable[[tuple[int, Any]], None], future: Future
    ) -> None:
        result: LeaseReturned | None = None
        try:
            # A scheduler that has stopped would hold up the end of the job: a resume runs it again.
            returned = fetched(
                future,
                self._client,
                lambda: worker in self._standing and not self._over.is_set(),
            )
            if returned is not None:
                result = bring(returned, self._call, worker, self._job)
        finally:
            put((lease_id, result))

    # ---- logs ----

    def _folders(self) -> dict[str, str]:
        """Return the folders of nodes, each with a worker that sees it."""
        return {folder: worker for worker in [*self._standing] if (folder := self._far(worker))}

    def _copy_logs(self) -> None:
        while not self._over.wait(LOGS_EVERY_S):
            for folder, worker in self._folders().items():
                busy = self._busy.get(folder)
                if self._threads is not None and (busy is None or busy.done()):
                    with suppress(RuntimeError):  # the job is over
                        self._busy[folder] = self._threads.submit(
                            self._logs.fetch_news, folder, worker
                        )

    def _last_news(self, event: tuple[float, Any]) -> None:
        """Write the rest of the logs of a leaving worker (called by Dask's loop)."""
        folder, pieces = pickle.loads(event[1])
        with suppress(OSError):
            self._logs.write(folder, pieces)

    # ---- the end ----

    def close(self) -> None:
        """End the agents on far nodes, and fetch the rest of their logs."""
        self._over.set()
        if self._threads is None:
            return
        with self._threads as threads:
            far = [worker for worker in self._standing if self._far(worker)]
            wait([threads.submit(self._end, worker) for worker in far])
            wait([threads.submit(self._logs.fetch_rest, *one) for one in self._folders().items()])
        if self._copier.ident is not None:
            self._copier.join()
        self._logs.close()
        self._closing.close()

    def _end(self, worker: str) -> None:
        with suppress(Unreachable):
            self._call(worker, "end", within_s=END_S)


def _unseen_output(job: JobSpec, host: str) -> OutputError:
    folder = JobFolder(job.job_dir)
    inside = Path(job.output_dir).is_relative_to(folder.path)
    return OutputError(
        Option("output_dir", job.output_dir),
        f" is not visible from the node {host}, where files of the script would be lost. "
        "Name a path that all nodes share, or a URL such as s3://bucket/folder."
        f"{for_other_users(folder) if inside else ''}",
    )
