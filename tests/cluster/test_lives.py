"""Workers and sessions that come back, and what is known of those before them."""

from __future__ import annotations

import asyncio
import pickle
from queue import SimpleQueue
from threading import Event, Thread
from time import sleep
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

from daskprs._agent.node.site import ProbeFile
from daskprs._cluster import scheduler_plugin, slot_manager, task_host
from daskprs._cluster.driver_task import who_sees
from daskprs._cluster.remote import nodes as far_nodes
from daskprs._cluster.remote.node_service import NodeCalls, NodeService, Unreachable
from daskprs._cluster.remote.nodes import FarNodes
from daskprs._cluster.remote.transfer import PIECE_BYTES, send
from daskprs._cluster.scheduler_plugin import JobPlugin
from daskprs._cluster.slot_allocator import SlotAllocator
from daskprs._cluster.task_host import blind_workers
from daskprs._cluster.worker_events import (
    AgentsStopped,
    WorkerLost,
    WorkersFound,
    packed,
    unpacked,
)
from daskprs._core.actions import SlotAdded, SlotId, SlotResources
from daskprs._folders.job_folder import JobFolder
from daskprs._report.listeners import Listeners

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._cluster.worker_events import Heartbeat


class NoCluster:
    """A client that is never asked for anything, and a scheduler that only hears."""

    def __init__(self) -> None:
        self.scheduler = self
        self.address = "tcp://nowhere"
        self.loop = self
        self._event_handlers: dict[str, Any] = {}
        self.logged: list[Any] = []

    def subscribe_topic(self, topic: str, handler: Any) -> None:
        """Hear nothing."""

    def add_callback(self, *_: Any) -> None:
        """Do nothing."""

    call_later = add_callback

    def log_event(self, topic: str, message: bytes) -> None:
        """Keep what is told."""
        self.logged.append((topic, unpacked(message)))


def test_a_worker_with_a_new_life_at_its_address_is_asked_again_where_it_stands(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    a_job: JobSpec,
    a_worker: Callable[..., Heartbeat],
) -> None:
    """What was sent to the one before it has gone with its plugin, though the address stayed."""
    asked: SimpleQueue[str] = SimpleQueue()

    def look(_: Any, worker: str, *__: Any) -> dict[str, Any]:
        asked.put(worker)
        return {"folder": "", "store": "", "lacks": [], "sees_output": True}

    monkeypatch.setattr(far_nodes.NodeCalls, "__call__", look)
    job = a_job._replace(job_dir=str(tmp_path), output_dir=str(tmp_path))
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(far_nodes, "new_probe", lambda *_: ProbeFile("", ""))
    nodes = FarNodes(NoCluster(), job, lambda *_: None)
    try:
        for life in ("first", "first", "second"):
            workers = {"a": a_worker("a", life=life)}
            assert nodes.ready(workers) == workers
        assert asked.qsize() == 2
    finally:
        nodes.close()


def test_a_result_that_is_fetched_as_the_job_ends_does_not_hold_it_up(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    a_job: JobSpec,
    a_worker: Callable[..., Heartbeat],
) -> None:
    """The scheduler has stopped, and answers nobody."""
    far: dict[str, Any] = {"folder": "far", "store": "", "lacks": [], "sees_output": True}
    monkeypatch.setattr(far_nodes.NodeCalls, "__call__", lambda *_, **__: far)
    for name in ("fetch_news", "fetch_rest", "close"):
        monkeypatch.setattr(far_nodes.FarLogs, name, lambda *_: None)
    begun = Event()

    def fetched(_: Any, __: Any, is_there: Callable[[], bool]) -> None:
        begun.set()
        while is_there():
            sleep(0.001)

    monkeypatch.setattr(far_nodes, "fetched", fetched)
    job = a_job._replace(job_dir=str(tmp_path), output_dir=str(tmp_path))
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(far_nodes, "new_probe", lambda *_: ProbeFile("", ""))
    nodes = FarNodes(NoCluster(), job, lambda *_: None)
    inbox: list[tuple[int, Any]] = []
    try:
        assert nodes.ready({"a": a_worker("a")})
        nodes.deliver("a", 7, inbox.append, SimpleNamespace(status="finished"))
        assert begun.wait(60)
    finally:
        nodes.close()
    assert [lease_id for lease_id, _ in inbox] == [7]


