"""OpenTelemetry: the trace of a job and its metrics, sent where the variables of the SDK say.

A provider that the caller has set up is used as it is. Else the job has providers of its own, which
are shut down with it.
"""

from __future__ import annotations

import importlib
import os
import threading
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from daskprs._core.ending import JobStatus
from daskprs._core.events import (
    AttemptFailed,
    JobEnded,
    JobStarted,
    MiniBatchesDone,
    ProgressReported,
    SlotsChanged,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._core.events import Counts, Event, Place, Progress
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Outcome
    from daskprs._folders.job_folder import JobFolder

NAME = "daskprs"
MOST_SPANS = 10_000
"""Most spans of attempts in a trace; metrics count all attempts."""
CLOSE_S = 5.0
"""Seconds that the end of a job waits for a receiver that does not answer."""
NS = 1_000_000_000


class Telemetry:
    """Sends a span for the job and for each attempt, and counts of attempts and items.

    The signals are ``"traces"``, ``"metrics"``, or both; all carry the name of the job folder.
    """

    def __init__(self, folder: JobFolder, signals: Sequence[str]) -> None:
        self._of_job = {"daskprs.job": folder.path.name}
        self._own: list[Any] = []
        """The providers that end with the job."""
        self._others: list[Any] = []
        """The providers of the caller."""
        tracers = self._provider("traces") if "traces" in signals else trace.NoOpTracerProvider()
        meters = self._provider("metrics") if "metrics" in signals else metrics.NoOpMeterProvider()
        self._tracer = tracers.get_tracer(NAME)
        self._span: trace.Span | None = None
        self._within: Any = None
        """The context of the job's span."""
        self._spans_left = MOST_SPANS
        meter = meters.get_meter(NAME)
        self._attempts = meter.create_counter(
            "daskprs.attempts", "{attempt}", "Attempts, by status"
        )
        self._settled = meter.create_counter(
            "daskprs.mini_batches", "{mini-batch}", "Settled mini-batches"
        )
        self._items = meter.create_counter("daskprs.items", "{item}", "Rows or files of attempts")
        self._run_s = meter.create_histogram("daskprs.run.duration", "s", "Time in run()")
        self._usage = meter.create_gauge("daskprs.usage", "", "What the script counts, by name")
        self._gauges = {
            name: meter.create_gauge(f"daskprs.{name}", unit)
            for name, unit in (
                ("mini_batches.running", "{mini-batch}"),
                ("mini_batches.waiting", "{mini-batch}"),
                ("slots", "{slot}"),
                ("nodes", "{node}"),
            )
        }

    def tell(self, event: Event) -> None:
        """Count an event, and send a span for it."""
        match event:
            case JobStarted():
                self._begin(event)
            case MiniBatchesDone(place, mini_batches, outcomes):
                for mini_batch, outcome in zip(mini_batches, outcomes, strict=True):
                    if not outcome.empty:
                        self._attempted(place, mini_batch, outcome, settles=True)
            case AttemptFailed(place, mini_batch, outcome, final, again=again):
                self._attempted(place, mini_batch, outcome, settles=final, again=again)
            case SlotsChanged(nodes, slots):
                self._show(nodes=nodes, slots=slots)
            case ProgressReported(standing):
                self._show(
                    **{
                        "mini_batches.running": standing.running,
                        "mini_batches.waiting": standing.waiting,
                    }
                )
                self._show_usage(standing)
            case JobEnded(standing=standing):
                self._show_usage(standing)
                self._end(event)

    def close(self) -> None:
        """Send what is left, for `CLOSE_S` at most: a receiver may not answer."""
        if self._span is not None:
            self._span.end()
        sending = threading.Thread(target=self._flush, name="daskprs-telemetry", daemon=True)
        sending.start()
        sending.join(CLOSE_S)

    def _flush(self) -> None:
        for provider in self._own:
            provider.shutdown()
        for provider in self._others:
            provider.force_flush()

    # ---- spans ----

    def _begin(self, started: JobStarted) -> None:
        attributes = {"daskprs.script": started.script, "daskprs.resumed": started.resumed}
        self._span = self._tracer.start_span(
            f"{NAME} {started.script}",
            kind=SpanKind.INTERNAL,
            attributes=self._of_job | attributes,
        )
        self._within = trace.set_span_in_context(self._span)
        self._unit = started.unit

    def _end(self, ended: JobEnded) -> None:
        span, status = self._span, ended.ending.status
        if span is None:
            return
        counts = {"mini_batches": ended.standing.mini_batches, "items": ended.standing.items}
        for name, count in counts.items():
            span.set_attributes(_attributes(name, count))
        span.set_attributes({"daskprs.status": status.value, "daskprs.output": ended.output})
        if status is JobStatus.COMPLETED:
            span.set_status(Status(StatusCode.OK))
        else:
            span.set_status(Status(StatusCode.ERROR, ended.ending.reason))
        span.end()
        self._span = None

    def _attempted(
        self,
        place: Place,
        mini_batch: MiniBatch,
        outcome: Outcome,
        *,
        settles: bool,
        again: bool = False,
    ) -> None:
        """Count an attempt, and send its span, which has the times of its agent."""
        status = {**self._of_job, "status": outcome.status.value}
        if not again:
            self._attempts.add(1, status)
            self._run_s.record(outcome.run_s, status)
        if settles:
            ended = "failed" if outcome.failure is not None else "succeeded"
            self._settled.add(1, {**self._of_job, "status": ended})
            for name, count in (("succeeded", outcome.succeeded), ("failed", outcome.failed)):
                self._items.add(count, {**self._of_job, "status": name, "unit": self._unit})
        if again or not self._spans_left:
            return
        self._spans_left -= 1
        span = self._tracer.start_span(
            "mini-batch",
            context=self._within,
            start_time=int(outcome.started * NS),
            attributes={
                **self._of_job,
                "daskprs.mini_batch": mini_batch.index,
                "daskprs.label": mini_batch.label,
                "daskprs.attempt": outcome.attempt,
                "daskprs.status": outcome.status.value,
                "daskprs.items": outcome.total,
                "daskprs.items.succeeded": outcome.succeeded,
                "daskprs.run_s": outcome.run_s,
                "daskprs.cpu_s": outcome.cpu_s,
                "daskprs.peak_bytes": outcome.peak_bytes,
                "daskprs.node": place.node,
                "daskprs.process": place.process,
                "host.name": place.host,
                "process.pid": place.pid,
            },
        )
        if outcome.failure is not None:
            failed = outcome.failure
            error = {
                "type": failed.kind,
                "message": failed.message,
                "stacktrace": failed.traceback,
            }
            span.add_event("exception", {f"exception.{name}": one for name, one in error.items()})
            span.set_status(Status(StatusCode.ERROR, str(failed)))
        span.end(int((outcome.started + outcome.elapsed_s) * NS))

    # ---- metrics ----

    def _show(self, **values: int) -> None:
        for name, value in values.items():
            self._gauges[name].set(value, self._of_job)

    def _show_usage(self, standing: Progress) -> None:
        for kind, amounts in (("spent", standing.spent), ("useful", standing.useful)):
            for name, amount in amounts:
                self._usage.set(amount, {**self._of_job, "kind": kind, "name": name})

    # ---- providers ----

    def _provider(self, signal: str) -> Any:
        """Return the provider of the caller, or a new one that sends by OTLP."""
        given: Any = (
            trace.get_tracer_provider() if signal == "traces" else metrics.get_meter_provider()
        )
        if hasattr(given, "force_flush"):  # that of an SDK, and not the one that stands for none
            self._others.append(given)
            return given
        service = os.environ.get("OTEL_SERVICE_NAME") or NAME
        resource = Resource.create({"service.name": service})
        exporter = _exporter(signal)
        own: Any
        if signal == "traces":
            own = TracerProvider(resource=resource, shutdown_on_exit=False)
            own.add_span_processor(BatchSpanProcessor(exporter))
        else:
            reader = PeriodicExportingMetricReader(exporter)
            own = MeterProvider([reader], resource, shutdown_on_exit=False)
        self._own.append(own)
        return own


def _exporter(signal: str) -> Any:
    """Return the exporter of a signal, by the protocol that the variables name."""
    name = signal.upper()
    protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{name}_PROTOCOL") or os.environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    package, module, kind = (
        "grpc" if protocol == "grpc" else "http",
        *(("trace_exporter", "Span") if signal == "traces" else ("metric_exporter", "Metric")),
    )
    found: Any = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{package}.{module}")
    return getattr(found, f"OTLP{kind}Exporter")()


def _attributes(name: str, counts: Counts) -> dict[str, int]:
    return {f"daskprs.{name}.{part}": count for part, count in counts._asdict().items()}
