"""A worker's part in bringing rows together by key: it deals pieces out, and gathers parts.

A dealt piece is a file of its worker, and the result of a Dask task. The driver holds all of these
results, so Dask deals a piece out again when its worker is lost. A gather asks the scheduler which
workers have the pieces, and waits for those that are lost.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from distributed import WorkerPlugin, get_worker, rejoin
from distributed.comm import get_address_host
from distributed.protocol import to_serialize

from daskprs._agent.node.environment import agent_environment, usable_cores
from daskprs._agent.supervision.helper_pool import HelperPool
from daskprs._cluster.aside import called_aside
from daskprs._cluster.thread_pool import leave_the_threads
from daskprs._inputs.collections.node_file import NodeFile, new_name
from daskprs._inputs.keys.dealing import DealtPart, deal_by, dealt_part
from daskprs._inputs.keys.gathering import Gathered, gather
from daskprs._inputs.keys.shuffle import file_of
from daskprs._system.memory import usable_bytes
from daskprs.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping

    from distributed import Worker

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.collections.staging import StagedPartition
    from daskprs._inputs.keys.partition_keys import KeyPiece
    from daskprs._system.seal import SealKey

T = TypeVar("T")
READ_BYTES = 8 << 20
"""Bytes of another worker's files that one answer has, or one part of one piece."""
AGAIN_S = 0.2
"""Seconds between questions for lost pieces."""
PLUGIN_S = 60.0
"""Seconds in which a worker that has a task gets the plugin, too."""
Key: TypeAlias = tuple[str, int]
"""The key of a task that deals a piece out."""
Range: TypeAlias = tuple[int, int, int]
"""The number of a piece, an offset and a length in its file."""
TRIES = 5
"""Number of times that a gather begins anew because files went while it read them."""


class Dealing(NamedTuple):
    """An exchange, as its workers know it."""

    name: str
    """The name of the plugin, and the operation by which workers ask each other for files."""
    reader: bytes
    """The pickled reader of the table, for a worker that may be on another machine."""
    keys: tuple[str, ...]
    parts: int
    seal_key: SealKey
    """The key of the checksums of dealt pieces."""
    shared: str | None
    """The gathered files if all workers see their folder; None: they stay with their workers."""
    labelled: bool
    """Whether the driver needs the numbers of the rows."""
    in_helpers: bool
    """Whether the work is large enough for other processes."""
    timeout_s: float
    """Seconds that a helper has for a piece or a part."""


def deal_key(name: str, piece: int) -> Key:
    """Return the key of the task that deals a piece out."""
    return f"{name}-deal", piece


@dataclass
class GatheredPart:
    """A gathered part: its index, and its file unless that lies in the shared folder."""

    index: Gathered
    file: NodeFile | None

    def placed(self, piece: KeyPiece, folder: Path) -> KeyPiece:
        """Return the piece for an agent of this node; a file that has just arrived is written."""
        return piece if self.file is None else piece._replace(path=str(self.file.at(folder)))

    def remove(self) -> None:
        """Remove the file: the job is over."""
        if self.file is not None:
            self.file.remove()


def deal_piece(name: str, piece: int, mini_batches: list[MiniBatch]) -> NodeFile:
    """Deal the rows of a piece out (a Dask task)."""
    return _plugin(name).deal(piece, mini_batches)


def deal_partition(name: str, mini_batch: MiniBatch, partition: StagedPartition) -> NodeFile:
    """Deal the rows of a staged partition out (a Dask task)."""
    plugin = _plugin(name)
    piece = partition.placed(mini_batch.piece, plugin.folder)
    return plugin.deal(mini_batch.index, [mini_batch._replace(piece=piece)])


def gather_part(name: str, part: int, pieces: int) -> GatheredPart:
    """Gather the rows of a part from all pieces (a Dask task)."""
    return _plugin(name).gather(part, [deal_key(name, piece) for piece in range(pieces)])


def index_of(gathered: GatheredPart) -> tuple[Gathered, str]:
    """Return the index of a part for the driver, and its worker (a Dask task, where it lies)."""
    return gathered.index, get_worker().address


async def rest(name: str, dask_worker: Worker) -> None:
    """End the idle helpers of an exchange; meanwhile the worker's loop goes on."""
    plugin = dask_worker.plugins.get(name)
    if plugin is not None:
        await called_aside(plugin.helpers.rest)


