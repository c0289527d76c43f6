"""The end of the service by a signal, as a supervisor sees it."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.cases import mostly_long
from tests.support.polling import poll_for
from tests.support.services import LightService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def downloading(service: LightService) -> Iterator[httpx.Response]:
    """Yield a download that is in flight: its caller has not read it yet."""
    name = service.invoke(service.data("one")).json()["name"]
    assert service.ended(name) == "Completed"
    with (service.home / "jobs" / name / "output" / "large").open("wb") as file:
        file.truncate(100 << 20)
    with service.client.stream("GET", f"/jobs/{name}/outputs/large") as answer:
        yield answer


def test_a_service_that_is_told_to_end_lets_requests_end_and_takes_no_jobs(tmp_path: Path) -> None:
    """It still answers meanwhile; what waits is started by the next service."""
    gate = tmp_path / "gate"
    with LightService(tmp_path, running=1, drain_s=100) as service:
        assert httpx.get(f"{service.url}/ready").json() == {"status": "ready"}
        waiting = service.data("wait", f"wait {gate}")
        with downloading(service) as download:
            names = [service.invoke(waiting).json()["name"] for _ in range(2)]
            assert poll_for(lambda: service.status(names[0]) == "Running")
            service.process.terminate()
            assert poll_for(lambda: httpx.get(f"{service.url}/ready").status_code == 503)
            assert httpx.get(f"{service.url}/health").status_code == 200
            refused = service.invoke(waiting)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "ServiceEnding")
            assert int(refused.headers["retry-after"]) > 0
            gate.touch()
            assert service.ended(names[0]) == "Completed"
            assert service.status(names[1]) == "Queued"
            assert len(download.read()) == 100 << 20
        assert service.process.wait(60) == 0
    assert tmp_path.joinpath("service.txt").read_text() == ""
    with LightService(tmp_path, running=1) as service:
        assert service.ended(names[1]) == "Completed"


@pytest.mark.parametrize(
    ("drain_s", "more"),
    mostly_long([(1, []), (600, [signal.SIGTERM])], suite=[(600, [signal.SIGTERM])]),
)
def test_a_request_that_does_not_end_is_ended(
    tmp_path: Path, drain_s: int, more: list[signal.Signals]
) -> None:
    """In time, or at once by a second signal; the exit code is 0 as for any end by a signal."""
    with LightService(tmp_path, drain_s=drain_s) as service, downloading(service) as download:
        service.process.terminate()
        assert poll_for(lambda: httpx.get(f"{service.url}/ready").status_code == 503)
        for one in more:
            service.process.send_signal(one)
        assert service.process.wait(60) == 0
        with pytest.raises(httpx.RemoteProtocolError):
            download.read()
    assert tmp_path.joinpath("service.txt").read_text() == ""
