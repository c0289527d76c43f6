"""Jobs that call an endpoint: they keep its limits together, and what it refuses costs no try."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from distributed import Client, LocalCluster

import daskprs
from daskprs import ParallelRunInterrupted, RateLimit
from daskprs._cluster.governors import Governors
from daskprs._core.governor import Governor, Report
from tests.support.api_server import BROKEN, OK, TOO_MANY, api_server
from tests.support.local_servers import LOCAL_SERVERS
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.api_server import ApiServer

ASYNC = """
import os
import httpx

client = None

async def init():
    global client
    client = httpx.AsyncClient(base_url=os.environ["API"], timeout=60)

async def run(rows, context):
    text = rows["question"].iloc[0]
    await context.permit(tokens=10)
    asked = {"model": "m", "messages": [{"role": "user", "content": text}]}
    answer = await client.post("/chat/completions", json=asked)
    answer.raise_for_status()
    said = answer.json()
    context.used(tokens=said["usage"]["total_tokens"])
    return rows.assign(answer=said["choices"][0]["message"]["content"])

async def shutdown():
    await client.aclose()
"""
PLAIN = """
import os
import requests

def run(rows, context):
    text = rows["question"].iloc[0]
    with context.permit(tokens=10):
        asked = {"model": "m", "messages": [{"role": "user", "content": text}]}
        answer = requests.post(os.environ["API"] + "/chat/completions", json=asked, timeout=60)
    if answer.status_code == 429:
        context.throttled(float(answer.headers.get("Retry-After", 1)))
    answer.raise_for_status()
    said = answer.json()
    context.used(tokens=said["usage"]["total_tokens"])
    return rows.assign(answer=said["choices"][0]["message"]["content"])
"""
THREADS = f"{PLAIN}\nthread_safe = True\n"


COUNTED = ASYNC.replace("    context.used(", "    context.count('answers')\n    context.used(")
MORTAL = COUNTED.replace(
    "    return rows.assign(",
    "    if text == 'question 30' and not os.path.exists(os.environ['MARK']):\n"
    "        os.mkdir(os.environ['MARK'])\n"
    "        os.kill(os.getpid(), 9)\n"
    "    return rows.assign(",
)
CALLS = 4
"""Calls at a time of a process, in jobs whose usage is compared with the server's count."""


def questions(count: int) -> pd.DataFrame:
    return pd.DataFrame({"question": [f"question {number}" for number in range(count)]})


def ask(
    tmp_path: Path, server: ApiServer, script: str = ASYNC, count: int = 60, **more: Any
) -> daskprs.ParallelRunResult:
    """Run a job that asks a question for each row."""
    (tmp_path / "ask.py").write_text(script)
    given = {
        "mini_batch_size": "1 row",
        "process_count_per_node": 2,
        "job_dir": tmp_path / "job",
        "environment_variables": {"API": server.url},
        "run_max_try": 1,
        "output": tmp_path / "answers.parquet",
        "progress": False,
    }
    return daskprs.parallel_run(questions(count), tmp_path / "ask.py", **{**given, **more})


def answers(result: daskprs.ParallelRunResult) -> list[str]:
    return list(result.to_pandas()["answer"])


@pytest.mark.processes
def test_usage_is_the_count_of_the_server_but_for_what_a_killed_process_had_in_flight(
    tmp_path: Path,
) -> None:
    with api_server(delay_s=0.05) as server:
        variables = {"API": server.url, "MARK": str(tmp_path / "mark")}
        given = {"concurrency_per_process": CALLS, "run_max_try": 3}
        result = ask(tmp_path, server, MORTAL, environment_variables=variables, **given)
    assert (tmp_path / "mark").exists()
    assert result.usage.useful == {"answers": 60}
    spent = result.usage.spent["answers"]
    assert spent > 60
    assert 0 <= server.answers[OK] - spent < CALLS


