"""Exporters: a job as OpenTelemetry, Prometheus and MLflow get it, from real receivers."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
import urllib.request
from collections import defaultdict
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from distributed import Client, LocalCluster

import daskprs
from daskprs._cluster.connect import IN_PROCESS
from daskprs._folders.job_folder import JobFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FRAME = pd.DataFrame({"n": range(8)})
OPTIONS: dict[str, Any] = {
    "mini_batch_size": 16,
    "process_count_per_node": 1,
    "run_max_try": 2,
    "progress": False,
}


SCRIPT = """
def run(rows):
    if 7 in set(rows["n"]):
        raise ValueError("seven is too much")
    return rows[rows["n"] % 2 == 0]
"""


def script(folder: Path) -> Path:
    """Return a script that fails at the last mini-batch."""
    path = folder / "source" / "halve.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(SCRIPT)
    return path


def run(folder: Path, **options: Any) -> daskprs.ParallelRunResult:
    """Run a job of four mini-batches, the last of which fails in both tries.

    The second one is made again in a new process, since the first one may have broken its own.
    """
    given = OPTIONS | {"job_dir": folder, "allowed_failed_count": 1}
    result = daskprs.parallel_run(FRAME, script(folder.parent), **(given | options))
    assert result.mini_batches == (4, 3, 1)
    return result


# ---- OpenTelemetry ----


class Receiver:
    """A receiver of OTLP on loopback, which keeps what comes, by path."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = defaultdict(list)
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                bodies[self.path].append(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def spans(self) -> list[Any]:
        """Return all spans that have come."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        found = [ExportTraceServiceRequest.FromString(one) for one in self.bodies["/v1/traces"]]
        return [
            span
            for request in found
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def sums(self) -> dict[tuple[str, str], float]:
        """Return the last values of metrics, by name and status."""
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
            ExportMetricsServiceRequest,
        )

        last = ExportMetricsServiceRequest.FromString(self.bodies["/v1/metrics"][-1])
        return {
            (metric.name, values_of(point.attributes).get("status", "")): point.as_int
            for resource in last.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in (*metric.sum.data_points, *metric.gauge.data_points)
        }

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def values_of(attributes: Any) -> dict[str, Any]:
    """Return attributes of OTLP as a dict."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Yield a receiver that the variables of OpenTelemetry name."""
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="daskprs[otel] is not installed"
    )
    with closing(Receiver()) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        yield receiver


def test_a_job_is_a_trace_with_a_span_for_each_attempt(receiver: Receiver, tmp_path: Path) -> None:
    """With the times of the agent, and the error of the script as its exception."""
    run(tmp_path / "traced")
    spans = receiver.spans()
    (job,) = (span for span in spans if span.name == "daskprs halve.py")
    of_job = values_of(job.attributes)
    assert of_job["daskprs.job"] == "traced"
    assert of_job["daskprs.status"] == "Completed"
    assert of_job["daskprs.items.succeeded"] == 3
    attempts = [span for span in spans if span.name == "mini-batch"]
    assert len(attempts) == 6
    assert {span.parent_span_id for span in attempts} == {job.span_id}
    assert {span.trace_id for span in attempts} == {job.trace_id}
    for span in attempts:
        assert job.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
    failed = [span for span in attempts if span.events]
    assert [values_of(span.attributes)["daskprs.attempt"] for span in failed] == [1, 2, 3]
    exception = values_of(failed[0].events[0].attributes)
    assert exception["exception.type"] == "ValueError"
    assert exception["exception.message"] == "seven is too much"
    assert "halve.py" in exception["exception.stacktrace"]


def test_metrics_count_attempts_mini_batches_and_items(receiver: Receiver, tmp_path: Path) -> None:
    """The last ones come when the job ends."""
    run(tmp_path / "counted")
    sums = receiver.sums()
    assert sums["daskprs.attempts", "RUN_DONE"] == 3
    assert sums["daskprs.attempts", "RUN_EXCEPTION"] == 3
    assert sums["daskprs.mini_batches", "succeeded"] == 3
    assert sums["daskprs.mini_batches", "failed"] == 1
    assert sums["daskprs.items", "succeeded"] == 3
    assert sums["daskprs.items", "failed"] == 5
    assert sums["daskprs.mini_batches.running", ""] == 0


