"""A model's HTTP API on loopback, in the published form of OpenAI's, with limits and faults."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OK, BAD_REQUEST, NOT_FOUND, TOO_MANY, BROKEN = 200, 400, 404, 429, 500
HUNG = 0
"""The status of a request that gets no answer, on a connection that stays open."""
CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
DIMENSIONS = 8
"""The length of an embedding."""
RATE_LIMITED, NO_QUOTA = "rate_limit_exceeded", "insufficient_quota"
"""The codes of errors with the status 429."""


class Bucket:
    """Holds what accrues at a rate per minute, up to a burst; it is full at first."""

    def __init__(self, per_minute: float, burst: float) -> None:
        self._per_s = per_minute / 60
        self._burst = self._held = burst
        self._at_s: float | None = None

    def missing_s(self, amount: float, now_s: float) -> float:
        """Return the seconds until it holds an amount; 0 where it does now."""
        passed_s = 0.0 if self._at_s is None else now_s - self._at_s
        self._at_s = now_s
        self._held = min(self._burst, self._held + passed_s * self._per_s)
        return max(0.0, amount - self._held) / self._per_s

    def take(self, amount: float) -> None:
        """Take an amount that it holds."""
        self._held -= amount


class Verdict(NamedTuple):
    """What the API does with a request."""

    status: int
    retry_after_s: float | None = None
    code: str = ""


class ApiModel:
    """Decides over requests, without a clock.

    Parameters
    ----------
    requests_per_minute, tokens_per_minute
        The limits of the account; None: there is none.
    burst_s
        The seconds of a limit that its bucket holds.
    share_of_500, share_of_429, share_of_hung
        The shares of requests that fail whatever the buckets hold.
    retry_after_s
        The header ``Retry-After`` of an answer 429; None: the answer has none.
    quota
        The number of good answers after which the account has no money left; None: it has.
    seed
        Decides which requests fail.

    """

    def __init__(
        self,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        burst_s: float = 1.0,
        share_of_500: float = 0.0,
        share_of_429: float = 0.0,
        share_of_hung: float = 0.0,
        retry_after_s: float | None = 1.0,
        quota: int | None = None,
        seed: int = 0,
    ) -> None:
        self._requests, self._tokens = (
            None if rate is None else Bucket(rate, rate / 60 * burst_s)
            for rate in (requests_per_minute, tokens_per_minute)
        )
        self._shares = ((HUNG, share_of_hung), (BROKEN, share_of_500), (TOO_MANY, share_of_429))
        self._retry_after_s = retry_after_s
        self.quota = quota
        self._random = Random(seed)  # noqa: S311
        self.answers: Counter[int] = Counter()
        """The number of answers, by status."""
        self.over_the_rate = 0
        """The number of answers 429 since a bucket did not hold enough."""

    def verdict(self, tokens: float, now_s: float) -> Verdict:
        """Decide over a request that costs a number of tokens."""
        verdict = self._verdict(tokens, now_s)
        self.answers[verdict.status] += 1
        return verdict

    def _verdict(self, tokens: float, now_s: float) -> Verdict:
        if self.quota is not None and self.answers[OK] >= self.quota:
            return Verdict(TOO_MANY, None, NO_QUOTA)
        drawn = self._random.random()
        for status, share in self._shares:
            if drawn < share:
                is_limited = status == TOO_MANY
                return Verdict(
                    status,
                    self._retry_after_s if is_limited else None,
                    RATE_LIMITED if is_limited else "",
                )
            drawn -= share
        wanted = [
            (bucket, amount)
            for bucket, amount in ((self._requests, 1), (self._tokens, tokens))
            if bucket is not None
        ]
        if any(bucket.missing_s(amount, now_s) > 0 for bucket, amount in wanted):
            self.over_the_rate += 1
            return Verdict(TOO_MANY, self._retry_after_s, RATE_LIMITED)
        for bucket, amount in wanted:
            bucket.take(amount)
        return Verdict(OK)


class ApiServer:
    """Serves the model's API, and counts.

    Attributes
    ----------
    url
        The base of its paths: ``http://127.0.0.1:…/v1``.
    prompt_tokens, completion_tokens
        The sums of `usage` in all good answers.
    asked
        The bodies of all requests, in the order in which they came.
    answered_s
        When each answer was decided, in seconds since the start, with its status.
    most_at_once
        The largest number of requests at the same time.

    """

    def __init__(self, model: ApiModel, delay_s: float, speed: float) -> None:
        self.model = model
        self.url = ""
        self.prompt_tokens = self.completion_tokens = 0
        self.asked: list[dict[str, Any]] = []
        self.answered_s: list[tuple[float, int]] = []
        self.most_at_once = self._now = 0
        self._delay_s = delay_s
        self._speed = speed
        self._begun_s = time.monotonic()
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    @property
    def answers(self) -> Counter[int]:
        """The number of answers, by status."""
        return self.model.answers

    def raise_quota(self) -> None:
        """Give the account money."""
        self.model.quota = None

    def end(self) -> None:
        """Let requests that hang end."""
        self._is_over.set()

    def answer(self, path: str, body: Any) -> tuple[int, dict[str, str], bytes] | None:
        """Return status, headers and body of an answer; None where there is none."""
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            return self._answer(path, body)
        finally:
            with self._lock:
                self._now -= 1

    def _answer(self, path: str, body: Any) -> tuple[int, dict[str, str], bytes] | None:
        make = _MADE.get(urlsplit(path).path)
        if make is None:
            return NOT_FOUND, {}, _error(f"there is no {path}", "invalid_request_error", "")
        try:
            made, prompt, completion = make(body)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            text = f"the request is not valid: {error!r}"
            return BAD_REQUEST, {}, _error(text, "invalid_request_error", "")
        with self._lock:
            now_s = (time.monotonic() - self._begun_s) * self._speed
            verdict = self.model.verdict(prompt + completion, now_s)
            self.asked.append(body)
            self.answered_s.append((now_s, verdict.status))
            if verdict.status == OK:
                self.prompt_tokens += prompt
                self.completion_tokens += completion
            number = len(self.asked)
        if verdict.status == HUNG:
            self._is_over.wait()
            return None
        if verdict.status != OK:
            headers = {}
            if verdict.retry_after_s is not None:
                headers["Retry-After"] = f"{verdict.retry_after_s / self._speed:g}"
            text = "Rate limit reached" if verdict.status == TOO_MANY else "The server had an error"
            kind = "requests" if verdict.status == TOO_MANY else "server_error"
            return verdict.status, headers, _error(text, kind, verdict.code)
        self._is_over.wait(self._delay_s)
        usage = {"prompt_tokens": prompt, "total_tokens": prompt + completion}
        if completion:
            usage["completion_tokens"] = completion
        answer = {**made, "model": body["model"], "usage": usage}
        if "choices" in made:
            answer |= {"id": f"chatcmpl-{number}", "created": int(time.time())}
        return OK, {}, json.dumps(answer).encode()


def _chat(body: Any) -> tuple[dict[str, Any], int, int]:
    """Return a completion, which is the last message in capitals, and its tokens: its words."""
    texts = [str(message["content"]) for message in body["messages"]]
    words = texts[-1].upper().split()
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    is_cut = most is not None and len(words) > most
    words = words[:most]
    message = {"role": "assistant", "content": " ".join(words)}
    choice = {"index": 0, "message": message, "finish_reason": "length" if is_cut else "stop"}
    prompt = sum(len(text.split()) for text in texts)
    return {"object": "chat.completion", "choices": [choice]}, prompt, len(words)


def _embeddings(body: Any) -> tuple[dict[str, Any], int, int]:
    """Return vectors that depend on the texts only."""
    given = body["input"]
    texts = [given] if isinstance(given, str) else [str(text) for text in given]
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": [byte / 255 for byte in sha256(text.encode()).digest()[:DIMENSIONS]],
        }
        for index, text in enumerate(texts)
    ]
    return {"object": "list", "data": data}, sum(len(text.split()) for text in texts), 0


_MADE: dict[str, Callable[[Any], tuple[dict[str, Any], int, int]]] = {
    CHAT: _chat,
    EMBEDDINGS: _embeddings,
}


def _error(text: str, kind: str, code: str) -> bytes:
    error = {"message": text, "type": kind, "param": None, "code": code or None}
    return json.dumps({"error": error}).encode()


class _Listening(ThreadingHTTPServer):
    """Has a thread for each connection, which ends with the server."""

    daemon_threads = False
    request_queue_size = 256

    def __init__(self, *args: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients are killed, too."""

    def cut(self) -> None:
        """Cut all connections; those that clients keep open would keep their threads."""
        for one in [*self._open]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def api_server(*, delay_s: float = 0.0, speed: float = 1.0, **of_model: Any) -> Iterator[ApiServer]:
    """Run a server on loopback.

    Parameters
    ----------
    delay_s
        The seconds that a good answer takes.
    speed
        How much faster the server's clock is: its minute takes ``60 / speed`` seconds.
    of_model
        The arguments of `ApiModel`.

    """
    server = ApiServer(ApiModel(**of_model), delay_s, speed)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                body = json.loads(raw)
            except ValueError:
                body = None
            answer = server.answer(self.path, body)
            if answer is None:
                self.close_connection = True
                return
            status, headers, content = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with _Listening(("127.0.0.1", 0), Handler) as listening:
        server.url = f"http://127.0.0.1:{listening.server_address[1]}/v1"
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.end()
            listening.shutdown()
            thread.join()
            listening.cut()
