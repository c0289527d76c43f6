"""Plays the job of a seed: one or several drivers, a cluster, and what befalls them."""

from __future__ import annotations

import random
import shutil
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from daskprs._agent.protocol.messages import JobSpec, ScriptSpec
from daskprs._cluster.cluster_slots import ClusterSlots
from daskprs._cluster.slot_allocator import SlotAllocator
from daskprs._core.actions import Commit, FailAttempt
from daskprs._core.ending import JobStatus
from daskprs._core.ledger import Ledger
from daskprs._core.limits import Limits
from daskprs._core.mini_batch import MiniBatch
from daskprs._driver.dispatch import Dispatcher
from daskprs._driver.inline_slots import InlineSlots
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import locked
from daskprs._folders.rows_seal import make_salt
from daskprs._output.dataset import earlier_parts, ordered_parts  # noqa: F401 - before clocks are replaced
from daskprs._output.journal.recovery import Resumption
from daskprs._output.spec import OutputSpec
from daskprs._output.store import ResultStore
from daskprs._system.hidden_values import HiddenValues
from daskprs.errors import DaskprsError
from tests.simulation.agents import (
    DIES,
    GOOD,
    HANGS,
    POISONS,
    RAISES,
    Act,
    Pool,
    Script,
    numbers_of,
    rows_of,
)
from tests.simulation.cluster import Client, Cluster, Worker
from tests.simulation.disk import OPEN_TO, Disk
from tests.simulation.world import Died, Executor, Process, World, installed, now, replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SPECS = {
    "text": OutputSpec(text=True, typed=False),
    "jsonl": OutputSpec(text=True, typed=False, format="jsonl", single_file=True),
    "parquet": OutputSpec(text=True, typed=False, format="parquet", file_size_bytes=2_000),
}
RESUMES = 3
"""Moments at which the power is lost, for each seed."""
MOST_DRIVERS = 12
EARLIER = b"another output\n"
TICK_S = 1.0
"""Between two turns of a driver without news: a quarter of those of production, to save time."""
TELL_EVERY_MS = 1000
"""Between two heartbeats of a worker: half as many as in production, for the same reason."""


@dataclass
class Scenario:
    """What a seed decides before anything happens."""

    seed: int
    count: int
    """Number of mini-batches."""
    hosts: int
    threads: int
    """Of each worker."""
    limits: Limits
    seconds: float
    """The usual length of a mini-batch."""
    latency_s: float
    bad: dict[int, list[str]]
    """What befalls the attempts at a mini-batch, one after the other; the last one for ever."""
    strikes: list[tuple[float, str]]
    """What befalls the cluster, and when."""
    on_disk: dict[tuple[str, int], str]
    """What befalls the operations of drivers on the disk, by the moment and their number in it."""
    lies: bool
    """Whether the disk of the first driver syncs nothing."""
    init_fails: set[int]
    """Starts of agents that fail, by their number."""
    form: str = "text"
    """The form of the output."""
    replaces: bool = False
    """Whether another output has the name, until the job replaces it."""

    @property
    def spec(self) -> OutputSpec:
        """The rows that are kept."""
        return SPECS[self.form]

    @property
    def must_fail(self) -> bool:
        """Whether more mini-batches fail than may."""
        return 0 <= self.limits.allowed_failed_count < len(self.settled_bad)

    @property
    def settled_bad(self) -> set[int]:
        """The mini-batches that fail in each attempt."""
        return {index for index, acts in self.bad.items() if acts[-1] != GOOD}


COUNTS = (1, 2, 2, 3, 3, 4, 4, 5, 6, 8, 12, 20)
"""Numbers of mini-batches. Most jobs are small: a fault that a large one shows, ten small ones show
sooner."""
STARTS_S = 1.5
"""About the seconds until the first mini-batch has run."""
STRIKES = (
    *("kill worker", "kill worker", "retire worker", "stop worker", "add worker", "busy worker"),
    *("cut client", "kill scheduler", "kill host", "stop driver", "kill driver", "second driver"),
)
OPENING, AT_WORK, PUBLISHING, ENDING = "opening", "at work", "publishing", "ending"
MOMENTS = {OPENING: 40, AT_WORK: 10, PUBLISHING: 25, ENDING: 6}
"""The moments of a driver, and about how many operations on the disk each has."""
ON_DISK = ("die", "die", "die after", "torn", "full", "error", "cannot")


