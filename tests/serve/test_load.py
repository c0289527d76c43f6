"""Many clients, large and slow bodies: nothing breaks, leaks, or is lost."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.support.cases import mostly_long
from tests.support.polling import poll_for
from tests.support.services import LIVE, TOKEN, LightService, body

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENTS = 300
QUEUED = 2000
FIRST_ANSWER_S = 30
"""Ten times what it takes on a small machine."""
HUGE_BYTES = 1 << 30
GROWN_MB = 64


def peak_mb(service: LightService) -> float:
    """Return the most memory that a service has held."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def held(service: LightService) -> tuple[int, int, int]:
    """Return how many descriptors, children and threads a service has."""
    process = psutil.Process(service.process.pid)
    threads = process.threads()
    return process.num_fds(), len(process.children()), len(threads)


@contextlib.contextmanager
def connected(service: LightService) -> Iterator[socket.socket]:
    """Yield a connection without a library that is polite."""
    place = urlsplit(service.url)
    assert place.hostname is not None
    with socket.create_connection((place.hostname, place.port or 0), timeout=60) as connection:
        yield connection


def head(*more: str, token: str = TOKEN) -> bytes:
    """Return the head of an invocation."""
    lines = ["POST /jobs HTTP/1.1", "Host: it", f"Authorization: Bearer {token}"]
    return "\r\n".join([*lines, "Content-Type: application/json", *more, "", ""]).encode()


def answer_of(connection: socket.socket) -> bytes:
    """Return the first bytes of an answer."""
    return connection.recv(4096).split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("token", "status"), [(TOKEN, b"413"), ("an-unknown-token", b"401")], ids=["known", "unknown"]
)
def test_a_body_that_says_it_is_large_is_refused_before_it_is_sent(
    service: LightService, token: str, status: bytes
) -> None:
    """So a client that waits for the answer sends nothing."""
    with connected(service) as connection:
        head_of_it = head(f"Content-Length: {HUGE_BYTES}", "Expect: 100-continue", token=token)
        connection.sendall(head_of_it)
        assert status in answer_of(connection)


@pytest.mark.parametrize(
    "told",
    mostly_long(
        [f"Content-Length: {HUGE_BYTES}", "Transfer-Encoding: chunked"],
        suite=["Transfer-Encoding: chunked"],
    ),
)
def test_a_gigabyte_that_is_sent_all_the_same_is_not_held(service: LightService, told: str) -> None:
    """The client hears 413, and the service drops what comes."""
    service.client.get("/jobs")
    before = peak_mb(service)
    chunk = bytes(1 << 20)
    framed = b"100000\r\n" + chunk + b"\r\n" if "chunked" in told else chunk
    with connected(service) as connection:
        connection.sendall(head(told))
        with contextlib.suppress(ConnectionError):
            for _ in range(HUGE_BYTES // len(chunk)):
                connection.sendall(framed)
        assert b"413" in answer_of(connection)
    assert peak_mb(service) - before < GROWN_MB
    assert service.client.get("/jobs").status_code == 200


@pytest.mark.parametrize("length", ["-1", "1e3", "0x10", "9" * 30, "10, 11", ""])
def test_a_length_that_is_none_is_a_bad_request(service: LightService, length: str) -> None:
    """Or a large one."""
    with connected(service) as connection:
        connection.sendall(head(f"Content-Length: {length}"))
        assert answer_of(connection).split()[1] in {b"400", b"413"}


def test_clients_that_vanish_leave_nothing(service: LightService) -> None:
    """In the middle of a head, of a body, and while they follow a job."""
    gate = service.home / "gate"
    name = service.invoke(service.data("wait", "say begun", f"wait {gate}")).json()["name"]
    assert poll_for(lambda: service.status(name) == "Running")
    before = held(service)[0]
    for _ in range(20):
        with connected(service) as connection:
            connection.sendall(head("Content-Length: 100")[:40])
        with connected(service) as connection:
            connection.sendall(head("Content-Length: 100") + b"{")
        with service.client.stream("GET", f"/jobs/{name}/stream") as stream:
            assert next(stream.iter_lines()) == "begun"
    assert poll_for(lambda: held(service)[0] <= before), (before, held(service))
    gate.touch()
    assert service.ended(name) == "Completed"
    gate.unlink()


def test_a_disk_that_takes_nothing_is_told(tmp_path: Path) -> None:
    """No job is accepted that could be lost, and the service goes on.

    It has a service of its own, which looks after no job of an earlier test meanwhile.
    """
    jobs, away = tmp_path / "jobs", tmp_path / "away"
    with LightService(tmp_path) as service:
        data = service.data("empty")
        jobs.rename(away)
        jobs.touch()
        answer = service.invoke(data)
        jobs.unlink()
        away.rename(jobs)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "StorageUnavailable")
        name = service.invoke(data).json()["name"]
        assert service.ended(name) == "Completed"


