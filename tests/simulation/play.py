"""Plays the job of a seed: one or several drivers, a cluster, and what befalls them."""

from __future__ import annotations

import gc
import random
import shutil
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from daskprs._agent.supervision import pool
from daskprs._cluster.remote import nodes
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import latest_epoch
from daskprs.errors import DaskprsError, JournalError
from tests.simulation.agents import HEADER, Act, Script, numbers_of, rows_of
from tests.simulation.cluster import Cluster
from tests.simulation.disk import OPEN_TO, Disk
from tests.simulation.driver import Driver
from tests.simulation.endpoints import Endpoint, Server
from tests.simulation.far import Reading
from tests.simulation.items import GOOD, HANGS, RAISES
from tests.simulation.keys import KeyHelper
from tests.simulation.left_out import FORMS, LeftOut, output_in, typed_in
from tests.simulation.partitions import Staging
from tests.simulation.parts import Helper
from tests.simulation.pool import Pool
from tests.simulation.ports import on
from tests.simulation.promises import (
    Books,
    Refused,
    Ruled,
    demand,
    durable,
)
from tests.simulation.scenario import (
    EARLIER,
    ENDING,
    FEW_BYTES,
    OPENING,
    PUBLISHING,
    Scenario,
)
from tests.simulation.stages import INIT_S
from tests.simulation.standard import Executor
from tests.simulation.strikes import Strikes
from tests.simulation.world import Died, World, installed, now

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs._output.journal.recovery import Runs
    from tests.simulation.client import Client

RESUMES = 3
"""Moments at which the power is lost, for each seed."""
MOST_DRIVERS = 24
MOST_DAMAGED = 6
"""Pieces of results in which a far host reads a wrong byte."""
LATER_S = 3.0
"""Seconds after the job in which what is left of it may do harm."""