@pytest.mark.long
@pytest.mark.processes
def test_usage_is_the_count_of_the_server_but_for_the_last_moments_of_a_lost_node(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, **LOCAL_SERVERS)
    with cluster, Client(cluster) as client, api_server(delay_s=0.5) as server:
        pid = next(iter(client.run(os.getpid).values()))

        def kill() -> None:
            assert poll_for(lambda: server.answers[OK] >= 20, 60)
            os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        more = {"client": client, "process_count_per_node": 1, "concurrency_per_process": CALLS}
        result = ask(tmp_path, server, COUNTED, **more)
        killer.join()
    assert result.usage.useful == {"answers": 60}
    # In flight, and counted since the last heartbeat, which is half a second old or a bit more.
    assert 0 <= server.answers[OK] - result.usage.spent["answers"] <= 4 * CALLS


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(ASYNC, id="async"),
        pytest.param(THREADS, id="threads", marks=pytest.mark.long),
        pytest.param(PLAIN, id="plain", marks=pytest.mark.long),
    ],
)
@pytest.mark.processes
def test_what_an_endpoint_refuses_runs_again_and_costs_no_try(tmp_path: Path, script: str) -> None:
    limit = RateLimit(requests_per_minute=3000, tokens_per_minute=1e6, in_flight=8)
    with api_server(share_of_429=0.1, retry_after_s=0.2, seed=3) as server:
        result = ask(tmp_path, server, script, rate_limit=limit)
    assert result.status == "Completed"
    assert answers(result) == [f"QUESTION {number}" for number in range(60)]
    assert result.throttled == server.answers[TOO_MANY] > 0
    assert server.answers[OK] == 60
    assert server.most_at_once <= 8


def test_a_script_in_this_process_keeps_the_limits_too(tmp_path: Path) -> None:
    with api_server(share_of_429=0.2, retry_after_s=0.1, seed=5) as server:
        limit = RateLimit(requests_per_minute=6000, in_flight=1)
        more = {"rate_limit": limit, "start_method": "inline"}
        result = ask(tmp_path, server, PLAIN, 10, **more)
    assert (result.status, server.answers[OK]) == ("Completed", 10)
    assert result.throttled == server.answers[TOO_MANY] > 0


@pytest.mark.processes
def test_requests_keep_to_the_rate(tmp_path: Path) -> None:
    """However slow the machine is, they take as long as the limit says."""
    with api_server() as server:
        ask(tmp_path, server, count=20, rate_limit=RateLimit(requests_per_minute=300))
    first, burst, per_s = 1, 5, 5
    assert max(at for at, _ in server.answered_s) >= (20 - first - burst) / per_s


@pytest.mark.processes
def test_without_limits_an_endpoint_is_left_alone_for_as_long_as_it_wants(tmp_path: Path) -> None:
    """The job did not survive seven seconds of this once."""
    with api_server(requests_per_minute=1200, burst_s=1.0, retry_after_s=0.5) as server:
        result = ask(tmp_path, server, count=100)
    assert (result.status, server.answers[OK]) == ("Completed", 100)
    assert result.throttled == server.answers[TOO_MANY] > 0


@pytest.mark.processes
def test_a_broken_answer_is_charged_as_before(tmp_path: Path) -> None:
    limit = RateLimit(in_flight=8)
    more: dict[str, Any] = {"rate_limit": limit, "allowed_failed_count": -1}
    with api_server(share_of_500=0.1, seed=1) as server:
        result = ask(tmp_path, server, count=40, **more)
    assert 1 <= result.mini_batches.failed <= server.answers[BROKEN]
    assert result.throttled == 0


@pytest.mark.processes
def test_a_spent_quota_interrupts_the_job_and_nothing_is_paid_twice(tmp_path: Path) -> None:
    with api_server(quota=25) as server:
        limit = RateLimit(in_flight=4)
        with pytest.raises(ParallelRunInterrupted, match="the quota of the endpoint is spent"):
            ask(tmp_path, server, rate_limit=limit)
        server.raise_quota()
        result = ask(tmp_path, server, rate_limit=limit, resume=True)
    assert len(answers(result)) == 60
    assert server.answers[OK] == 60