def drawn(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    rng = random.Random(seed)  # noqa: S311
    count = rng.choice(COUNTS)
    hosts, threads = rng.randint(1, 3), rng.choice([1, 1, 2, 4])
    seconds = rng.choice([0.01, 0.1, 0.4])
    limits = Limits(
        run_max_try=rng.choice([1, 2, 3]),
        allowed_failed_count=rng.choice([-1, -1, -1, 0, 1, 3]),
        run_timeout_s=rng.choice([2.0, 5.0]),
        retry_delay_s=rng.choice([0.0, 0.0, 1.0, None]),
        max_node_losses=1000,
        init_timeout_s=5.0,
        shutdown_timeout_s=5.0,
        load_timeout_s=60.0,
    )
    bad: dict[int, list[str]] = {}
    share = rng.choice([0.0, 0.0, 0.1, 0.4])
    kinds = rng.sample([RAISES, DIES, HANGS, POISONS], rng.randint(1, 4))
    for index in range(count):
        if rng.random() < share:
            acts = [rng.choice(kinds)]
            if limits.run_max_try > 1 and rng.random() < 0.5:
                acts.append(GOOD)
            bad[index] = acts
    lively = rng.random() < 0.7
    length_s = STARTS_S + count * seconds / (hosts * threads)
    strikes = sorted(
        (rng.random() * length_s, rng.choice(STRIKES))
        for _ in range(rng.choice([1, 2, 4]) if lively else 0)
    )
    on_disk = {}
    for _ in range(rng.choice([0, 1, 1, 2, 4])):
        moment = rng.choice([*MOMENTS])
        on_disk[moment, rng.randint(1, MOMENTS[moment] + (moment == AT_WORK) * count)] = rng.choice(
            ON_DISK
        )
    lies = rng.random() < 0.1
    init_fails = {rng.randint(0, 5)} if rng.random() < 0.1 else set()
    return Scenario(
        seed,
        count,
        hosts,
        threads,
        limits,
        seconds,
        rng.choice([0.001, 0.01, 0.3]),
        bad,
        strikes,
        on_disk,
        lies,
        init_fails,
        form := rng.choice(["text"] * 18 + ["jsonl", "parquet"]),
        form != "parquet" and rng.random() < 0.3,
    )


class Refused(Exception):  # noqa: N818 - what it is
    """A driver refuses to go on, and may: the disk had lied."""


class Violation(AssertionError):  # noqa: N818 - what it is
    """A promise is broken."""


def demand(holds: object, what: str) -> None:
    """Report a promise that does not hold."""
    if not holds:
        raise Violation(what)


@dataclass
class Books:
    """What was promised so far, and the counts of a seed."""

    drivers: int = 0
    strikes: dict[str, int] = field(default_factory=dict)
    virtual_s: float = 0.0

    def count(self, what: str, moment: str = "") -> None:
        """Count what befell the job."""
        key = f"{what}, {moment}" if moment else what
        self.strikes[key] = self.strikes.get(key, 0) + 1


class Deaf:
    """The listeners of a job whose messages nobody reads."""

    def tell(self, event: Any) -> None:
        """Ignore an event."""


class CheckedLedger(Ledger):
    """The ledger of production, with a clerk who checks each of its actions."""

    def __init__(
        self, scenario: Scenario, recovered: Callable[[MiniBatch], Any], *given: Any, **more: Any
    ) -> None:
        self._scenario = scenario
        self._recovered = recovered
        self._committed: set[int] = set()
        self.given_up: set[int] = set()
        super().__init__(*given, recovered=self._found, **more)

    def _found(self, mini_batch: MiniBatch) -> Any:
        """Return the earlier result of a mini-batch; one that has none may be committed."""
        found = self._recovered(mini_batch)
        if found is not None:
            self._committed.add(mini_batch.index)
        return found

    def handle(self, event: Any, now_s: float) -> list[Any]:
        """Handle an event, and check what follows."""
        actions = super().handle(event, now_s)
        for action in actions:
            if isinstance(action, Commit):
                for one in action.mini_batches:
                    demand(one.index not in self._committed, f"{one.index} is committed twice")
                    demand(one.index not in self.given_up, f"{one.index} is given up already")
                    self._committed.add(one.index)
            elif isinstance(action, FailAttempt):
                index = action.mini_batch.index
                demand(index not in self._committed, f"{index} fails after its commit")
                is_innocent = index not in self._scenario.bad
                demand(not (is_innocent and action.final), f"the innocent {index} is given up")
                demand(not (is_innocent and action.charged), f"the innocent {index} is charged")
                if action.final:
                    self.given_up.add(index)
        return actions


class Stage:
    """The world of a job: its disk, its cluster, its drivers."""

    def __init__(self, scenario: Scenario, root: Path, books: Books, *, is_calm: bool) -> None:
        self.scenario = scenario
        self.books = books
        self.rng = random.Random(scenario.seed * 7919 + is_calm)  # noqa: S311
        self.disk = Disk(root)
        self.is_calm = is_calm
        self.target = root / "out" / f"rows.{scenario.form}"
        self.folder = JobFolder(root / "job")
        self.script = Script(self._act, self._starts)
        self._starts_made = 0
        self.root = root
        self.disk.named = self._named
        self.moment = OPENING
        """What the driver is at."""
        self._on_disk = dict(scenario.on_disk)
        """What has not befallen the disk yet."""
        self._operations: dict[str, int] = {}
        """Operations of drivers on the disk, by moment."""
        self.cluster: Cluster
        self.client: Client | None = None
        self.store: ResultStore | None = None
        """Of the driver that is at work."""
        self._clients: list[Client] = []
        """Of all drivers so far."""
        self._has_struck = False
        """Whether something has befallen the cluster or a driver."""
        self._is_second = False
        """Whether a driver works while another one believes that the job is its own."""

    def _act(self, index: int) -> Act:
        seconds = self.scenario.seconds * (0.5 + self.rng.random())
        acts = self.scenario.bad.get(index)
        if acts is None:
            return Act(GOOD, seconds)
        caused = self.script.caused.get(index, 0)
        return Act(acts[min(caused, len(acts) - 1)], seconds)

    def _starts(self) -> str:
        self._starts_made += 1
        fails = not self.is_calm and self._starts_made in self.scenario.init_fails
        return "raises" if fails else ""

    # ---- what befalls the disk and the cluster ----

    def _strike_disk(self, what: str) -> str:
        """Return what befalls the next operation of a driver: what is due, and can befall it."""
        self._operations[self.moment] = number = self._operations.get(self.moment, 0) + 1
        for (moment, due), how in self._on_disk.items():
            if moment == self.moment and due <= number and what in OPEN_TO.get(how, (what,)):
                del self._on_disk[moment, due]
                self.books.count(f"disk: {how}", moment)
                return how
        return ""

    def _named(self, name: str) -> None:
        """Check the output when it gets its name: it is whole."""
        if self.root / name == self.target and not (self.scenario.lies and self.is_calm):
            self.check()

    def strike(self, what: str) -> None:  # noqa: C901 - one case for each kind
        """Let something befall the cluster, if there is what it befalls."""
        cluster, rng = self.cluster, self.rng
        living = [one for one in cluster.living if not one.process.is_stopped]
        worker = rng.choice(living) if living else None
        host = f"host{rng.randrange(self.scenario.hosts)}"
        self.books.count(what, self.moment)
        self._has_struck = True
        match what:
            case "add worker":
                cluster.add_worker(host, self.scenario.threads)
            case "kill worker" if worker is not None:
                worker.kill()
                self._restart(worker)
            case "kill host" if worker is not None:
                for one in [one for one in living if one.host == worker.host]:
                    one.kill()
                    self._restart(one)
            case "retire worker" if worker is not None:
                worker.retire()
                self._restart(worker)
            case "stop worker" if worker is not None:
                worker.process.stop()
                now().loop.call_later(rng.choice([1.0, 8.0, 40.0]), self._go_on, worker)
            case "busy worker" if worker is not None:
                worker.foreign = worker.nthreads
                now().loop.call_later(rng.choice([0.5, 3.0, 10.0]), self._idle, worker)
            case "cut client" if self.client is not None:
                self._cut(self.client)
            case "kill scheduler":
                self._kill_scheduler()
            case "stop driver":
                self.disk.driver.stop()
                after_s = rng.choice([0.5, 5.0, 60.0])
                now().loop.call_later(after_s, self.disk.driver.go_on)
            case "kill driver":
                self.disk.driver.die()
            case "second driver" if self.moment == AT_WORK and not self._is_second:
                now().between = self._second_driver

    def _second_driver(self) -> None:
        """Let another driver do the job, while the first one is cut off from the disk's locks."""
        first = self.disk.driver
        if first.is_dead or first.is_stopped:
            return
        first.stop()
        self.disk.give_locks(first)
        kept = self.client, self.store, self.moment
        self._is_second = True
        while not self._driver():
            demand(self.books.drivers < MOST_DRIVERS, "the job does not come to its end")
            now().wait(lambda: False, 0.5)
        self._is_second = False
        self.client, self.store, self.moment = kept
        self.disk.driver = first
        first.go_on()

    def _restart(self, worker: Worker) -> None:
        """Let a nanny start another worker, perhaps at the same address."""
        address = worker.address if self.rng.random() < 0.5 else ""
        after_s = self.rng.choice([0.2, 2.0, 8.0])
        cluster = self.cluster

        def start() -> None:
            if address in cluster.scheduler.workers:
                now().loop.call_later(1.0, start)
            else:
                cluster.add_worker(worker.host, worker.nthreads, address)

        now().loop.call_later(after_s, start)

    @staticmethod
    def _go_on(worker: Worker) -> None:
        if not worker.process.is_dead:
            worker.process.go_on()

    @staticmethod
    def _idle(worker: Worker) -> None:
        worker.foreign = 0
        worker.process.call(worker.look)

    def _cut(self, client: Client) -> None:
        if client.status != "running" or client.process.is_dead:
            return
        client.cut()
        scheduler = self.cluster.scheduler
        now().at(self.rng.random(), scheduler.process, partial(scheduler.remove_client, client.id))
        now().at(2.0 + self.rng.random() * 5, client.process, partial(_connect, client))

    def _kill_scheduler(self) -> None:
        """Kill the scheduler: its workers end, and a new one takes its place with new workers."""
        from tests.simulation.cluster import Scheduler

        cluster, gone = self.cluster, self.cluster.scheduler
        gone.process.die()
        for worker in cluster.living:
            worker.batched_stream.is_closed = True
            now().loop.call_later(self.rng.random(), worker.process.die)
        cluster.scheduler = Scheduler(cluster)
        for client in self._clients:
            if client.status == "running" and not client.process.is_dead:
                client.cut()
                now().at(2.0 + self.rng.random() * 5, client.process, partial(_connect, client))
        for number in range(self.scenario.hosts):
            after_s = 1.0 + self.rng.random() * 5
            added = partial(cluster.add_worker, f"host{number}", self.scenario.threads)
            now().loop.call_later(after_s, added)

    # ---- the job ----

    def play(self) -> None:
        """Run the job until a driver lives to its end."""
        scenario = self.scenario
        world = World()
        world.tokens = self.rng.getrandbits(32)
        Pool.script, Pool.made = self.script, 0
        Executor.late_s = staticmethod(lambda _: self.rng.random() * 0.2)
        with _on(self), installed(world), self.disk.installed():
            if not self.is_calm:
                self.cluster = Cluster(self.rng, scenario.latency_s)
                for number in range(scenario.hosts):
                    self.cluster.add_worker(f"host{number}", scenario.threads)
                for after_s, what in scenario.strikes:
                    world.loop.call_later(after_s, self.strike, what)
                self.disk.strike = self._strike_disk
                self.disk.lies = scenario.lies
            while not self._driver():
                demand(self.books.drivers < MOST_DRIVERS, "the job does not come to its end")
                self._check_between()
                world.wait(lambda: False, 0.2 + self.rng.random() * 2)
            self.books.virtual_s += world.now_s
            if world.errors:
                raise world.errors[0]

    def _driver(self) -> bool:
        """Let a driver work; return whether the job is Completed."""
        world, disk = now(), self.disk
        self.books.drivers += 1
        process = Process(f"driver {self.books.drivers}")
        disk.driver = process
        try:
            with world.acting(process):
                try:
                    return self._drive(process)
                except Died:
                    # What the driver has open is closed while it is dead: later, when Python
                    # collects the objects, a close would hit another file of the same number.
                    if self.store is not None:
                        with suppress(Died):
                            self.store._closing.close()
                    self.books.count("driver died")
                finally:
                    self.store = None
                    process.die()
        except (DaskprsError, OSError) as error:
            self.books.count(f"driver failed: {type(error).__name__}")
            if self.is_calm and self.scenario.lies:
                raise Refused from error  # a disk that lied may have lost the reason of the output
            demand(disk.struck or self._has_struck, f"a driver failed: {error!r}")
        finally:
            disk.release(process)
            if self.client is not None and self.client.process is process:
                self._cut_for_good(self.client)
        return False

    def _cut_for_good(self, client: Client) -> None:
        client.wire.cut()
        scheduler = self.cluster.scheduler
        now().at(self.rng.random(), scheduler.process, partial(scheduler.remove_client, client.id))

    def _drive(self, process: Process) -> bool:
        scenario = self.scenario
        self.moment = OPENING
        self.folder.create()
        with ExitStack() as stack:
            epoch = stack.enter_context(locked(self.folder))
            make_salt(self.folder, "salt")
            self.store = store = ResultStore(
                self.folder,
                epoch,
                scenario.spec,
                self.target,
                {"input": {}, "script": "", "options": {}},
                resumption=Resumption(lambda: iter(plan(scenario.count))),
                overwrite=scenario.replaces,
            )
            stack.callback(store.close)
            job_id = f"job{self.books.drivers}"
            ledger = CheckedLedger(
                scenario,
                store.recovered,
                job_id,
                iter(plan(scenario.count)),
                scenario.limits,
                expected=scenario.count,
                seed=job_id,
            )
            listeners: Any = Deaf()
            job = spec_of(job_id, self.folder, epoch, scenario)
            slots = self._slots(process, job, listeners)
            self.moment = AT_WORK
            ending = Dispatcher(slots, ledger, store, listeners, job, clock=_clock()).run()
            if ending.status is not JobStatus.COMPLETED:
                self.books.count("job failed", "too many failures" if scenario.must_fail else "")
                if scenario.must_fail:
                    most = scenario.limits.allowed_failed_count
                    demand(len(ledger.given_up) == most + 1, f"given up: {ledger.given_up}")
                    return True
                demand(scenario.init_fails and not self.is_calm, f"the job failed: {ending}")
                return False
            self.moment = PUBLISHING
            store.write_failed()
            store.publish()
            self.moment = ENDING
            store.end({})
        return True

    def _slots(self, process: Process, job: JobSpec, listeners: Any) -> ClusterSlots | InlineSlots:
        """Return the slots of a driver: those of the cluster, or its own where there is none."""
        if self.is_calm:
            return InlineSlots(job, threads=1)
        self.client = client = Client(process, self.cluster, f"client-{self.books.drivers}")
        self._clients.append(client)
        nodes = SlotAllocator(None, None, 0.0)
        return ClusterSlots(client, job, nodes, listeners)  # type: ignore[arg-type]

    # ---- what must hold at the end ----

    def check(self) -> None:
        """Compare the output with that of a serial run."""
        bad = self.scenario.settled_bad
        good = [index for index in range(self.scenario.count) if index not in bad]
        if self.scenario.must_fail:
            left = self.target.read_bytes() if self.target.exists() else b""
            earlier = EARLIER if self.scenario.replaces else b""
            demand(left == earlier, f"a job that failed has left {left!r} as its output")
            return
        demand(self.target.exists(), "there is no output")
        if self.scenario.form == "parquet":
            parts = map(pq.ParquetFile, sorted(self.target.glob("*.parquet")))
            tables = [part.read(use_threads=False) for part in parts]
            rows = [tuple(row.values()) for table in tables for row in table.to_pylist()]
            found, wanted = str(rows), str([row for index in good for row in numbers_of(index)])
        elif self.scenario.form == "jsonl":
            found = self.target.read_text()
            lines = (row for index in good for row in numbers_of(index))
            wanted = "".join(f'{{"index":{index},"row":{row}}}\n' for index, row in lines)
        else:
            found = self.target.read_text()
            wanted = b"".join(map(rows_of, good)).decode()
        demand(found == wanted, f"the output is {found!r} and not {wanted!r}")

    def _check_between(self) -> None:
        """Check, after a driver, that the earlier output is there or the new one, and whole.

        Where names cannot be exchanged, there is neither between two steps.
        """
        if not self.scenario.replaces or any(how == "cannot" for how, _ in self.disk.struck):
            return
        demand(self.target.exists(), "neither the earlier output nor the new one is there")
        if self.target.read_bytes() != EARLIER:
            self.check()

    def check_the_rest(self) -> None:
        """Check that nothing is left beside the output once the job is over."""
        left = {one.name for one in self.target.parent.iterdir()} - {self.target.name}
        if any(how == "error" for how, _ in self.disk.struck):  # it could not be removed
            left -= {f".{self.target.name}.daskprs-claim"}
        demand(not left, f"beside the output there is {left}")


_stages: list[Stage] = []


@contextmanager
def _on(stage: Stage) -> Iterator[None]:
    _stages.append(stage)
    try:
        yield
    finally:
        _stages.pop()


def _this_worker() -> Worker:
    return _stages[-1].cluster.this_worker()


def _leave_the_threads() -> None:
    _stages[-1].cluster.leave_the_threads()


def _exchanged(one: Path, other: Path) -> bool:
    return _stages[-1].disk.exchange(one, other)


@contextmanager
def simulated() -> Iterator[None]:
    """Let the modules of daskprs find simulated things; seeds are played within the block."""
    worker, lease = "daskprs._cluster.worker_plugin", "daskprs._cluster.lease"
    more = {
        (worker, "AgentPool"): Pool,
        ("daskprs._driver.inline_slots", "AgentPool"): Pool,
        ("daskprs._driver.inline_slots", "InlineStarter"): lambda _: None,
        (worker, "WorkerSite"): _Site,
        (worker, "PeriodicCallback"): _Periodic,
        (worker, "TELL_EVERY_MS"): TELL_EVERY_MS,
        ("daskprs._driver.dispatch", "TICK_S"): TICK_S,
        (worker, "visible_devices"): lambda: (),
        (worker, "usable_cores"): lambda: 4,
        (worker, "get_address_host"): _host,
        (worker, "drop_threads_that_never_began"): lambda _: None,
        ("daskprs._cluster.worker_registry", "get_address_host"): _host,
        (lease, "get_worker"): _this_worker,
        (lease, "leave_the_threads"): _leave_the_threads,
        # Agents of other processes than the driver's do not end with it.
        ("daskprs._driver.dispatch", "close_pools"): lambda _: None,
        ("daskprs._driver.dispatch", "gc"): SimpleNamespace(
            get_freeze_count=lambda: 0, freeze=lambda: None, unfreeze=lambda: None
        ),
        ("daskprs._output.publish.output_file", "exchanged"): _exchanged,
    }
    with replaced(more):
        yield


def _connect(client: Client) -> None:
    if not client.process.is_dead:
        client.connect()


def _clock() -> Any:
    import daskprs._driver.dispatch as module

    return module.time


def _host(address: str) -> str:
    return address.removeprefix("inproc://").partition("/")[0]


class _Site:
    """In place of a worker's site: it sees the driver's folder."""

    def __init__(self, job: JobSpec, *_: Any) -> None:
        self.job = job
        self.folder = self.store = None

    def close(self) -> None:
        """There is nothing to close."""


class _Periodic:
    """In place of tornado's periodic callback."""

    def __init__(self, call: Any, every_ms: float) -> None:
        self._call = call
        self._every_s = every_ms / 1000
        self._process = call.__self__._worker.process
        self._is_running = False

    def start(self) -> None:
        """Begin."""
        self._is_running = True
        now().at(self._every_s, self._process, self._run)

    def stop(self) -> None:
        """End."""
        self._is_running = False

    def _run(self) -> None:
        if self._is_running:
            self._call()
            now().at(self._every_s, self._process, self._run)


def plan(count: int) -> list[MiniBatch]:
    """Return the mini-batches of a job."""
    return [MiniBatch(index, None, f"part {index}", 1) for index in range(count)]


def spec_of(job_id: str, folder: JobFolder, epoch: int, scenario: Scenario) -> JobSpec:
    """Return what agents receive."""
    return JobSpec(
        job_id=job_id,
        script=ScriptSpec("simulated.py"),
        arguments=(),
        environment=HiddenValues({}),
        reader=b"",
        unit="row",
        output=scenario.spec,
        job_dir=str(folder),
        epoch=epoch,
        boot_id="",
        output_dir="",
        logging_level="INFO",
        start_method="fork",
        limits=scenario.limits,
    )


@contextmanager
def _emptied(folder: Path) -> Iterator[Path]:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def played(scenario: Scenario, base: Path) -> Books:
    """Play a scenario, and its resumes after a loss of power; return the books.

    Raises
    ------
    Violation
        When a promise is broken.

    """
    books, rng = Books(), random.Random(scenario.seed)  # noqa: S311
    with _emptied(base / f"seed{scenario.seed}") as root:
        stage = Stage(scenario, root, books, is_calm=False)
        if scenario.replaces:
            stage.target.parent.mkdir()
            stage.target.write_bytes(EARLIER)
            stage.disk.adopt()
        begun = len(stage.disk.record)
        stage.play()
        stage.check()
        stage.check_the_rest()
        for _ in range(RESUMES):
            moment = rng.randint(begun, len(stage.disk.record))
            shutil.rmtree(root)  # the paths in the journal stay those of the job
            stage.disk.after_power_loss(moment, root, rng)
            again = Stage(scenario, root, books, is_calm=True)
            again.disk.adopt()
            books.count("power lost")
            with suppress(Refused):
                again.play()
                again.check()
                again.check_the_rest()
    return books