class Stage:
    """The world of a job: its disk, its cluster, its drivers."""

    def __init__(
        self,
        scenario: Scenario,
        root: Path,
        books: Books,
        *,
        is_calm: bool,
        runs: Runs = "all that is left",
    ) -> None:
        self.scenario = scenario
        self.runs: Runs = runs
        self.books = books
        self.rng = random.Random(scenario.seed * 7919 + is_calm)  # noqa: S311
        self.disk = Disk(root)
        self.is_calm = is_calm
        self._target_name = f"out/rows.{scenario.form}"
        self.target = root / self._target_name
        self.folder = JobFolder(root / "job")
        self.server: Server | None = None
        """The endpoint that the script calls."""
        if scenario.endpoint is not None:
            endpoint = scenario.endpoint
            if is_calm:
                endpoint = Endpoint(endpoint.limit, endpoint.refuses, endpoint.after_s)
            rng = random.Random(f"server of {scenario.seed}")  # noqa: S311
            latency_s = 0.0 if is_calm else scenario.latency_s
            self.server = Server(endpoint, rng, self._has_one_job, latency_s)
        init_s = INIT_S if is_calm else scenario.init_s
        self.script = Script(self._act, self._starts, scenario.items, self.server, init_s)
        self._starts_made = 0
        self._starts_failed = False
        self.root = root
        self.nodes = root.with_name(f"{root.name}-nodes")
        """The folders of hosts that do not see the disk."""
        self.disk.named = self._named
        self._on_disk = dict(scenario.on_disk)
        """What has not befallen the disk yet."""
        self._operations: dict[str, int] = {}
        """Operations of drivers on the disk, by moment."""
        self.cluster: Cluster
        self.clients: list[Client] = []
        """Of all drivers so far."""
        self.driver: Driver | None = None
        """The driver that is or was at work last."""
        self.strikes = Strikes(self)
        self._checked: list[str] = []
        """The outputs that have been found right."""
        self.has_published = False
        self.adopted = 0
        """Number of operations on the disk before the first driver, which were synced."""
        self.left_out = LeftOut(self.folder, scenario)

    @property
    def moment(self) -> str:
        """What the driver is at."""
        return OPENING if self.driver is None else self.driver.moment

    @property
    def client(self) -> Client | None:
        """The client of the driver."""
        return None if self.driver is None else self.driver.client

    def _act(self, index: int) -> Act:
        seconds = self.scenario.seconds * (0.5 + self.rng.random())
        acts = self.scenario.bad.get(index, [GOOD])
        caused = self.script.caused.get(index, 0)
        return Act(acts[min(caused, len(acts) - 1)], seconds, self.rng.random() < 0.5)

    def _starts(self) -> str:
        self._starts_made += 1
        fails = not self.is_calm and self._starts_made in self.scenario.init_fails
        self._starts_failed |= fails
        if not fails:
            return ""
        # Seeds without stages stay as they were.
        return HANGS if self.scenario.stages is not None and self._starts_made % 2 else RAISES

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
        if name != self._target_name or (self.scenario.lies and self.is_calm):
            return
        is_back = self.moment in (OPENING, PUBLISHING) and self.scenario.replaces
        if is_back and self.target.read_bytes() == EARLIER:
            # Names cannot be exchanged, and the second of two steps failed, or the last driver died
            # before it.
            return
        self.check(is_over=False)
        store = None if self.driver is None else self.driver.store
        if store is not None:
            latest = latest_epoch(self.folder)
            demand(latest == store.epoch, "a driver publishes that has lost the folder")

    # ---- the job ----

    def play(self) -> None:
        """Run the job until a driver lives to its end."""
        scenario = self.scenario
        world = World()
        world.tokens = self.rng.getrandbits(32)
        Pool.script, Pool.made, Pool.of_job = self.script, 0, {}
        pool.IN_MESSAGE_BYTES = scenario.in_message_bytes
        nodes.CARRIED_BYTES = scenario.carried_bytes
        Reading.rng = random.Random(f"reading of {scenario.seed}")  # noqa: S311
        Reading.damaged, Reading.left = scenario.damaged, MOST_DAMAGED
        Staging.scenario, Staging.rng = scenario, self.rng
        KeyHelper.rng = random.Random(f"key helpers of {scenario.seed}")  # noqa: S311
        Helper.rng = random.Random(f"helpers of {scenario.seed}")  # noqa: S311
        Executor.late_s = staticmethod(lambda _: self.rng.random() * 0.2)
        with on(self), installed(world), self.disk.installed():
            if not self.is_calm:
                self.cluster = Cluster(
                    self.rng,
                    scenario.latency_s,
                    scenario.far,
                    self.nodes,
                    have_folders=scenario.keyed is not None,
                )
                for number in range(scenario.hosts):
                    self.strikes.add_worker(f"host{number}", scenario.threads)
                for after_s, what in scenario.strikes:
                    world.loop.call_later(after_s, self.strikes.strike, what)
                self.disk.strike = self._strike_disk
                self.disk.lies = scenario.lies
            while not self.has_driven():
                self._check_between()
                world.wait(lambda: False, 0.2 + self.rng.random() * 2)
            if not self.is_calm and scenario.small_bytes <= FEW_BYTES:
                world.wait(lambda: False, LATER_S)  # attempts that nobody wants may still write
            self.books.virtual_s += world.now_s
            if world.errors:
                raise world.errors[0]

    def has_driven(self) -> bool:
        """Let a driver work; return whether the job is over."""
        world, disk = now(), self.disk
        demand(self.books.drivers < MOST_DRIVERS, "the job does not come to its end")
        self.books.drivers += 1
        self.driver = driver = Driver(self, self.books.drivers)
        disk.driver = process = driver.process
        is_open = False  # whether its generators may hold files, beside those of its store
        try:
            with world.acting(process):
                try:
                    return driver.drive()
                except Died:
                    # What the driver has open is closed while it is dead: later, when Python
                    # collects the objects, a close would hit another file of the same number.
                    if driver.store is not None:
                        with suppress(Died):
                            driver.store._closing.close()
                    self.books.count("driver died")
                    is_open = driver.moment in (OPENING, PUBLISHING, ENDING)
                finally:
                    driver.store = None
                    process.die()
        except (DaskprsError, OSError) as error:
            self.books.count(f"driver failed: {type(error).__name__}")
            if self.is_calm and self.scenario.lies:
                raise Refused from error  # a disk that lied may have lost the reason of the output
            if disk.cut_off and self.scenario.items is not None and isinstance(error, JournalError):
                # Two drivers may have committed other rows of a mini-batch whose items fail by
                # chance. The output that is there is whole.
                raise Refused from error
            demand(disk.struck or self.strikes.has_struck, f"a driver failed: {error!r}")
        finally:
            if is_open:
                gc.collect(0)
            disk.release(process)
            if driver.client is not None:
                self._cut_for_good(driver.client)
        return False

    def _cut_for_good(self, client: Client) -> None:
        client.wire.cut()
        scheduler = self.cluster.scheduler
        now().at(self.rng.random(), scheduler.process, partial(scheduler.remove_client, client.id))

    def is_quiet(self) -> bool:
        """Say whether nothing has befallen the cluster, so that no attempt was in vain."""
        is_damaged = bool(self.scenario.damaged) and not self.is_calm
        return not (self.strikes.has_struck or self._starts_failed or is_damaged)

    def _has_one_job(self) -> bool:
        """Say whether all agents were of one job, and nothing has befallen it."""
        return self.is_quiet() and len(Pool.of_job) == 1

    # ---- what must hold at the end ----

    @property
    def can_heal(self) -> bool:
        """Whether what has failed may run again, by a script that fails for nothing."""
        items, has_failed = self.scenario.items, self.driver is None or self.driver.has_failed
        return items is not None and items.isolates and not (items.is_dependent or has_failed)

    def check(self, *, is_over: bool = True) -> None:
        """Compare the output with that of a serial run, and kept rows once the job is over."""
        scenario = self.scenario
        driver = self.driver
        assert driver is not None
        if driver.has_failed and self.has_published:
            # The first of two drivers failed after the other one had published. Which items fail by
            # chance was another one for each.
            demand(self.disk.cut_off, "a job that has published has failed")
            return
        if driver.has_failed or scenario.must_fail:
            left = self.target.read_bytes() if self.target.exists() else b""
            earlier = EARLIER if scenario.replaces else b""
            demand(left == earlier, f"a job that failed has left {left!r} as its output")
            return
        wanted = self._wanted(driver)
        if scenario.typed != "alone":
            demand(self.target.exists(), "there is no output")
            found = output_in(self.target, scenario.form)
            demand(found == wanted, f"the output is {found!r} and not {wanted!r}")
            self._checked.append(found)
        if is_over and scenario.typed:
            self._check_typed(wanted)

    def _check_typed(self, wanted: str) -> None:
        """Compare the rows that were kept with their types with those of a serial run."""
        try:
            found = typed_in(self.folder, self.scenario.form)
        except JournalError as error:  # the next driver makes them anew
            may_be = self.scenario.lies if self.is_calm else self.books.is_rotten
            demand(may_be, f"typed rows are damaged: {error}")
        else:
            demand(found == wanted, f"the typed rows are {found!r} and not {wanted!r}")

    def _wanted(self, driver: Driver) -> str:
        """Return the output of a serial run."""
        scenario = self.scenario
        if scenario.items is not None:
            assert driver.ledger is not None
            return FORMS[scenario.form](self.left_out.serial_rows(driver.ledger.given_up))
        good = [index for index in range(scenario.count) if index not in scenario.settled_bad]
        if scenario.typed:
            return FORMS[scenario.form]([row for index in good for row in numbers_of(index)])
        return serial_output(scenario.form, good)

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
        if self.scenario.typed == "alone":
            return
        left = {one.name for one in self.target.parent.iterdir()} - {self.target.name}
        if any(how == "error" for how, _ in self.disk.struck):  # it could not be removed
            left -= {f".{self.target.name}.daskprs-claim"}
        ends = ("terminate unlink", "terminate rmdir")
        if any(f"{how} {what}".startswith(ends) for how, what in self.disk.struck):
            return  # a second signal has ended the driver before it had removed something
        demand(not left, f"beside the output there is {left}")