def _plugin(name: str) -> ExchangePlugin:
    worker, until = get_worker(), time.monotonic() + PLUGIN_S
    while name not in worker.plugins:
        if time.monotonic() > until:
            msg = f"the worker {worker.address} has not got the plugin {name} in {PLUGIN_S:g} s."
            raise AgentError(msg)
        time.sleep(0.01)
    plugin: ExchangePlugin = worker.plugins[name]
    return plugin


class ExchangePlugin(WorkerPlugin):  # type: ignore[misc] # distributed is not typed
    """Deals and gathers on one worker, and gives other workers what they gather.

    `environment` has the variables that the user sets for the agents, and `agents` how many of them
    each host will have, as far as the driver knows.
    """

    idempotent = True

    def __init__(
        self, dealing: Dealing, environment: Mapping[str, str], agents: Mapping[str, int]
    ) -> None:
        self.name = dealing.name
        self._dealing = dealing
        self._user_environment = dict(environment)
        self._agents = agents

    async def setup(self, worker: Worker) -> None:
        """Make ready; the first task starts the helpers."""
        self._worker = worker
        self._over = threading.Event()
        self.folder = Path(worker.local_directory, self.name)
        self.folder.mkdir(parents=True, exist_ok=True)
        # The agents take the helpers' zygote if it has their environment.
        agents = self._agents.get(get_address_host(worker.address), worker.state.nthreads)
        threads = usable_cores() // agents
        environment = agent_environment(os.environ, self._user_environment, threads=threads)
        self.helpers = HelperPool(environment, self._dealing.timeout_s)
        worker.handlers[self.name] = self._serve

    async def teardown(self, worker: Worker) -> None:
        """End the helpers, and remove the files."""
        self._over.set()
        if worker.handlers.get(self.name) == self._serve:
            del worker.handlers[self.name]
        await called_aside(self._close)

    def _close(self) -> None:
        self.helpers.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- tasks, in threads ----

    def deal(self, piece: int, mini_batches: list[MiniBatch]) -> NodeFile:
        """Deal the rows of a piece out, into a file of this worker."""
        dealing, path = self._dealing, self._new_file()
        size = sum(one.size_bytes or 0 for one in mini_batches)
        what = f"deal out piece {piece} ({size:,} bytes) by key"
        arguments = dealing.reader, mini_batches, dealing.keys, dealing.parts, path
        try:
            self._called(what, deal_by, *arguments, dealing.seal_key, dealing.in_helpers)
        except BaseException:  # half a file would keep a full disk full
            path.unlink(missing_ok=True)
            raise
        return NodeFile(path)

    def gather(self, part: int, keys: list[Key]) -> GatheredPart:
        """Gather a part, anew if a piece is lost meanwhile."""
        for attempt in range(1, TRIES + 1):
            inbox = self._new_file()
            try:
                return self._gathered(part, keys, inbox)
            except FileNotFoundError:
                if attempt == TRIES:
                    raise
            finally:
                inbox.unlink(missing_ok=True)
        raise AssertionError

    def _gathered(self, part: int, keys: list[Key], inbox: Path) -> GatheredPart:
        pieces = self._fetched(part, keys, inbox) or self._later(part, keys, inbox)
        dealing, size = self._dealing, sum(one.length for one in pieces)
        what = f"put together part {part} ({size:,} bytes) by key"
        path = self._new_file()
        try:
            limit = self._memory_bytes()
            arguments = dealing.keys, part, pieces, path, dealing.seal_key, limit, dealing.labelled
            index: Gathered = self._called(what, gather, *arguments)
            if dealing.shared is None:
                return GatheredPart(index, NodeFile(path))
            target = file_of(Path(dealing.shared), part)
            here = target.with_name(f"{target.name}.{path.name}")
            try:
                shutil.move(path, here)
                # By a rename, since a worker that Dask has given up may still write the same part.
                here.replace(target)
            except BaseException:  # the same
                here.unlink(missing_ok=True)
                raise
        except BaseException:  # half a file would keep a full disk full
            path.unlink(missing_ok=True)
            raise
        return GatheredPart(index, None)

    def _called(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._dealing.in_helpers:
            return self.helpers.call(what, function, *arguments)
        return function(*arguments)

    def _new_file(self) -> Path:
        return self.folder / new_name()

    def _memory_bytes(self) -> int | None:
        known = [self._worker.memory_manager.memory_limit, usable_bytes()]
        return min((one for one in known if one), default=None)

    # ---- pieces of all workers ----

    def _later(self, part: int, keys: list[Key], inbox: Path) -> list[DealtPart]:
        """Fetch the pieces once all are there again; meanwhile others may have this thread."""
        leave_the_threads()
        pieces = None
        while pieces is None:
            if self._over.wait(AGAIN_S):
                msg = "the job is over: no more rows are brought together."
                raise AgentError(msg)
            pieces = self._fetched(part, keys, inbox)
        rejoin()
        return pieces

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the worker's loop do something, and return the result."""
        return asyncio.run_coroutine_threadsafe(work, self._worker.loop.asyncio_loop).result()

    def _fetched(self, part: int, keys: list[Key], inbox: Path) -> list[DealtPart] | None:
        """Return a part's place in all pieces; None if some pieces cannot be had now.

        What lies on another machine is fetched into the inbox.
        """
        inbox.unlink(missing_ok=True)
        holders = self._wait_for(self._worker.scheduler.who_has(keys=keys))
        by_worker: dict[str, list[int]] = {}
        for piece, key in enumerate(keys):
            if not holders.get(key):
                return None
            own = self._worker.address in holders[key]
            holder = self._worker.address if own else holders[key][0]
            by_worker.setdefault(holder, []).append(piece)
        found: dict[int, DealtPart] = {}
        for worker, pieces in by_worker.items():
            try:
                found.update(self._brought(worker, pieces, part, inbox))
            except OSError:  # the worker, or a file of it, has gone
                return None
        if len(found) < len(keys):
            return None
        return [found[piece] for piece in range(len(keys))]

    def _brought(
        self, worker: str, pieces: list[int], part: int, inbox: Path
    ) -> dict[int, DealtPart]:
        """Return a part's place in pieces of a worker; fetch what this worker does not see."""
        offered = self._ask(worker, "offer", pieces, part)
        found = {piece: DealtPart(*place) for piece, place in offered}
        unseen = [
            (piece, place.offset, place.length)
            for piece, place in found.items()
            if place.length and not os.path.exists(place.path)  # noqa: PTH110 - each of many
        ]
        if unseen:
            with inbox.open("ab") as file:
                at = file.tell()
                for ranges in _requests(unseen):
                    file.write(self._ask(worker, "read", ranges))
            for piece, _, length in unseen:
                found[piece] = found[piece]._replace(path=str(inbox), offset=at)
                at += length
        return found

    def _ask(self, worker: str, what: str, *given: Any) -> Any:
        """Ask a worker, perhaps this one, about its pieces."""
        if worker == self._worker.address:
            return self._wait_for(self._answer(what, *given))
        operation = getattr(self._worker.rpc(worker), self.name)
        answer = self._wait_for(operation(what=what, given=to_serialize(given)))
        if answer is None:  # it is closing, or another one has its address: it has no such handler
            msg = f"the worker {worker} does not deal out any more"
            raise ConnectionError(msg)
        return answer["result"]

    async def _serve(self, what: str, given: tuple[Any, ...]) -> dict[str, Any]:
        return {"result": to_serialize(await self._answer(what, *given))}

    async def _answer(self, what: str, *given: Any) -> Any:
        data, files = self._worker.data, {}
        pieces = given[0] if what == "offer" else {piece for piece, _, _ in given[0]}
        for piece in pieces:
            with suppress(KeyError):  # it has just gone
                files[piece] = data[deal_key(self.name, piece)]
        work = self._offer if what == "offer" else self._read
        return await called_aside(work, files, *given)

    def _offer(
        self, files: Mapping[int, NodeFile], pieces: list[int], part: int
    ) -> list[tuple[int, DealtPart]]:
        """Return a part's place in the pieces that are here."""
        del pieces
        return [
            (piece, dealt_part(str(file.at(self.folder)), part)) for piece, file in files.items()
        ]

    def _read(self, files: Mapping[int, NodeFile], ranges: list[Range]) -> bytes:
        """Return the bytes at some places of the pieces; a piece that has gone is an error."""
        bodies = []
        for piece, offset, length in ranges:
            if piece not in files:
                msg = f"piece {piece} has gone"
                raise ConnectionError(msg)
            with files[piece].at(self.folder).open("rb") as file:
                bodies.append(os.pread(file.fileno(), length, offset))
        return b"".join(bodies)


def _requests(ranges: Iterable[Range]) -> Iterator[list[Range]]:
    """Yield places of `READ_BYTES` in all, and of what is left."""
    some: list[Range] = []
    size = 0
    for piece, begin, length in ranges:
        offset, end = begin, begin + length
        while offset < end:
            taken = min(end - offset, READ_BYTES - size)
            some.append((piece, offset, taken))
            offset += taken
            size += taken
            if size == READ_BYTES:
                yield some
                some, size = [], 0
    if some:
        yield some
