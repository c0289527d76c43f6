"""Plays the job of a seed: one or several drivers, a cluster, and what befalls them."""

from __future__ import annotations

import random
import shutil
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from distributed import Status

from daskprs._agent.protocol.messages import JobSpec, ScriptSpec
from daskprs._cluster.cluster_slots import ClusterSlots
from daskprs._cluster.slot_allocator import SlotAllocator
from daskprs._core.actions import EndSet
from daskprs._core.ending import JobStatus
from daskprs._driver import dispatch
from daskprs._driver.inline_slots import InlineSlots
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import latest_epoch, locked
from daskprs._folders.rows_seal import make_salt
from daskprs._output.journal.recovery import Resumption
from daskprs._output.store import ResultStore
from daskprs._system.hidden_values import HiddenValues
from daskprs.errors import DaskprsError, JobFolderLocked, JournalError
from tests.simulation.agents import HEADER, Act, Pool, Script, numbers_of, rows_of
from tests.simulation.client import Client
from tests.simulation.cluster import Cluster, Scheduler, Worker
from tests.simulation.disk import OPEN_TO, Disk
from tests.simulation.items import GOOD
from tests.simulation.left_out import LeftOut, fitting_limits, output_in
from tests.simulation.ports import on
from tests.simulation.promises import (
    Books,
    CheckedLedger,
    Listener,
    Refused,
    Ruled,
    demand,
    durable,
)
from tests.simulation.scenario import AT_WORK, EARLIER, ENDING, OPENING, PUBLISHING, Scenario
from tests.simulation.standard import Executor
from tests.simulation.world import Died, Process, World, installed, now

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESUMES = 3
"""Moments at which the power is lost, for each seed."""
MOST_DRIVERS = 12


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
        self.script = Script(self._act, self._starts, scenario.items)
        self._starts_made = 0
        self._starts_failed = False
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
        self.ledger: CheckedLedger | None = None
        """Of the driver that is or was at work last."""
        self._checked: list[str] = []
        """The outputs that have been found right."""
        self.has_failed = self.has_published = False
        """Whether the job is over budget."""
        self.left_out = LeftOut(self.folder, scenario)
        self._is_second = False
        """Whether a driver works while another one believes that the job is its own."""

    def _act(self, index: int) -> Act:
        seconds = self.scenario.seconds * (0.5 + self.rng.random())
        acts = self.scenario.bad.get(index, [GOOD])
        caused = self.script.caused.get(index, 0)
        return Act(acts[min(caused, len(acts) - 1)], seconds, self.rng.random() < 0.5)

    def _starts(self) -> str:
        self._starts_made += 1
        fails = not self.is_calm and self._starts_made in self.scenario.init_fails
        self._starts_failed |= fails
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
        if self.root / name != self.target or (self.scenario.lies and self.is_calm):
            return
        self.check()
        if self.store is not None:
            latest = latest_epoch(self.folder)
            demand(latest == self.store.epoch, "a driver publishes that has lost the folder")

    def strike(self, what: str) -> None:  # noqa: C901, PLR0912 - one case for each kind
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
            case "locked out driver" if self.moment == AT_WORK and not self._is_second:
                now().between = self._locked_out_driver
            case "rot":
                self._rot()

    def _second_driver(self) -> None:
        """Let another driver do the job, while the first one is cut off from the disk's locks."""
        first = self.disk.driver
        if first.is_dead or first.is_stopped:
            return
        first.stop()
        self.disk.give_locks(first)
        kept = self.client, self.store, self.moment, self.ledger
        self._is_second = True
        try:
            while not self._driver():
                demand(self.books.drivers < MOST_DRIVERS, "the job does not come to its end")
                now().wait(lambda: False, 0.5)
        except Exception as error:  # noqa: BLE001 - `play` raises it
            # Raised through the first driver, it would be lost: a process that is stopped closes
            # what it has open and waits for ever.
            now().errors.append(error)
            first.die()
            return
        self._is_second = False
        self.client, self.store, self.moment, self.ledger = kept
        self.disk.driver = first
        first.go_on()

    def _locked_out_driver(self) -> None:
        """Let another driver try to open the folder, in which the first one is at work."""
        first = self.disk.driver
        if first.is_dead or first in self.disk.cut_off:
            return
        other = Process("locked out driver")
        with now().acting(other), suppress(JobFolderLocked), locked(self.folder):
            is_free = first.is_dead or first in self.disk.cut_off
            demand(is_free, "two drivers hold the folder")
        demand(not other.is_dead, "nothing befalls this driver")

    def _rot(self) -> None:
        """Change a byte of a spool, as a disk does that breaks."""
        files = [one for one in sorted(self.folder.path.glob("spool.*/*")) if one.stat().st_size]
        if files:
            self.disk.rot(self.rng.choice(files), self.rng)
            self.books.spoil()

    def _add_worker(self, host: str, threads: int, address: str = "") -> None:
        """Start a worker, which may have a lifetime."""
        worker, life_s = self.cluster.add_worker(host, threads, address), self.scenario.life_s
        if life_s is not None:
            worker.ends_s = now().now_s + life_s
            now().loop.call_later(life_s, self._end_life, worker)

    def _end_life(self, worker: Worker) -> None:
        is_at_work = not worker.process.is_dead and worker.status is Status.running
        if is_at_work and worker.address in self.cluster.scheduler.workers:
            self._has_struck = True
            self.books.count("end of life", self.moment)
            worker.process.call(worker.retire)
            self._restart(worker)

    def _restart(self, worker: Worker) -> None:
        """Let a nanny start another worker, perhaps at the same address."""
        address = worker.address if self.rng.random() < 0.5 else ""
        after_s = self.rng.choice([0.2, 2.0, 8.0])
        cluster = self.cluster

        def start() -> None:
            if address in cluster.scheduler.workers:
                now().loop.call_later(1.0, start)
            else:
                self._add_worker(worker.host, worker.nthreads, address)

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
        Pool.script, Pool.made, Pool.far = self.script, 0, scenario.far
        Executor.late_s = staticmethod(lambda _: self.rng.random() * 0.2)
        with on(self), installed(world), self.disk.installed():
            if not self.is_calm:
                self.cluster = Cluster(self.rng, scenario.latency_s)
                for number in range(scenario.hosts):
                    self._add_worker(f"host{number}", scenario.threads)
                for after_s, what in scenario.strikes:
                    world.loop.call_later(after_s, self.strike, what)
                self.disk.strike = self._strike_disk
                self.disk.lies = scenario.lies
            while not self._driver() and not world.errors:
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
            if disk.cut_off and self.scenario.items is not None and isinstance(error, JournalError):
                # Two drivers may have committed other rows of a mini-batch whose items fail by
                # chance. The output that is there is whole.
                raise Refused from error
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
        self.moment, self.has_failed = OPENING, False
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
                resumption=Resumption(lambda: iter(scenario.plan())),
                overwrite=scenario.replaces,
            )
            stack.callback(store.close)
            job_id = f"job{self.books.drivers}"
            limits = fitting_limits(self.folder, scenario.limits)
            self.ledger = ledger = CheckedLedger(
                scenario,
                self.books.reported,
                store.recovered,
                lambda: not self._has_struck and not self._starts_failed,
                job_id,
                iter(scenario.plan()),
                limits,
                expected=scenario.count,
                seed=job_id,
            )
            listeners: Any = Listener(self.books, epoch, self.disk.record)
            job = spec_of(job_id, self.folder, epoch, scenario)
            slots = self._slots(process, job, listeners)
            self.moment = AT_WORK
            end = EndSet(None if self.is_calm or self.books.drivers > 1 else scenario.ends_s)
            driver = dispatch.Dispatcher(
                slots, ledger, store, listeners, job, clock=dispatch.time, end=lambda: end
            )
            ending = driver.run()
            if ending.status is JobStatus.INTERRUPTED:
                demand(end.at_s is not None, "a job without an end was interrupted")
                self.books.count("job interrupted")
                store.write_failed()
                store.end({"status": ending.status.value})
                return False
            if ending.status is not JobStatus.COMPLETED:
                is_over = self.left_out.is_over_budget(ledger)
                self.books.count("job failed", "too many failures" if is_over else "")
                if is_over:
                    self.has_failed = True
                    return True
                demand(scenario.init_fails and not self.is_calm, f"the job failed: {ending}")
                return False
            demand(not self.left_out.is_over_budget(ledger), "a job over budget is Completed")
            self.moment = PUBLISHING
            store.write_failed()
            store.publish()
            self.has_published = True
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
        scenario = self.scenario
        if self.has_failed and self.has_published:
            # The first of two drivers failed after the other one had published. Which items fail by
            # chance was another one for each.
            demand(self.disk.cut_off, "a job that has published has failed")
            return
        if self.has_failed or scenario.must_fail:
            left = self.target.read_bytes() if self.target.exists() else b""
            earlier = EARLIER if scenario.replaces else b""
            demand(left == earlier, f"a job that failed has left {left!r} as its output")
            return
        demand(self.target.exists(), "there is no output")
        if scenario.items is not None:
            assert self.ledger is not None
            wanted = self.left_out.serial_output(self.ledger.given_up)
        else:
            good = [index for index in range(scenario.count) if index not in scenario.settled_bad]
            wanted = serial_output(scenario.form, good)
        found = output_in(self.target, scenario.form)
        demand(found == wanted, f"the output is {found!r} and not {wanted!r}")
        self._checked.append(found)

    def _check_between(self) -> None:
        """Check, after a driver, that the earlier output is there or the new one, and whole.

        Where names cannot be exchanged, there is neither between two steps.
        """
        if not self.scenario.replaces or any(how == "cannot" for how, _ in self.disk.struck):
            return
        demand(self.target.exists(), "neither the earlier output nor the new one is there")
        if self.target.read_bytes() != EARLIER:
            # Only what this driver has found is known of the items, so it is not checked anew.
            found = output_in(self.target, self.scenario.form)
            demand(found in self._checked, f"neither the earlier output nor the new one: {found}")

    def check_the_rest(self) -> None:
        """Check that nothing is left beside the output once the job is over."""
        left = {one.name for one in self.target.parent.iterdir()} - {self.target.name}
        if any(how == "error" for how, _ in self.disk.struck):  # it could not be removed
            left -= {f".{self.target.name}.daskprs-claim"}
        demand(not left, f"beside the output there is {left}")


