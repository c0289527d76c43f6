"""Rows brought together by the workers of a cluster: as in one process, whoever is lost."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import psutil
import pytest
from distributed import Client, Future, get_worker

import daskprs
from daskprs._cluster import key_exchange
from daskprs._cluster.key_exchange import KeyExchange
from daskprs._inputs.keys import shuffle
from daskprs._inputs.keys.partition_keys import ShuffledKeySource
from daskprs._inputs.keys.shuffle import file_of
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from daskprs.errors import LoadError
from tests.support.by_hand import ByHand
from tests.support.polling import poll_for
from tests.support.separate_nodes import separate_nodes, why_not

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed import Worker

    from daskprs._cluster.key_worker import GatheredPart
    from daskprs._inputs.keys.gathering import Group

pytestmark = pytest.mark.cold
"""Tests look at the children of a process: a template would be one."""
ROWS = 60_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ByHand]:
    """Yield a cluster of two workers."""
    one = ByHand(tmp_path)
    one.worker(), one.worker()
    yield one
    one.close()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small table have several pieces and parts, and other processes deal them out."""
    monkeypatch.setattr(shuffle, "PIECE_BYTES", 200_000)
    monkeypatch.setattr(shuffle, "PART_BYTES", 300_000)
    monkeypatch.setattr(key_exchange, "SMALL_BYTES", 0)


@pytest.fixture
def source(tmp_path: Path) -> ShuffledKeySource:
    """Return a table with text and numbers as keys, both of them null at times."""
    random = np.random.default_rng(7)
    names = np.array(["Aachen", "Ulm", None, "Zwickau"], dtype=object)
    frame = pd.DataFrame(
        {
            "town": names[random.integers(0, 4, ROWS)],
            "year": np.where(random.random(ROWS) < 0.1, np.nan, random.integers(0, 50, ROWS)),
            "row": np.arange(ROWS),
            "x": random.random(ROWS),
        }
    )
    frame.to_parquet(tmp_path / "table.parquet", row_group_size=3_000)
    opened = open_source(tmp_path / "table.parquet", ReadOptions(partition_keys=("town", "year")))
    assert isinstance(opened, ShuffledKeySource)
    return opened


def contents(groups: list[Group], read: Callable[[int], bytes]) -> list[Any]:
    """Return what is known of each group, once its bytes are compared with its checksum."""
    files = {part: read(part) for part in {group.part for group in groups}}
    for group in groups:
        body = files[group.part][group.offset : group.offset + group.length]
        assert zlib.crc32(body) == group.checksum
        assert len(pickle.loads(body)) == group.rows
    return [(group.first_row, group.rows, group.checksum, repr(group.key)) for group in groups]


def expected(source: ShuffledKeySource, folder: Path) -> list[Any]:
    """Return the groups that one process makes."""
    folder.mkdir()
    source.prepare(folder)
    return contents(source._groups, lambda part: file_of(source._files, part).read_bytes())


def _bytes_of(gathered: GatheredPart) -> bytes:
    assert gathered.file is not None
    return gathered.file.at(Path(get_worker().local_directory)).read_bytes()


def _pid() -> int:
    return os.getpid()


async def _deafen(dask_worker: Worker) -> bool:
    """Let a worker answer no question of an exchange for a second; return whether it did."""
    handlers = dask_worker.handlers
    names = [name for name in handlers if name.startswith("daskprs-keys")]
    for name in names:
        asyncio.get_running_loop().call_later(1.0, handlers.setdefault, name, handlers.pop(name))
    return bool(names)


def _left(dask_worker: Worker) -> list[Any]:
    """Return what a worker has of exchanges."""
    plugins = [name for name in dask_worker.plugins if name.startswith("daskprs-keys")]
    children = psutil.Process().children(recursive=True)
    return [*plugins, *children, *Path(dask_worker.local_directory).rglob("daskprs-keys*")]


def _parts_of(exchange: KeyExchange) -> list[Future]:
    return [held.staged for _, held in sorted(exchange.staged.held.items())]


