"""The gate: what it waits for, and for how long."""

from __future__ import annotations

import asyncio
import json
import os
import resource
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._serve import gate
from daskprs._serve.audit_log import AuditLog
from daskprs._serve.rate_limits import CallerRate
from daskprs._serve.tokens import Token, Tokens, digest_of
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping
    from pathlib import Path

pytestmark = pytest.mark.attack

SECRET = "sixteen-characters"  # noqa: S105 - nobody's
MOST_BYTES = 10


async def reached(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the body; it stands behind the gate."""
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body + scope["state"]["caller"].encode()})


def stopped() -> float:
    """Return the time of a clock that stands still, as between requests of the same moment."""
    return 0.0


def guarded(
    audit: AuditLog | None = None, clock: Callable[[], float] = stopped, **token: Any
) -> gate.Gate:
    """Return a gate that knows a token."""
    tokens = Tokens([Token("ann", digest_of(SECRET), **token)], "here")
    return gate.Gate(reached, tokens, MOST_BYTES, audit, clock=clock)


def answered(
    *messages: dict[str, Any],
    headers: Iterable[tuple[bytes, bytes]] = (),
    through: gate.Gate | None = None,
    method: str = "GET",
    path: str = "/jobs",
) -> Any:
    """Return the status, the body and the number of messages that a request is answered with."""
    sent: list[MutableMapping[str, Any]] = []
    waiting = list(messages)

    async def receive() -> MutableMapping[str, Any]:
        if not waiting:
            await asyncio.Event().wait()  # a caller who says no more
        return waiting.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    given = dict(headers)
    known = [*({b"authorization": f"Bearer {SECRET}".encode()} | given).items()]
    scope = {"type": "http", "method": method, "path": path, "headers": known, "client": ("h", 1)}
    asyncio.run((through or guarded())(scope, receive, send))
    if not sent:
        return None
    body = b"".join(message.get("body", b"") for message in sent)
    assert sent[-1].get("more_body", False) is False
    return sent[0]["status"], body


def part(body: bytes, *, more: bool) -> dict[str, Any]:
    """Return a piece of a body."""
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the gate wait for hundredths of a second only."""
    monkeypatch.setattr(gate, "BODY_S", 0.02)
    monkeypatch.setattr(gate, "LINGER_S", 0.02)


def test_a_body_in_pieces_comes_whole() -> None:
    """And who sends it is known behind the gate."""
    assert answered(part(b"12345", more=True), part(b"67890", more=False)) == (
        200,
        b"1234567890ann",
    )


def test_a_body_that_grows_too_large_is_refused_where_it_does() -> None:
    """Whatever its head has said."""
    status, body = answered(
        part(b"1234567890", more=True),
        part(b"1", more=True),
        part(b"2", more=False),
        headers=[(b"content-length", b"3")],
    )
    assert status == 413
    assert b"RequestTooLarge" in body


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    """A caller may say nothing for ever."""
    status, body = answered(part(b"1", more=True))
    assert status == 408
    assert b"RequestTimeout" in body


def test_a_caller_who_goes_is_not_answered() -> None:
    """There is nobody."""
    assert answered(part(b"1", more=True), {"type": "http.disconnect"}) is None


# ---- what a token may do, and how often ----

EMPTY = part(b"", more=False)
REQUESTS = {
    ("GET", "/jobs/a/outputs"): "read",
    ("HEAD", "/"): "read",
    ("POST", "/jobs"): "run",
    ("POST", "/jobs/a/resume"): "run",
    ("PATCH", "/jobs/a"): "run",
    ("POST", "/jobs/a/cancel"): "cancel",
    ("DELETE", "/jobs/a"): "cancel",
}


@pytest.mark.parametrize("role", ["read", "run", "cancel"])
def test_a_token_may_do_what_its_roles_say(role: str) -> None:
    """And nothing else, whatever the path."""
    through = guarded(roles=(role,))
    for (method, path), needed in REQUESTS.items():
        status, body = answered(EMPTY, through=through, method=method, path=path)
        assert status == (200 if needed == role else 403), (method, path)
        assert (b"RoleMissing" in body) == (needed != role)


@pytest.mark.attack
@pytest.mark.parametrize("path", ["/jobs/a/cancel\n", "/jobs/a/cancel\r", "/jobs/a\n/cancel"])
def test_a_line_break_in_a_path_leads_around_no_role(path: str) -> None:
    """The routes of the framework match with a line break behind their last word."""
    for role in ("read", "run", "cancel"):
        status, _ = answered(EMPTY, through=guarded(roles=(role,)), method="POST", path=path)
        assert status == 404


def test_a_limit_lets_a_burst_through_and_then_so_many_a_second() -> None:
    """It says how long to wait, and who waits that long is admitted."""
    now_s = [0.0]
    limit = CallerRate(2, clock=lambda: now_s[0])
    for _ in range(20):
        limit.admit("ann")
    for wait_s, now_s[0] in ((1, 0.0), (1, 0.4)):
        with pytest.raises(gate.Refusal) as refused:
            limit.admit("ann")
        assert refused.value.headers == {"Retry-After": str(wait_s)}
    now_s[0] += 1
    limit.admit("ann")
    now_s[0] += 1000  # no more is saved up than one burst
    for _ in range(20):
        limit.admit("ann")
    with pytest.raises(gate.Refusal):
        limit.admit("ann")


@pytest.mark.attack
def test_each_token_has_its_limit_and_strangers_have_one_together() -> None:
    """Whatever strangers send, a token is known; nothing is kept of what they have sent."""
    now_s = [0.0]
    through = guarded(clock=lambda: now_s[0], requests_per_s=0.1)
    assert answered(EMPTY, through=through)[0] == 200
    status, body = answered(EMPTY, through=through)
    assert (status, b"TooManyRequests" in body) == (429, True)
    now_s[0] += 10
    assert answered(EMPTY, through=through)[0] == 200
    through = guarded(clock=lambda: now_s[0])
    statuses = [
        answered(EMPTY, through=through, headers=[(b"authorization", b"Bearer x%d" % number)])[0]
        for number in range(501)
    ]
    assert statuses == [401] * 500 + [429]
    assert through._limits == {}
    assert answered(EMPTY, through=through)[0] == 200


# ---- the audit log ----


def records(path: Path) -> list[dict[str, Any]]:
    """Return what a log says."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_audit_log_has_who_did_what_and_no_token(tmp_path: Path) -> None:
    """A line for each; questions how jobs are do not count, refusals do."""
    log = tmp_path / "audit.jsonl"
    through = guarded(AuditLog(log), roles=("read", "run"))
    asked = [
        ("POST", "/jobs"),
        ("GET", "/jobs/a"),
        ("GET", "/jobs/a/outputs/a\nb"),
        ("POST", "/jobs/a/resume"),
        ("POST", "/jobs/a/cancel"),
    ]
    for method, path in asked:
        answered(EMPTY, through=through, method=method, path=path)
    answered(EMPTY, through=through, headers=[(b"authorization", b"Bearer x")])
    shown = [(one["token"], one["action"], one["job"], one["status"]) for one in records(log)]
    assert shown == [
        ("ann", "start", None, 200),
        ("ann", "read", "a", 200),
        ("ann", "resume", "a", 200),
        ("ann", "cancel", "a", 403),
        (None, "look", None, 401),
    ]
    assert records(log)[1]["path"] == "/jobs/a/outputs/a\nb"
    assert {one["address"] for one in records(log)} == {"h"}
    assert SECRET not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.attack
def test_refusals_do_not_push_others_out_of_the_audit_log(tmp_path: Path) -> None:
    """Of a flood there are a few lines, and what is done after it has its line."""
    log = tmp_path / "audit.jsonl"
    through = guarded(AuditLog(log, clock=stopped), requests_per_s=1)
    for _ in range(100):
        answered(EMPTY, through=through, headers=[(b"authorization", b"Bearer x")])
    for _ in range(100):
        answered(EMPTY, through=through, method="POST", path="/jobs/a/resume")
    found = [one["status"] for one in records(log)]
    assert found.count(401) == 10
    assert found.count(429) == 1


def test_the_audit_log_is_rotated_by_its_size(tmp_path: Path) -> None:
    """The oldest lines go."""
    through = guarded(AuditLog(tmp_path / "audit.jsonl", most_bytes=400))
    for number in range(40):
        answered(EMPTY, through=through, path=f"/jobs/{number}/logs")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["audit.jsonl", *(f"audit.jsonl.{number}" for number in range(1, 10))]
    assert records(tmp_path / "audit.jsonl")[-1]["job"] == "39"
    assert all(path.stat().st_size <= 400 for path in tmp_path.iterdir())


@pytest.mark.attack
@pytest.mark.timeout(60)
def test_an_audit_log_that_cannot_be_written_fails_no_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk, a FIFO in its place, a folder: the operator reads so once."""
    log = tmp_path / "audit.jsonl"
    through = guarded(AuditLog(log))
    read = {"through": through, "path": "/jobs/a/logs"}
    answered(EMPTY, **read)
    whole = log.read_text()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, limits[1]))
    try:
        assert {answered(EMPTY, **read)[0] for _ in range(3)} == {200}
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert log.read_text() == whole
    assert capsys.readouterr().err.count("misses lines") == 1
    log.unlink()
    os.mkfifo(log)
    assert answered(EMPTY, **read)[0] == 200
    log.unlink()
    assert answered(EMPTY, **read)[0] == 200
    assert len(records(log)) == 1
    log.unlink()
    log.mkdir()
    with pytest.raises(OptionError, match="--audit-log"):
        AuditLog(log)