def serial_output(form: str, good: list[int]) -> str:
    """Return the output of a serial run over mini-batches of one item."""
    if form == "parquet":
        return str([row for index in good for row in numbers_of(index)])
    if form == "jsonl":
        lines = (row for index in good for row in numbers_of(index))
        return "".join(f'{{"index":{index},"row":{row}}}\n' for index, row in lines)
    rows = b"".join(map(rows_of, good)).decode()
    return HEADER + rows if form == "headed" and rows else rows


@contextmanager
def _emptied(folder: Path) -> Iterator[Path]:
    try:
        yield folder
    finally:
        if folder.exists():
            shutil.rmtree(folder, ignore_errors=True)


def _healed_again(before: Stage, rng: random.Random) -> Stage:
    """Let just the failed items of a job run again, by a mended script; the power may be lost.

    Then a resume has to do first what was lost. It leaves alone what has failed.
    """
    last, books = before, before.books
    scenario = before.scenario.mended()
    for runs, listed in (
        ("what failed", scenario.items),
        ("all that is left", before.left_out.before),
        ("what failed", scenario.items),
    ):
        whole = len(last.disk.record)
        moment = whole if runs == "what failed" else rng.randint(last.adopted, whole)
        last.disk.drop()
        found = last.disk.after_power_loss(moment, last.root, rng)
        last = Stage(scenario, last.root, books, is_calm=True, runs=runs)
        last.left_out.before = listed
        last.disk.adopt(found)
        last.adopted = len(last.disk.record)
        books.reported = set()
        last.play()
        last.check()
        last.check_the_rest()
    books.count("failed items run again")
    return last


def played(scenario: Scenario, base: Path) -> Books:
    """Play a scenario, and its resumes after a loss of power; return the books.

    Raises
    ------
    Violation
        When a promise is broken.

    """
    books, rng = Books(), random.Random(scenario.seed)  # noqa: S311
    with _emptied(base / f"seed{scenario.seed}") as root, _emptied(base / f"{root.name}-nodes"):
        stage = last = Stage(scenario, root, books, is_calm=False)
        for what in scenario.kinds:
            books.count(what)
        if scenario.replaces:
            stage.target.parent.mkdir()
            stage.target.write_bytes(EARLIER)
            stage.disk.adopt({"out": None, f"out/{stage.target.name}": EARLIER})
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
            last.disk.drop()  # the paths in the journal stay those of the job
            found = stage.disk.after_power_loss(moment, root, rng)
            # Somebody may have mended the script meanwhile: what was given up has rows now.
            mended = scenario.mended() if rng.random() < 0.5 else scenario
            again = last = Stage(mended, root, books, is_calm=True)
            again.left_out.before = scenario.items
            again.disk.adopt(found)
            books.count("power lost")
            books.reported = durable(reports, stage.disk.record[:moment])
            if scenario.lies or stage.disk.cut_off:
                # A driver that was cut off may commit the same anew, without a sync.
                books.reported = set()
            with suppress(Refused, Ruled):
                again.play()
                again.check()
                again.check_the_rest()
                if again.can_heal:
                    last = _healed_again(again, rng)
        last.disk.drop()
    return books
