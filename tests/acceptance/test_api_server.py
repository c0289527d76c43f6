"""The API server of the tests answers in the published form, and keeps its own limits."""

from __future__ import annotations

import pytest
import requests

from tests.support.api_server import OK, TOO_MANY, ApiModel, api_server


def ask(url: str, path: str, **body: object) -> requests.Response:
    return requests.post(f"{url}/{path}", json={"model": "m", **body}, timeout=30)


def test_it_completes_and_embeds_with_the_tokens_that_it_counts() -> None:
    with api_server() as server:
        chat = ask(server.url, "chat/completions", messages=[{"role": "user", "content": "so it"}])
        vectors = ask(server.url, "embeddings", input=["a b", "c"]).json()
    answer = chat.json()
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "SO IT"}
    assert answer["usage"] == {"prompt_tokens": 2, "total_tokens": 4, "completion_tokens": 2}
    assert [one["index"] for one in vectors["data"]] == [0, 1]
    assert vectors["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert (server.prompt_tokens, server.completion_tokens) == (5, 2)
    assert server.answers == {OK: 2}


def test_it_refuses_what_is_over_its_rate_and_says_when_to_come_back() -> None:
    with api_server(requests_per_minute=1, burst_s=60, retry_after_s=2.0) as server:
        answers = [ask(server.url, "embeddings", input="a") for _ in range(2)]
    assert [one.status_code for one in answers] == [OK, TOO_MANY]
    assert answers[1].headers["Retry-After"] == "2"
    assert answers[1].json()["error"]["code"] == "rate_limit_exceeded"


def test_a_spent_quota_has_a_code_of_its_own() -> None:
    with api_server(quota=0) as server:
        answer = ask(server.url, "embeddings", input="a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "insufficient_quota")


def test_a_hanging_request_gets_no_answer_until_the_server_ends() -> None:
    with api_server(share_of_hung=1.0) as server, pytest.raises(requests.Timeout):
        requests.post(f"{server.url}/embeddings", json={"model": "m", "input": "a"}, timeout=0.2)
    assert server.answers == {0: 1}


def test_its_buckets_let_through_the_rate_and_no_more() -> None:
    model = ApiModel(requests_per_minute=600, tokens_per_minute=60_000, burst_s=1.0)
    answers = [model.verdict(200, tenth / 10).status for tenth in range(600)]
    assert 290 <= answers.count(OK) <= 310
    assert model.over_the_rate == answers.count(TOO_MANY)