@pytest.mark.long
def test_a_system_without_room_is_told_and_loses_nothing(tmp_path: Path) -> None:
    """With a few descriptors left, jobs are accepted or not; what was accepted runs later."""
    gate = tmp_path / "gate"
    with LightService(tmp_path, running=1) as service:
        names = [service.invoke(service.data("wait", f"wait {gate}")).json()["name"]]
        assert poll_for(lambda: service.status(names[0]) == "Running")
        data = service.data("empty")
        process = psutil.Process(service.process.pid)
        usual = process.rlimit(psutil.RLIMIT_NOFILE)
        for spare in range(1, 8):
            process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + spare, usual[1]))
            answers = [service.invoke(data), service.client.get(f"/jobs/{names[0]}")]
            process.rlimit(psutil.RLIMIT_NOFILE, usual)
            assert answers[0].status_code in {201, 503}, answers[0].text
            assert answers[1].status_code in {200, 503}
            names += [answers[0].json()["name"]] if answers[0].status_code == 201 else []
        gate.touch()
        assert {service.ended(name) for name in names} == {"Completed"}


async def _one(client: httpx.AsyncClient, data: str) -> tuple[str, set[int]]:
    """Do what a client does, at once with all others; return its job, and all statuses."""
    wrong = {"Authorization": "Bearer an-unknown-token"}
    first = await client.post("/jobs", json=body(data))
    name = first.json()["name"]
    answers = await asyncio.gather(
        client.get(f"/jobs/{name}"),
        client.get("/jobs?$top=5"),
        client.get("/jobs", headers=wrong),
        client.post("/jobs", json=body("/etc/passwd")),
        client.get(f"/jobs/{name}/outputs/none"),
        client.get(f"/jobs/{name}/stream"),
    )
    expected = [{200}, {200}, {401, 429}, {403}, {404}, {200}]
    return name, {
        first.status_code,
        *(one.status_code for one, statuses in zip(answers, expected, strict=True)
          if one.status_code not in statuses),
    }  # fmt: skip


async def _all(service: LightService, places: list[str]) -> list[tuple[str, set[int]]]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(
        base_url=service.url, headers=headers, limits=limits, timeout=150
    ) as client:
        return await asyncio.gather(*(_one(client, data) for data in places))


@pytest.mark.long
def test_three_hundred_clients_at_once_are_served(tmp_path: Path) -> None:
    """Each has its job, and each job its end; afterwards the service holds what it held."""
    with LightService(tmp_path, running=4) as service:
        service.ended(service.invoke(service.data("first")).json()["name"])
        before = held(service)
        places = [service.data(f"of-{number}", f"say {number}") for number in range(CLIENTS)]
        found = asyncio.run(_all(service, places))
        assert {status for _, statuses in found for status in statuses} == {201}
        names = [name for name, _ in found]
        assert len(set(names)) == CLIENTS
        assert {service.ended(name) for name in names} == {"Completed"}
        for name, data in zip(names, places, strict=True):
            output = tmp_path / "jobs" / name / "output" / "done.txt"
            assert output.read_text() == data
        listed = service.client.get(f"/jobs?$top={CLIENTS + 10}").json()["value"]
        assert {job["name"] for job in listed} > set(names)
        assert not LIVE & {job["properties"]["status"] for job in listed}
        assert poll_for(lambda: held(service)[:2] <= before[:2]), (before, held(service))
        assert held(service)[2] < before[2] + 60  # the threads of its two pools
    assert "Traceback" not in tmp_path.joinpath("service.txt").read_text()


async def _invoke_until_it_dies(service: LightService, data: str) -> list[str]:
    """Invoke with many clients until enough jobs wait, and kill the service while they go on."""
    names: list[str] = []

    async def invoke(client: httpx.AsyncClient) -> None:
        with contextlib.suppress(httpx.TransportError):
            while service.process.poll() is None:
                answer = await client.post("/jobs", json=body(data))
                assert answer.status_code == 201, answer.text
                names.append(answer.json()["name"])
                if len(names) >= QUEUED:
                    service.process.kill()

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=CLIENTS)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(
        base_url=service.url, headers=headers, limits=limits, timeout=150
    ) as client:
        await asyncio.gather(*(invoke(client) for _ in range(CLIENTS)))
    return names


def _number(home: Path, name: str) -> int:
    return int((home / "jobs" / name / "ticket.1").read_text().split()[0])


@pytest.mark.long
def test_two_thousand_jobs_that_wait_survive_a_kill(tmp_path: Path) -> None:
    """Each job that was accepted is there, in its order, and the next service answers soon."""
    gate = tmp_path / "gate"
    with LightService(tmp_path, running=1, queued=2 * QUEUED) as service:
        data = service.data("wait", f"wait {gate}")
        names = asyncio.run(_invoke_until_it_dies(service, data))
        service.killed()
    begun_s = time.monotonic()
    with LightService(tmp_path, running=1, queued=2 * QUEUED) as service:
        assert service.client.get("/jobs?$top=1").status_code == 200
        took_s = time.monotonic() - begun_s
        print(f"{len(names)} jobs, the first answer after {took_s:.1f} s")
        assert took_s < FIRST_ANSWER_S
        listed: list[str] = []
        link = "/jobs?$top=1000"
        while link:
            page = service.client.get(link).json()
            listed += [job["name"] for job in page["value"]]
            link = page["nextLink"]
        assert set(names) <= set(listed)
        assert len(listed) == len(set(listed)) <= len(names) + CLIENTS
        gate.touch()
        first = sorted(listed, key=lambda name: _number(tmp_path, name))[:3]
        assert [service.ended(name) for name in first] == ["Completed"] * 3
        ends = [tmp_path / "jobs" / name / "output" / "done.txt" for name in first]
        times = [path.stat().st_mtime_ns for path in ends]
        assert times == sorted(times)
    assert "Traceback" not in tmp_path.joinpath("service.txt").read_text()