@pytest.mark.processes
@pytest.mark.parametrize(
    "script", [ASYNC, pytest.param(PLAIN, marks=pytest.mark.long)], ids=["async", "plain"]
)
def test_no_timeout_counts_the_wait_for_a_permit(tmp_path: Path, script: str) -> None:
    more = {"run_invocation_timeout": 4, "process_count_per_node": 1}
    with api_server() as server:
        limit = RateLimit(requests_per_minute=10)
        result = ask(tmp_path, server, script, 2, rate_limit=limit, **more)
    assert result.mini_batches.succeeded == 2


@pytest.mark.processes
@pytest.mark.parametrize("start_method", ["inline", "fork"])
def test_an_error_of_the_governor_ends_the_job_with_its_traceback(
    tmp_path: Path, start_method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job would wait for permits for ever."""

    def handle(*_: Any) -> None:
        injected = 1 / 0
        raise AssertionError(injected)

    monkeypatch.setattr(Governor, "handle", handle)
    script = tmp_path / "waits.py"
    script.write_text("def run(rows, context):\n    context.permit()\n    return rows\n")
    more: Any = {"start_method": start_method, "job_dir": tmp_path / "job", "progress": False}
    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        daskprs.parallel_run(questions(3), script, rate_limit=RateLimit(in_flight=1), **more)
    assert "injected = 1 / 0" in str(caught.value)


@pytest.mark.processes
def test_a_process_that_dies_gives_its_permit_back(tmp_path: Path) -> None:
    """With one request at a time, nothing would go on."""
    dies = ASYNC.replace(
        "    answer = await client.post",
        '    if text == "question 3" and not os.path.exists(os.environ["DIED"]):\n'
        '        open(os.environ["DIED"], "w").close()\n'
        "        os._exit(3)\n"
        "    answer = await client.post",
    )
    with api_server() as server:
        variables = {"API": server.url, "DIED": str(tmp_path / "died")}
        more = {"environment_variables": variables, "run_max_try": 3}
        result = ask(tmp_path, server, dies, 12, rate_limit=RateLimit(in_flight=1), **more)
    assert (tmp_path / "died").exists()
    assert len(answers(result)) == 12
    assert server.most_at_once == 1


@pytest.mark.processes
def test_jobs_of_a_cluster_share_a_limit_by_its_name(tmp_path: Path) -> None:
    limit = RateLimit(in_flight=2, name="account")
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, **LOCAL_SERVERS)
    with cluster, Client(cluster) as client, api_server(delay_s=0.02) as server:

        def job(name: str) -> None:
            (tmp_path / name).mkdir()
            more = {"client": client, "rate_limit": limit, "process_count_per_node": 1}
            done.append(ask(tmp_path / name, server, count=20, **more).status)

        done: list[str] = []
        threads = [threading.Thread(target=job, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = client.run_on_scheduler(lambda dask_scheduler: sorted(dask_scheduler.handlers))
    assert done == ["Completed"] * 2
    assert server.most_at_once <= 2
    assert not [name for name in left if "daskprs" in name]


def test_what_a_lost_worker_or_a_job_that_has_ended_holds_goes_to_others() -> None:
    governors = Governors(workers := {"a", "b", "c"})
    for job in ("one", "two"):
        governors.join(job, RateLimit(in_flight=4, name="account"))

    def most(job: str, worker: str, most_now: int = 0) -> int:
        report = Report(most_in_flight=most_now, waiting=10)
        answer = governors.handle(job, worker, {"p": list(report)})
        grant: list[int] = answer["grants"].get("p", [0, 0, 0])
        return grant[2]

    assert most("one", "a") == 4
    assert most("two", "b") == 0
    workers.remove("a")
    governors.lose_worker("one", "a")
    assert most("one", "a", 4) == 0, "a late report"
    assert most("two", "b") == 4
    assert most("one", "c") == 0
    governors.leave("two")
    assert most("one", "c") == 4
    governors.leave("one")
    assert not governors.are_needed
    assert governors.handle("one", "c", {"p": list(Report())}) == {
        "grants": {},
        "after_s": 1.0,
    }