def test_a_worker_that_dies_while_it_is_asked_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does it see the folder of a detached job, nor would it write into a data set."""

    def run(function: Callable[..., bool], *given: Any, on_error: str = "raise") -> dict[str, bool]:
        if on_error == "raise":
            raise OSError("Timed out trying to connect to b")
        return {"a": function(*given)}

    client = cast("Any", SimpleNamespace(run=run))
    folder = JobFolder(tmp_path)
    folder.detached.parent.mkdir(parents=True, exist_ok=True)
    folder.detached.write_text("{}")
    assert who_sees(client, folder) == ["a"]
    monkeypatch.setattr(task_host, "client_of_task", lambda: client)
    assert blind_workers(tmp_path / "probe") == []


def test_another_error_of_a_worker_that_is_asked_is_raised(tmp_path: Path) -> None:
    """One without daskprs, say: else the job folder would be blamed, which no worker sees."""

    def run(*_: Any, on_error: str) -> dict[str, Any]:
        error = {"b": ModuleNotFoundError("No module named 'daskprs'")}
        return {"a": True, **(error if on_error == "return" else {})}

    folder = JobFolder(tmp_path)
    folder.detached.parent.mkdir(parents=True, exist_ok=True)
    folder.detached.write_text("{}")
    with pytest.raises(ModuleNotFoundError):
        who_sees(cast("Any", SimpleNamespace(run=run)), folder)


def test_tasks_of_others_may_have_any_key() -> None:
    """Numbers are keys, too; the driver hears of the worker's loss all the same."""
    plugin = JobPlugin("job", ("topic",), "client", b"")
    plugin._scheduler = NoCluster()
    tasks = {7: None, "text": None, ("job", 1, 0): None, ("other", 1): None, (): None}
    event = {
        "action": "remove-worker",
        "worker": "a",
        "processing-tasks": tasks,
        "lost-computed-tasks": set(),
        "expected": False,
    }
    plugin.log_event("all", event)
    assert plugin._scheduler.logged == [("topic", WorkerLost("a", False, frozenset({1})))]
    assert plugin._lost == {"a": [("job", 1, 0)]}


def test_a_worker_that_joins_as_the_job_ends_keeps_no_plugin() -> None:
    """Its agents would have nobody to end them."""
    asked: list[str] = []

    class Ending:
        workers: ClassVar[dict[str, Any]] = {"a": object()}
        plugins: ClassVar[dict[str, Any]] = {}

        async def broadcast(self, *, msg: dict[str, Any], **_: Any) -> dict[str, Any]:
            asked.append(msg["op"])
            self.plugins.clear()  # the end of the job comes before the answer
            return {"a": {"status": "OK"}}

    plugin = JobPlugin("job", ("topic",), "client", b"")
    plugin._scheduler = Ending()
    plugin._scheduler.plugins["job"] = plugin
    asyncio.run(plugin._set_up("a"))
    assert asked == ["plugin-add", "plugin-remove"]


