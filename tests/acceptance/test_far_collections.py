"""The data of a Dask collection does not pass through the driver."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from distributed import Client

from tests.support.object_store import KEYS, ObjectStore, server_command
from tests.support.polling import poll_for
from tests.support.separate_nodes import Host, separate_nodes, why_not
from tests.support.wide_driver import COUNT, RETURNED

if TYPE_CHECKING:
    from pathlib import Path

WIDTHS = (1, 100)


def cost(driver: Host, log: Path, *words: str) -> dict[str, Any]:
    """Return what a job has cost the driver on its node."""
    with log.open("wb") as out:
        module = [sys.executable, "-m", "tests.support.wide_driver"]
        process = driver.start(*module, *words, log=out)
        assert process.wait(240) == 0, log.read_text()
    told: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
    return told


@pytest.mark.long
def test_rows_a_hundred_times_wider_cost_the_driver_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Driver, scheduler and workers are on nodes of their own; a store has the output."""
    if reason := why_not():
        pytest.skip(reason)
    costs: dict[int, dict[str, Any]] = {}
    with (
        separate_nodes(tmp_path / "log", [tmp_path], count=2, threads=2) as nodes,
        (tmp_path / "store.log").open("wb") as log,
    ):
        host = nodes.address.removeprefix("tcp://").partition(":")[0]
        nodes.hub.start(*server_command(host, 5000), log=log)
        store = ObjectStore(f"http://{host}:5000")
        assert poll_for(store.is_up, 60)
        store.put("wide")
        for name, value in {**KEYS, **store.environment}.items():
            monkeypatch.setenv(name, value)
        driver = nodes.add()
        with Client(nodes.address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        for number, width in enumerate((WIDTHS[0], *WIDTHS)):  # the first only warms up
            words = (nodes.address, str(width), f"s3://wide/{number}")
            costs[width] = cost(driver, tmp_path / f"driver-{number}.log", *words)
        names = store.names("wide")
        sizes = {len(store.get(f"wide/{name}") or b"") for name in names}
    print(costs, names, sizes)
    narrow, wide = (costs[width] for width in WIDTHS)
    assert len(names) == 1 + len(WIDTHS)
    assert len(sizes) == 1
    assert wide["rows"] == narrow["rows"] == COUNT * RETURNED
    for what in ("traffic", "memory"):
        assert abs(wide[what] - narrow[what]) < 0.1 * narrow[what], what