@pytest.mark.long
@pytest.mark.parametrize(
    "moment",
    ["never", "dealing", "gathering", "afterwards"],
)
def test_a_lost_worker_costs_what_it_held(
    tmp_path: Path,
    cluster: ByHand,
    source: ShuffledKeySource,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dask deals its pieces out again, and gathers its parts again; the bytes are the same."""
    meant = expected(source, tmp_path / "here")
    struck: list[int] = []

    def strike() -> None:
        if not struck:
            struck.append(next(iter(client.run(_pid).values())))
            os.kill(struck[0], signal.SIGKILL)

    def report(how_far: str) -> None:
        words = {"dealing": "dealt out by key, ", "gathering": "put together, "}
        _, found, done = how_far.partition(words.get(moment, "\0"))
        if found and not done.startswith("0 "):
            strike()

    with Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        exchange = KeyExchange(client, None, None)
        monkeypatch.setattr(exchange, "_is_seen", lambda _: False)
        scratch = tmp_path / "there"
        scratch.mkdir()
        groups = exchange.run(source._source, ("town", "year"), scratch / "keyed", report)
        if moment == "afterwards":
            strike()
        parts = _parts_of(exchange)
        bodies = client.gather([client.submit(_bytes_of, part) for part in parts])
        assert contents(groups, bodies.__getitem__) == meant
        assert bool(struck) == (moment != "never")
        exchange.close()
        assert list(scratch.iterdir()) == []
        assert poll_for(lambda: not any(client.run(_left).values()))


def test_agents_of_another_driver_find_their_own_rows(
    tmp_path: Path, source: ShuffledKeySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped, and has lost its locks; the partitions have another number of parts now."""
    source.prepare(tmp_path)
    before, reader = [*source.mini_batches()], source.reader()
    monkeypatch.setattr(shuffle, "PART_BYTES", 100_000)
    source.prepare(tmp_path)
    after = [*source.mini_batches()]
    assert [one.identity for one in before] == [one.identity for one in after]
    assert [one.piece for one in before] != [one.piece for one in after]
    for one, other in zip(before, after, strict=True):
        assert reader.load(one).equals(source.reader().load(other))


def test_a_worker_may_die_while_it_is_asked_for_what_it_sees(
    tmp_path: Path, cluster: ByHand, source: ShuffledKeySource
) -> None:
    """The others do the work."""
    meant = expected(source, tmp_path / "here")
    with Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        pid = next(iter(client.run(_pid).values()))
        os.kill(pid, signal.SIGSTOP)
        dying = threading.Timer(1.0, os.kill, (pid, signal.SIGKILL))
        dying.start()
        exchange = KeyExchange(client, None, None)
        scratch = tmp_path / "there"
        scratch.mkdir()
        groups = exchange.run(source._source, ("town", "year"), scratch / "keyed", lambda _: None)
        dying.join()
        exchange.close()
    assert contents(groups, lambda part: (scratch / f"keyed.{part}").read_bytes()) == meant


def test_a_worker_that_nobody_can_reach_is_an_error_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scheduler may keep it for ever: to ask again and again would be a silent wait."""

    class Unreachable:
        """A client whose workers cannot be reached."""

        scheduler, scheduler_comm = SimpleNamespace(address="tcp://127.0.0.1:1"), None
        asked = 0

        def run(self, *_: Any, **__: Any) -> dict[str, Any]:
            self.asked += 1
            return {"tcp://127.0.0.1:2": OSError("no route")}

    monkeypatch.setattr(key_exchange, "LOOK_EVERY_S", 0.01)
    client: Any = Unreachable()
    exchange = KeyExchange(client, None, None, timeout_s=0.1)
    monkeypatch.setattr(exchange, "check", lambda: None)
    with pytest.raises(OSError, match="no route"):
        exchange._answers(bool)
    assert client.asked > 1


@pytest.mark.long
def test_a_worker_may_close_while_others_ask_it_for_rows(
    tmp_path: Path, cluster: ByHand, source: ShuffledKeySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no handler for that any more; they ask again."""
    meant = expected(source, tmp_path / "here")
    with Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        exchange = KeyExchange(client, None, None)
        begin = exchange._gathers

        def gathers(parts: int) -> Iterator[Future]:
            assert all(client.run(_deafen).values())
            return begin(parts)

        monkeypatch.setattr(exchange, "_gathers", gathers)
        monkeypatch.setattr(exchange, "_is_seen", lambda _: False)
        scratch = tmp_path / "there"
        scratch.mkdir()
        groups = exchange.run(source._source, ("town", "year"), scratch / "keyed", lambda _: None)
        parts = _parts_of(exchange)
        bodies = client.gather([client.submit(_bytes_of, part) for part in parts])
        exchange.close()
    assert contents(groups, bodies.__getitem__) == meant


@pytest.mark.long
def test_an_error_of_a_piece_is_that_of_the_exchange(
    tmp_path: Path, cluster: ByHand, source: ShuffledKeySource
) -> None:
    """The rest is not waited for, and nothing is left on the cluster."""
    (tmp_path / "table.parquet").write_bytes(b"another")
    with Client(cluster.address, set_as_default=False) as client:
        exchange = KeyExchange(client, None, None)
        with pytest.raises(LoadError, match=r"table\.parquet"):
            exchange.run(source._source, ("town", "year"), tmp_path / "keyed", lambda _: None)
        exchange.close()
        assert poll_for(lambda: not any(client.run(_left).values()))


@pytest.mark.long
def test_rows_travel_between_nodes_that_share_no_disk(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Those of the caller go to a node with its piece, then from node to node."""
    if reason := why_not():
        pytest.skip(reason)
    frame = pd.DataFrame({"key": np.arange(ROWS) % 97, "text": [f"row {n}" for n in range(ROWS)]})
    here, source = (open_source(frame, ReadOptions(partition_keys=("key",))) for _ in range(2))
    assert isinstance(here, ShuffledKeySource)
    assert isinstance(source, ShuffledKeySource)
    meant = expected(here, tmp_path / "here")
    log = tmp_path_factory.mktemp("nodes") / "log"
    with (
        separate_nodes(log, [log.parents[1]], count=2) as nodes,
        Client(nodes.address, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        exchange = KeyExchange(client, None, None)
        groups = exchange.run(source._source, ("key",), tmp_path / "here" / "keyed", lambda _: None)
        parts = _parts_of(exchange)
        bodies = client.gather([client.submit(_bytes_of, part) for part in parts])
        places = client.who_has(parts).values()
        exchange.close()
    assert contents(groups, bodies.__getitem__) == meant
    assert len({worker for workers in places for worker in workers}) == 2


SCRIPT = """
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import psutil

FOLDER = Path({folder!r})

def run(rows):
    worker = psutil.Process().parent().ppid()
    (FOLDER / f"begun.{{worker}}").touch()
    until = time.monotonic() + 60
    while not (FOLDER / "go").exists() and time.monotonic() < until:
        time.sleep(0.01)
    return pd.DataFrame({{"first": [rows["row"].iloc[0]], "rows": len(rows), "x": rows["x"].sum()}})
"""


@pytest.mark.long
def test_a_job_goes_on_when_a_worker_takes_gathered_rows_with_it(
    tmp_path: Path, cluster: ByHand, source: ShuffledKeySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts are gathered again, and the mini-batches that it had begun run elsewhere."""
    del source
    monkeypatch.setattr(KeyExchange, "_is_seen", lambda *_: False)
    (tmp_path / "script.py").write_text(SCRIPT.format(folder=str(tmp_path)))

    def strike() -> None:
        assert poll_for(lambda: any(tmp_path.glob("begun.*")), 60)
        begun = next(tmp_path.glob("begun.*"))
        os.kill(int(begun.suffix[1:]), signal.SIGKILL)
        (tmp_path / "go").touch()

    thread = threading.Thread(target=strike)
    with Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        thread.start()
        result = daskprs.parallel_run(
            tmp_path / "table.parquet",
            str(tmp_path / "script.py"),
            partition_keys=["town", "year"],
            client=client,
            job_dir=tmp_path / "job",
            progress=False,
            keep_rows=True,
        )
        thread.join()
    got = result.to_pandas(ignore_index=True)
    table = pd.read_parquet(tmp_path / "table.parquet")
    meant = table.groupby(["town", "year"], sort=False, dropna=False).agg(
        first=("row", "first"), rows=("row", "size"), x=("x", "sum")
    )
    pd.testing.assert_frame_equal(got, meant.reset_index(drop=True))