def test_a_worker_that_stays_is_asked_again_for_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loop was held up until the connection ran out of time: the job would do without it."""
    late = OSError("Timed out trying to connect to a after 30 s")
    answers = [{"a": late}, {"a": late}, {"a": {"status": "OK"}}]

    class Busy:
        workers: ClassVar[dict[str, Any]] = {"a": object()}
        plugins: ClassVar[dict[str, Any]] = {}

        async def broadcast(self, *, msg: dict[str, Any], **_: Any) -> dict[str, Any]:
            assert msg["op"] == "plugin-add"
            return answers.pop(0)

    monkeypatch.setattr(scheduler_plugin, "ASK_AGAIN_S", 0.0)
    plugin = JobPlugin("job", ("topic",), "client", b"")
    plugin._scheduler = Busy()
    plugin._scheduler.plugins["job"] = plugin
    asyncio.run(plugin._set_up("a"))
    assert answers == []


@pytest.mark.parametrize("what", ["sends heartbeats", "has gone", "is another one"])
def test_a_worker_is_not_asked_again_for_the_plugin_if_it(
    what: str, monkeypatch: pytest.MonkeyPatch, a_worker: Callable[..., Heartbeat]
) -> None:
    """A second plugin would end the agents of the first; another worker is asked by itself."""
    asked: list[str] = []

    class Cut:
        workers: ClassVar[dict[str, Any]] = {"a": object()}
        plugins: ClassVar[dict[str, Any]] = {}

        async def broadcast(self, *, msg: dict[str, Any], **_: Any) -> dict[str, Any]:
            asked.append(msg["op"])
            if what == "sends heartbeats":
                plugin.log_event("topic", packed(a_worker("a")))
            else:
                self.workers.pop("a")
                self.workers.update({"a": object()} if what == "is another one" else {})
            return {"a": OSError("the connection was cut")}

    monkeypatch.setattr(scheduler_plugin, "ASK_AGAIN_S", 0.0)
    plugin = JobPlugin("job", ("topic",), "client", b"")
    plugin._scheduler = Cut()
    plugin._scheduler.plugins["job"] = plugin
    asyncio.run(plugin._set_up("a"))
    assert asked == ["plugin-add"]


class ASession:
    """One that is there, until it is lost."""

    def __init__(self, *given: Any, number: int) -> None:
        *_, self.heard = given
        self.number = number
        self.lost = False
        self.connected = True
        self.scaling_demand = self

    def open(self) -> None:
        """Find the cluster there."""

    close = forget = wish = ask_for_lost_workers = lambda *_, **__: None


def a_slot_manager(
    client: Any,
    job: JobSpec,
    tell: Callable[[Any], None] = lambda _: None,
    wake: Callable[[Any], None] = lambda _: None,
    processes: int = 1,
) -> slot_manager.SlotManager:
    """Return one that has not come to its cluster yet."""
    listeners = Listeners((), JobFolder("/nowhere"))
    nodes = SlotAllocator(None, processes)
    return slot_manager.SlotManager(client, job, nodes, listeners, tell, wake)


def test_what_was_told_in_a_session_that_was_lost_is_not_heard_in_the_next(
    monkeypatch: pytest.MonkeyPatch, a_job: JobSpec, a_worker: Callable[..., Heartbeat]
) -> None:
    """The worker has a plugin of the next session when it says so there."""
    monkeypatch.setattr(slot_manager, "Session", ASession)
    told: list[Any] = []
    client = NoCluster()
    client.address = far_nodes.IN_PROCESS
    it = a_slot_manager(client, a_job, told.append)
    it.open()
    first = it._session
    first.heard(a_worker("a"))
    first.lost, first.connected = True, False
    assert "no connection to the scheduler" in it.obstacles()
    first.connected = True
    assert it.obstacles() == ()
    for _ in range(3):
        it.turn(0.0)
        it._looked_s -= slot_manager.LOOK_EVERY_S
    assert it._session.number == 1
    assert told == []
    it._session.heard(a_worker("a", life="another"))
    it.turn(0.0)
    assert [type(event) for event in told] == [SlotAdded]


def test_processes_without_a_device_are_counted_when_slots_come_or_go(
    monkeypatch: pytest.MonkeyPatch, a_job: JobSpec, a_worker: Callable[..., Heartbeat]
) -> None:
    """Not every second: the count takes long where slots are many."""
    one, two = "tcp://one:1", "tcp://two:1"
    counted: list[set[str]] = []

    def count(offered: dict[SlotId, Any], _: float) -> dict[int, str]:
        counted.append({slot.worker for slot in offered})
        return {}

    monkeypatch.setattr(slot_manager, "Session", ASession)
    monkeypatch.setattr(slot_manager, "without_device", count)
    client: Any = NoCluster()
    client.address = far_nodes.IN_PROCESS
    it = a_slot_manager(client, a_job)
    it.open()
    session: Any = it._session

    def look() -> None:
        for _ in range(3):
            it._looked_s -= slot_manager.LOOK_EVERY_S
            it.turn(0.0)

    session.heard(WorkersFound((one, two)))
    session.heard(a_worker(one))
    look()
    assert counted == []
    session.heard(a_worker(two, host="two"))
    look()
    session.heard(WorkerLost(one, expected=False, leases=frozenset()))
    look()
    assert counted == [{one, two}, {two}]


def test_no_more_is_said_of_processes_without_a_device_when_they_are_gone(
    monkeypatch: pytest.MonkeyPatch, a_job: JobSpec, a_worker: Callable[..., Heartbeat]
) -> None:
    """The progress line would tell of them until the end of the job."""
    monkeypatch.setattr(slot_manager, "Session", ASession)
    client: Any = NoCluster()
    client.address = far_nodes.IN_PROCESS
    it = a_slot_manager(client, a_job, processes=2)
    it.open()
    session: Any = it._session
    session.heard(a_worker("tcp://one:1", devices=("0",)))
    it.turn(0.0)
    assert it.obstacles() == ("node 0: 1 of 2 processes sees no GPU",)
    session.heard(WorkerLost("tcp://one:1", expected=False, leases=frozenset()))
    it.turn(0.0)
    assert it.obstacles() == ()


def test_a_lease_that_dask_calls_back_for_late_is_passed_on_once(a_job: JobSpec) -> None:
    """What a far node left would be fetched twice, and is gone by the second time."""
    passed_on: list[Any] = []
    future: Any = SimpleNamespace(status="finished", done=lambda: True)
    it = a_slot_manager(cast("Any", NoCluster()), a_job, wake=passed_on.append)
    it._far = cast("Any", SimpleNamespace(deliver=lambda _, lease, wake, end: wake((lease, end))))
    it._leases[7] = SlotId("a", 0, 0), future
    for _ in range(2):
        it._deliver_forgotten()
    assert passed_on == [(7, future)]
    it._deliver("a", 7, future)
    assert it.take(7) == SlotId("a", 0, 0)
    it._deliver("a", 7, future)
    assert passed_on == [(7, future)]


def test_a_worker_that_cannot_stop_its_agents_is_not_waited_for(a_job: JobSpec) -> None:
    """The scheduler does not reach one of them, the service of another has an error."""

    async def broadcast(**_: Any) -> dict[str, Any]:
        refused = RuntimeError("can't start new thread")
        answers = {"a": {"result": None}, "b": {"result": refused}}
        return {**answers, "c": pickle.dumps(OSError("cut"))}

    client: Any = SimpleNamespace(
        scheduler=SimpleNamespace(broadcast=broadcast),
        loop=SimpleNamespace(add_callback=lambda call: asyncio.run(call())),
    )
    it = a_slot_manager(client, a_job)
    it._slots = dict.fromkeys((SlotId(worker, 0, 0) for worker in "abc"), SlotResources())
    stopped = it.stop_agents()
    assert [stopped.get_nowait() for _ in range(2)] == [
        AgentsStopped("b", ()),
        AgentsStopped("c", ()),
    ]
    assert stopped.empty()


class UnstoppablePool:
    """Agents whose end cannot be awaited."""

    def stop(self) -> None:
        """Raise, as a pool does whose zygote has gone at a bad moment."""
        raise BrokenPipeError


def test_a_service_reports_the_end_of_agents_though_that_was_an_error() -> None:
    """The driver would wait for its report until `shutdown_timeout`."""
    reported: list[Any] = []
    service = NodeService(cast("Any", None), cast("Any", UnstoppablePool()), reported.append)
    with pytest.raises(BrokenPipeError):
        service._shut_down()
    assert reported == [()]


def test_a_service_without_another_thread_stops_the_agents_in_the_one_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scripts' `shutdown` runs all the same."""

    def refuse(_: Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    reported: list[Any] = []
    pool: Any = SimpleNamespace(stop=lambda: ("an event",))
    service = NodeService(cast("Any", None), pool, reported.append)
    monkeypatch.setattr(Thread, "start", refuse)
    service._stop()
    assert reported == [("an event",)]


def test_what_is_sent_to_a_node_is_broken_off_when_the_job_is_over(tmp_path: Path) -> None:
    """Nobody waits for a model of gigabytes that no agent will read."""
    over = Event()
    sent = []

    def sync(_: Any, *, workers: list[str], **__: Any) -> dict[str, Any]:
        sent.append(workers)
        over.set()
        return {"a": {"result": None}}

    client: Any = SimpleNamespace(scheduler=SimpleNamespace(broadcast=None), sync=sync)
    model = tmp_path / "model"
    model.write_bytes(bytes(3 * PIECE_BYTES))
    with pytest.raises(Unreachable):
        send(model, "model", "key", NodeCalls(client, "job", until=over), "a")
    assert sent == [["a"]]