def test_variables_choose_the_signals(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them, or none."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    run(tmp_path / "traced")
    assert set(receiver.bodies) == {"/v1/traces"}
    receiver.bodies.clear()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    run(tmp_path / "silent")
    assert not receiver.bodies


def test_a_job_is_completed_where_no_receiver_answers(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it wait for one."""
    receiver.close()
    monkeypatch.setattr(receiver, "close", lambda: None)
    run(tmp_path / "job")


IN_A_TRACE = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import pandas as pd
import daskprs

kept, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
with trace.get_tracer("mine").start_as_current_span("nightly") as nightly:
    run = daskprs.start(pd.DataFrame({"n": [2]}), sys.argv[2], job_dir=sys.argv[1],
        progress=False, process_count_per_node=1)
    run.result()
with trace.get_tracer("mine").start_as_current_span("after"):
    pass
spans = {span.name: span for span in kept.get_finished_spans()}
job = spans["daskprs halve.py"]
assert job.parent.span_id == nightly.get_span_context().span_id
assert spans["mini-batch"].parent.span_id == job.get_span_context().span_id
assert "after" in spans, "the provider of the caller goes on"
"""


def test_a_job_lies_in_the_trace_of_its_caller(receiver: Receiver, tmp_path: Path) -> None:
    """Who has a provider keeps it."""
    program = [sys.executable, "-c", IN_A_TRACE, str(tmp_path / "job"), str(script(tmp_path))]
    subprocess.run(program, check=True, timeout=120)
    assert "/v1/traces" not in receiver.bodies


def test_a_missing_package_is_named_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is done without; other people may have set the variables."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delitem(sys.modules, "daskprs._report.telemetry", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    run(tmp_path / "job")
    log = JobFolder(tmp_path / "job").master_log.read_text()
    assert "a receiver of OpenTelemetry, which gets nothing: " in log
    assert "Install daskprs[otel]" in log


# ---- Prometheus ----


@contextmanager
def scheduler() -> Iterator[tuple[Client, str]]:
    """Yield a client, and the address of the metrics of its scheduler."""
    options = IN_PROCESS | {"dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(threads_per_worker=1, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client, f"http://127.0.0.1:{cluster.scheduler.http_server.port}/metrics"


def test_the_schedulers_endpoint_has_figures_of_jobs(tmp_path: Path) -> None:
    """They stay for a while after the end, beside those of Dask, and of a job of the same name."""
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    with scheduler() as (client, url):
        for job in (tmp_path / "shown", tmp_path / "other" / "shown"):
            job.parent.mkdir(exist_ok=True)
            run(job, client=client)
        with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own server
            lines = answer.read().decode().splitlines()
    assert any(line.startswith("dask_scheduler_workers") for line in lines)
    for folder in (tmp_path, tmp_path / "other"):
        job = f'job="shown",job_dir="{folder / "shown"}"'
        assert f'daskprs_job_mini_batches{{{job},state="succeeded"}} 3.0' in lines
        assert f'daskprs_job_mini_batches{{{job},state="failed"}} 1.0' in lines
        assert f"daskprs_job_mini_batches_planned{{{job}}} 4.0" in lines
        assert f'daskprs_job_items{{{job},state="succeeded",unit="row"}} 3.0' in lines


# ---- MLflow ----


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return MLflow with an empty store."""
    package: Any = pytest.importorskip("mlflow", reason="daskprs[mlflow] is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    package.set_tracking_uri((tmp_path / "runs").as_uri())
    return package


def test_the_active_run_of_mlflow_has_counts_and_result(tmp_path: Path, mlflow: Any) -> None:
    """In whichever thread the job runs; a job without an active run logs nothing."""
    with mlflow.start_run() as active:
        run(tmp_path / "first")
    seen = mlflow.get_run(active.info.run_id).data
    assert seen.metrics["daskprs/mini_batches_succeeded"] == 3
    assert seen.metrics["daskprs/mini_batches_failed"] == 1
    assert seen.metrics["daskprs/items_succeeded"] == 3
    assert seen.metrics["daskprs/elapsed_s"] > 0
    assert seen.tags["daskprs.status"] == "Completed"
    assert seen.tags["daskprs.job_dir"] == str(tmp_path / "first")
    with mlflow.start_run() as active:
        failing = {"job_dir": tmp_path / "no", **OPTIONS}
        started = daskprs.start(FRAME, script(tmp_path), **failing)
        with pytest.raises(daskprs.ParallelRunFailed):
            started.result()
    tags = mlflow.get_run(active.info.run_id).data.tags
    assert tags["daskprs.status"] == "Failed"
    assert "allowed_failed_count" in tags["daskprs.reason"]
    run(tmp_path / "alone")
    assert len(mlflow.search_runs(output_format="list")) == 2


def test_a_tracking_server_that_fails_does_not_fail_the_job(tmp_path: Path, mlflow: Any) -> None:
    """The log of daskprs says what it did."""
    with mlflow.start_run() as active:
        mlflow.MlflowClient().delete_run(active.info.run_id)
        run(tmp_path / "job")
        mlflow.MlflowClient().restore_run(active.info.run_id)
    (error,) = JobFolder(tmp_path / "job").own_errors.iterdir()
    assert error.name == "MlflowRun.txt"
