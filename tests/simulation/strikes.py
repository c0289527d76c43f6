"""What befalls the cluster, the drivers and the files of a job while it is played."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from signal import SIGTERM
from typing import TYPE_CHECKING

from distributed import Status

from daskprs._folders.job_lock import locked
from daskprs.errors import JobFolderLocked
from tests.simulation.cluster import Scheduler, Worker
from tests.simulation.promises import demand
from tests.simulation.scenario import AT_WORK
from tests.simulation.world import Process, now

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.play import Stage


class Strikes:
    """What befalls a job.

    Parameters
    ----------
    stage
        Where the job is played.

    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.has_struck = False
        """Whether something has befallen the cluster or a driver."""
        self._is_second = False
        """Whether a driver works while another one believes that the job is its own."""

    def strike(self, what: str) -> None:  # noqa: C901, PLR0912 - one case for each kind
        """Let something befall the cluster, if there is what it befalls."""
        cluster, rng = self._stage.cluster, self._stage.rng
        living = [one for one in cluster.living if not one.process.is_stopped]
        worker = rng.choice(living) if living else None
        host = f"host{rng.randrange(self._stage.scenario.hosts)}"
        self._stage.books.count(what, self._stage.moment)
        self.has_struck = True
        match what:
            case "add worker":
                cluster.add_worker(host, self._stage.scenario.threads)
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
                now().loop.call_later(rng.choice([1.0, 8.0, 8.0, 40.0]), self._go_on, worker)
            case "busy worker" if worker is not None:
                worker.foreign = worker.nthreads
                now().loop.call_later(rng.choice([0.5, 3.0, 10.0]), self._idle, worker)
            case "cut client" if self._stage.client is not None:
                self._cut(self._stage.client)
            case "kill scheduler":
                self._kill_scheduler()
            case "stop scheduler":
                process = cluster.scheduler.process
                process.stop()
                now().loop.call_later(rng.choice([0.5, 3.0, 10.0, 20.0, 40.0]), process.go_on)
            case "stop driver":
                self._stage.disk.driver.stop()
                after_s = rng.choice([0.5, 5.0, 5.0, 5.0, 60.0])
                now().loop.call_later(after_s, self._stage.disk.driver.go_on)
            case "kill driver":
                self._stage.disk.driver.die()
            case "second driver" if self._stage.moment == AT_WORK and not self._is_second:
                now().between = self._second_driver
            case "locked out driver" if self._stage.moment == AT_WORK and not self._is_second:
                now().between = self._locked_out_driver
            case "rot":
                self._rot()
            case "terminate driver":
                self._stage.disk.driver.signal(SIGTERM)
            case "terminate job" if self._stage.moment == AT_WORK and not self._is_second:
                self._terminate()

    def _second_driver(self) -> None:
        """Let another driver do the job, while the first one is cut off from the disk's locks."""
        first = self._stage.disk.driver
        if first.is_dead or first.is_stopped:
            return
        first.stop()
        self._stage.disk.give_locks(first)
        kept = self._stage.driver
        self._is_second = True
        try:
            while not self._stage.has_driven():
                now().wait(lambda: False, 0.5)
        finally:  # what ends the seed passes through the first driver, which closes its files
            self._is_second = False
            self._stage.driver = kept
            self._stage.disk.driver = first
            first.go_on()

    def _locked_out_driver(self) -> None:
        """Let another driver try to open the folder, in which the first one is at work."""
        first = self._stage.disk.driver
        if first.is_dead or first in self._stage.disk.cut_off:
            return
        other = Process("locked out driver")
        with now().acting(other), suppress(JobFolderLocked), locked(self._stage.folder):
            is_free = first.is_dead or first in self._stage.disk.cut_off
            demand(is_free, "two drivers hold the folder")
        demand(not other.is_dead, "nothing befalls this driver")

    def _terminate(self) -> None:
        """Send SIGTERM to the driver and soon to the agents, as a batch system does."""
        driver = self._stage.disk.driver
        if driver.is_dead or driver.is_stopped:
            return
        driver.signal(SIGTERM)
        for worker in self._stage.cluster.living:
            for plugin in worker.plugins.values():
                pool = getattr(plugin, "pool", None)
                if pool is not None:
                    after_s = 0.1 * self._stage.rng.random()
                    now().at(after_s, worker.process, pool.terminate)

    def _rot(self) -> None:
        """Change a byte of a spool, as a disk does that breaks."""
        folder = self._stage.folder.path
        spools = sorted([*folder.glob("spool.*/*"), *folder.glob("typed.*/*")])
        files = [one for one in spools if one.stat().st_size]
        if files:
            self._stage.disk.rot(self._stage.rng.choice(files), self._stage.rng)
            self._stage.books.spoil()

    def add_worker(self, host: str, threads: int, address: str = "") -> None:
        """Start a worker, which may have a lifetime."""
        worker, life_s = (
            self._stage.cluster.add_worker(host, threads, address),
            self._stage.scenario.life_s,
        )
        if life_s is not None:
            worker.ends_s = now().now_s + life_s
            now().loop.call_later(life_s, self._end_life, worker)

    def _end_life(self, worker: Worker) -> None:
        if self._stage.cluster.scheduler.process.is_stopped:  # a worker asks it before it closes
            now().loop.call_later(0.5, self._end_life, worker)
            return
        is_at_work = not worker.process.is_dead and worker.status is Status.running
        if is_at_work and worker.address in self._stage.cluster.scheduler.workers:
            self.has_struck = True
            self._stage.books.count("end of life", self._stage.moment)
            worker.process.call(worker.retire)
            self._restart(worker)

    def _restart(self, worker: Worker) -> None:
        """Let a nanny start another worker, perhaps at the same address."""
        address = worker.address if self._stage.rng.random() < 0.5 else ""
        after_s = self._stage.rng.choice([0.2, 2.0, 8.0])
        cluster = self._stage.cluster

        def start() -> None:
            # One that the scheduler does not know yet has the port, too.
            is_taken = address in [one.address for one in cluster.living]
            if is_taken or address in cluster.scheduler.workers:
                now().loop.call_later(1.0, start)
            else:
                self.add_worker(worker.host, worker.nthreads, address)

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
        scheduler = self._stage.cluster.scheduler
        now().at(
            self._stage.rng.random(), scheduler.process, partial(scheduler.remove_client, client.id)
        )
        now().at(2.0 + self._stage.rng.random() * 5, client.process, partial(self._connect, client))

    def _kill_scheduler(self) -> None:
        """Kill the scheduler: its workers end, and a new one takes its place with new workers."""
        cluster, gone = self._stage.cluster, self._stage.cluster.scheduler
        gone.process.die()
        for worker in cluster.living:
            worker.batched_stream.is_closed = True
            now().loop.call_later(self._stage.rng.random(), worker.process.die)
        cluster.scheduler = Scheduler(cluster)
        for client in self._stage.clients:
            if client.status == "running" and not client.process.is_dead:
                client.cut()
                connected = partial(self._connect, client)
                now().at(2.0 + self._stage.rng.random() * 5, client.process, connected)
        for number in range(self._stage.scenario.hosts):
            after_s = 1.0 + self._stage.rng.random() * 5
            added = partial(cluster.add_worker, f"host{number}", self._stage.scenario.threads)
            now().loop.call_later(after_s, added)

    def _connect(self, client: Client) -> None:
        """Connect a client again, once the scheduler takes part in it."""
        if self._stage.cluster.scheduler.process.is_stopped:
            now().at(0.5, client.process, partial(self._connect, client))
        elif not client.process.is_dead:
            client.connect()
