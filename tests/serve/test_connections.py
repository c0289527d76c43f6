"""Callers who open many connections, or are slow at every step: others are answered meanwhile."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from daskprs._serve.listening_socket import MOST_UNSENT_BYTES, CallerLimits, ListeningSocket
from daskprs.errors import OptionError
from tests.support.polling import poll_for
from tests.support.services import TOKEN, LightService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECOND_ADDRESS = "127.0.0.2"
EACH = 40
Listening = Callable[[str, int], ListeningSocket]
ANSWER_S = 10
"""A frozen service does not answer before its limits end the attack, which are far longer."""
PATIENT = {"connections": 300, "connections_per_address": EACH, "head_s": 60, "read_s": 60}
STRICT = {"connections": 50, "connections_per_address": EACH, "head_s": 1, "read_s": 1}
HEAD = f"GET /jobs HTTP/1.1\r\nHost: it\r\nAuthorization: Bearer {TOKEN}\r\n"
POST = HEAD.replace("GET", "POST") + "Content-Type: application/json\r\n"
pytestmark = pytest.mark.attack


def place(service: LightService) -> tuple[str, int]:
    """Return the host and the port of a service."""
    parts = urlsplit(service.url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def connected(service: LightService, begun: bytes = b"", source: str = "") -> socket.socket:
    """Return a connection that has sent some bytes, from the second address if not told."""
    one = socket.socket()
    one.settimeout(60)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what a slow reader holds
    one.bind((source or SECOND_ADDRESS, 0))
    one.connect(place(service))
    one.sendall(begun)
    return one


def is_closed(connection: socket.socket) -> bool:
    """Say whether the service has closed a connection, now or within the time of the socket."""
    try:
        return connection.recv(1 << 16) == b""
    except ConnectionError:
        return True


def answers(service: LightService) -> bool:
    """Say whether other callers are answered, as everybody and with a token."""
    alive = service.client.get("/health", timeout=ANSWER_S)
    jobs = service.client.get("/jobs?$top=1", timeout=ANSWER_S)
    return alive.json() == {"status": "alive"} and jobs.status_code == 200


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightService]:
    """Yield a service with a large output, whose limits no test reaches."""
    with LightService(tmp_path_factory.mktemp("patient"), limits=PATIENT) as service:
        gate = service.home / "gate"
        name = service.invoke(service.data("wait", "say begun", f"wait {gate}")).json()["name"]
        assert poll_for(lambda: service.status(name) == "Running")
        output = service.home / "jobs" / name / "output" / "large"
        assert poll_for(output.parent.is_dir)
        with output.open("wb") as file:
            file.truncate(1 << 30)
        service.job_name = name  # type: ignore[attr-defined]
        yield service
        gate.touch()
        service.ended(name)


def bytes_of(attack: str, service: LightService) -> bytes:
    """Return what each connection of an attack sends."""
    job = f"/jobs/{service.job_name}"  # type: ignore[attr-defined]
    get = f"{HEAD}\r\n"
    return {
        "nothing": b"",
        "half a head": HEAD.encode(),
        "half a body": f"{POST}Content-Length: 100\r\n\r\n{{".encode(),
        "half a chunk": f"{POST}Transfer-Encoding: chunked\r\n\r\n64\r\n{{".encode(),
        "requests in a row": get.encode() * 500,
        "idle after a request": get.encode(),
        "a follower": get.replace("/jobs", f"{job}/stream").encode(),
        "a reader who stops": get.replace("/jobs", f"{job}/outputs/large").encode(),
    }[attack]


@pytest.mark.parametrize(
    "attack",
    [
        *("nothing", "half a head", "half a body", "half a chunk", "requests in a row"),
        *("idle after a request", "a follower", "a reader who stops"),
    ],
)
def test_others_are_answered_while_a_caller_holds_all_connections_it_may(
    large: LightService, attack: str
) -> None:
    """With threads and descriptors for the others, and no word of it in the log."""
    begun = bytes_of(attack, large)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(large)) for _ in range(EACH)]
        with connected(large) as above:
            assert is_closed(above)
        for one in held:  # only now, since an idle one is closed after five seconds
            one.sendall(begun)
        assert answers(large)
        ports = {_port(one) for one in held}
    # Its connections are counted as closed, so that it is admitted again.
    assert poll_for(lambda: not ports & _ports_of_callers(large))
    assert poll_for(lambda: _is_admitted(large))


def _is_admitted(service: LightService) -> bool:
    with connected(service, b"GET /health HTTP/1.1\r\nHost: it\r\n\r\n") as one:
        return not is_closed(one)


def test_a_caller_who_drips_is_ended_at_each_step(tmp_path: Path) -> None:
    """A head, a body and a download have their time, however busy the caller looks."""
    with LightService(tmp_path, limits=STRICT) as service:
        name = service.invoke(service.data("one", "write small a")).json()["name"]
        assert service.ended(name) == "Completed"
        large = tmp_path / "jobs" / name / "output" / "large"
        with large.open("wb") as file:
            file.truncate(1 << 30)
        stuck = f"{HEAD}\r\n".replace("/jobs", f"/jobs/{name}/outputs/large").encode()
        begun = [b"", b"", HEAD.encode(), stuck, f"{HEAD}\r\n".encode()]
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(connected(service, one)) for one in begun]
            silent, dripping, half, reader, idle = opened
            assert reader.recv(12) == b"HTTP/1.1 200"
            assert b" 200 " in idle.recv(4096)
            assert _port(reader) in _ports_of_callers(service)
            assert poll_for(lambda: _dripped(dripping, b"x"), 30)
            assert is_closed(silent)
            assert b" 408 " in half.recv(4096)
            assert poll_for(lambda: _port(reader) not in _ports_of_callers(service), 30)
            while not is_closed(idle):
                pass


def _dripped(connection: socket.socket, piece: bytes) -> bool:
    """Send a piece; return whether the service has ended the connection."""
    try:
        connection.sendall(piece)
    except ConnectionError:
        return True
    return False


def _port(connection: socket.socket) -> int:
    return int(connection.getsockname()[1])


def _ports_of_callers(service: LightService) -> set[int]:
    own = psutil.Process(service.process.pid).net_connections("tcp")
    return {one.raddr.port for one in own if one.raddr}


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (HEAD + "".join(f"a{n}: b\r\n" for n in range(90)) + "\r\n", 200),
        (HEAD + "".join(f"a{n}: b\r\n" for n in range(99)) + "\r\n", 431),
        (HEAD + f"a: {'b' * 20_000}\r\n\r\n", 431),
        (HEAD + f"a: {'b' * 20_000}", 431),
        (HEAD + "a: b\r\n" * 50_000 + "\r\n", 431),
        (HEAD + "a b: c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("\x00\r\n\r\n", 400),
    ],
    ids=range(8),
)
def test_a_head_has_a_size_and_a_form(large: LightService, head: str, status: int) -> None:
    """The refusal has the form of all errors."""
    with connected(large) as one:
        with contextlib.suppress(ConnectionError):
            one.sendall(head.encode())
        with contextlib.suppress(ConnectionError):  # what it has not read resets a connection
            answer = one.recv(1 << 16)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())
            assert (b'"error": {"code"' in answer) == (status != 200)
    assert answers(large)


def test_a_large_head_behind_another_request_is_refused_too(large: LightService) -> None:
    """It waits in the same buffer."""
    following = HEAD + "a: b\r\n" * 10_000 + "\r\n"
    with connected(large, f"{HEAD}\r\n{HEAD}\r\n{following}".encode()) as one:
        come = b""
        with contextlib.suppress(ConnectionError):
            while piece := one.recv(1 << 16):
                come += piece
        assert come.count(b"HTTP/1.1 200") == 2
        assert come.count(b"HTTP/1.1 431") == 1


def test_all_callers_together_have_a_limit(tmp_path: Path) -> None:
    """And the operator is told, once."""
    with LightService(tmp_path, limits=STRICT | {"head_s": 60}) as service:
        first = [connected(service, source="127.0.0.3") for _ in range(EACH)]
        second = [connected(service) for _ in range(10)]
        for _ in range(2):
            with connected(service) as above:
                assert is_closed(above)
        for one in (*first, *second):
            one.close()
        assert poll_for(lambda: _is_admitted(service))
    log = tmp_path.joinpath("service.txt").read_text()
    assert log.count("127.0.0.2/32 is refused: it has 10 open ones, and all callers have 50") == 1


@pytest.mark.long
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_handshakes_that_do_not_end_are_ended(tmp_path: Path) -> None:
    """They are connections, too, before the server sees them."""
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    files = [str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")]
    subprocess.run([*words, "-keyout", files[0], "-out", files[1]], check=True, capture_output=True)
    given = {"key": files[0], "certificate": files[1]}
    with LightService(tmp_path, limits=STRICT | {"head_s": 3}, **given) as service:
        begun = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        held = [connected(service, begun) for _ in range(EACH)]
        with connected(service) as above:
            assert is_closed(above)
        trusted = ssl.create_default_context(cafile=files[1])
        trusted.check_hostname = False
        assert httpx.get(service.url + "/health", verify=trusted).status_code == 200
        assert all(is_closed(one) for one in held)
        for one in held:
            one.close()
    assert len(tmp_path.joinpath("service.txt").read_text().splitlines()) == 1


# ---- the socket that listens ----


@pytest.fixture
def listener() -> Iterator[Listening]:
    """Yield a maker of listeners, and close them."""
    made = []

    def make(host: str, most: int) -> ListeningSocket:
        made.append(ListeningSocket(host, 0, CallerLimits(10, most)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_an_answer_is_sent_at_once_and_held_for_no_one(listener: Listening) -> None:
    """Without a wait for the acknowledgement of what was sent before, which takes 40 ms.

    Those who do not read cost the kernel megabytes each, and the service the time to fill them.
    """
    listening = listener("127.0.0.1", 1)
    with socket.create_connection(listening.getsockname()), listening.accept()[0] as one:
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        unsent = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
        assert unsent == MOST_UNSENT_BYTES


def test_connections_are_counted_by_address(
    listener: Listening,
) -> None:
    """A closed one counts no more, and only once."""
    listening = listener("::1", 2)
    with contextlib.ExitStack() as stack:

        def accepted() -> socket.socket:
            stack.enter_context(socket.create_connection(listening.getsockname()[:2]))
            return stack.enter_context(listening.accept()[0])

        first, _ = accepted(), accepted()
        with pytest.raises(ConnectionAbortedError):
            accepted()
        first.close()
        first.close()
        accepted()
        with pytest.raises(ConnectionAbortedError):
            accepted()


def test_more_connections_than_files_are_refused() -> None:
    """With the way to more."""
    with pytest.raises(OptionError, match=r"--max-connections 99999999.*LimitNOFILE="):
        ListeningSocket("127.0.0.1", 0, CallerLimits(99_999_999, 1))