def _connect(client: Client) -> None:
    if not client.process.is_dead:
        client.connect()


def serial_output(form: str, good: list[int]) -> str:
    """Return the output of a serial run over mini-batches of one item."""
    if form == "parquet":
        return str([row for index in good for row in numbers_of(index)])
    if form == "jsonl":
        lines = (row for index in good for row in numbers_of(index))
        return "".join(f'{{"index":{index},"row":{row}}}\n' for index, row in lines)
    rows = b"".join(map(rows_of, good)).decode()
    return HEADER + rows if form == "headed" and rows else rows


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
        for what in scenario.kinds:
            books.count(what)
        if scenario.replaces:
            stage.target.parent.mkdir()
            stage.target.write_bytes(EARLIER)
            stage.disk.adopt()
        begun = len(stage.disk.record)
        try:
            stage.play()
        except (Ruled, Refused) as ended:
            books.count("given up by the rule" if isinstance(ended, Ruled) else "refused")
            return books
        stage.check()
        stage.check_the_rest()
        reports = list(books.reports)
        for _ in range(RESUMES):
            moment = rng.randint(begun, len(stage.disk.record))
            shutil.rmtree(root)  # the paths in the journal stay those of the job
            stage.disk.after_power_loss(moment, root, rng)
            # Somebody may have mended the script meanwhile: what was given up has rows now.
            mended = scenario.mended() if rng.random() < 0.5 else scenario
            again = Stage(mended, root, books, is_calm=True)
            again.left_out.before = scenario.items
            again.disk.adopt()
            books.count("power lost")
            books.reported = durable(reports, stage.disk.record[:moment])
            if scenario.lies or stage.disk.cut_off:
                # A driver that was cut off may commit the same anew, without a sync.
                books.reported = set()
            with suppress(Refused, Ruled):
                again.play()
                again.check()
                again.check_the_rest()
    return books
