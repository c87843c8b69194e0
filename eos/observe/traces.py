"""OpenTelemetry traces that are made from the events of a run: a trace for each micro-batch.

    micro-batch 41                       from the start of its first attempt to its commit, with
                                         links to the traces of its source records
      attempt 1                          an aborted attempt, with the reason
      run, ledger, offsets, end          the steps of the attempt that committed
      table live                         a Delta table that was written after the commit

Events have durations and no times. So a step's times are computed backwards from the time at which
the commit's event arrived here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import (
    Span,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from eos.observe import events

_MS = 1_000_000  # nanoseconds
_W3C = TraceContextTextMapPropagator()


@dataclass(slots=True)
class _Open:
    """The span of the running micro-batch, and when its running attempt began."""

    batch_id: int
    span: Span
    context: Context
    attempt_ns: int
    linked: set[str] = field(default_factory=set)


class RunTraces:
    """The traces of one run. It is called with each event.

    Spans are exported by a thread of the SDK, with a bounded queue: if the collector is too slow,
    spans are dropped.
    """

    def __init__(
        self,
        pipeline: str,
        resource: Resource,
        exporter: SpanExporter,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._pipeline, self._clock_ns = pipeline, clock_ns
        # Not at the process's exit: that would wait for a collector that is away.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("eos")
        self._open: _Open | None = None
        self._last: Context | None = None  # of the last micro-batch

    def __call__(self, event: events.Event) -> None:
        now = self._clock_ns()
        match event:
            case events.AttemptStarted():
                self._begin_attempt(event, now)
            case events.TraceContextsRead():
                self._link(event)
            case events.AttemptFailed():
                is_error = not event.is_requested
                outcome = event.code or "failed" if is_error else "stopped"
                self._abort(event, now, outcome, is_error=is_error)
                if not event.will_redo:
                    self._end(now, is_error=is_error, reason=event.reason)
            case events.AttemptRetried():
                self._abort(event, now, "retried", is_error=False)
            case events.MicroBatchCommitted():
                self._commit(event, now)
            case events.TableFollowed() if self._last is not None and event.became != "skipped":
                began, became = now - int(event.ms * _MS), {"eos.became": event.became}
                self._child(f"table {event.table}", self._last, began, now, became)
            case events.RunFailed():
                self._end(now, is_error=True, reason=event.message)

    def close(self) -> None:
        """Export the spans that have ended. An open micro-batch is left out: it did not commit."""
        self._provider.shutdown()

    def _begin_attempt(self, event: events.AttemptStarted, now: int) -> None:
        if self._open is not None and self._open.batch_id == event.batch_id:
            self._open.attempt_ns = now
            return
        span = self._tracer.start_span(
            f"micro-batch {event.batch_id}",
            start_time=now,
            attributes={"eos.pipeline": self._pipeline, "eos.batch_id": event.batch_id},
        )
        self._open = _Open(event.batch_id, span, set_span_in_context(span), now)

    def _link(self, event: events.TraceContextsRead) -> None:
        """Link the micro-batch's span to the traces of its records. Another attempt may have read
        the same ones."""
        found = self._open
        if found is None:
            return
        for text in event.traceparents:
            context = get_current_span(_W3C.extract({"traceparent": text}, Context()))
            is_new = text not in found.linked and len(found.linked) < events.TRACE_CONTEXTS_MAX
            if is_new and context.get_span_context().is_valid:
                found.linked.add(text)
                found.span.add_link(context.get_span_context())

    def _abort(
        self,
        event: events.AttemptFailed | events.AttemptRetried,
        now: int,
        outcome: str,
        *,
        is_error: bool,
    ) -> None:
        if self._open is None:
            return
        attributes: dict[str, str | int] = {"eos.outcome": outcome, "eos.epoch": event.epoch}
        span = self._tracer.start_span(
            f"attempt {event.attempt}",
            self._open.context,
            start_time=self._open.attempt_ns,
            attributes=attributes,
        )
        code = StatusCode.ERROR if is_error else StatusCode.UNSET
        span.set_status(Status(code, event.reason if is_error else None))
        span.end(now)

    def _commit(self, event: events.MicroBatchCommitted, now: int) -> None:
        found = self._open
        if found is None:
            return
        found.span.set_attributes(
            {
                "eos.attempt": event.attempt,
                "eos.producer_id": event.producer_id,
                "eos.epoch": event.epoch,
                "eos.ledger_end": event.ledger_end,
                "eos.offsets_in": event.offsets_in,
                "eos.records_out": event.records_out,
                "eos.bytes_out": event.bytes_out,
            }
        )
        if event.records_in is not None:
            found.span.set_attribute("eos.records_in", event.records_in)
        ends = now
        for name, ms in (
            ("end", event.end_ms),
            ("offsets", event.offsets_ms),
            ("ledger", event.ledger_ms),
            ("run", event.run_ms),
        ):
            begins = ends - int(ms * _MS)
            self._child(name, found.context, begins, ends, {})
            ends = begins
        self._end(now)

    def _child(
        self, name: str, parent: Context, begins: int, ends: int, attributes: Mapping[str, str]
    ) -> None:
        self._tracer.start_span(name, parent, start_time=begins, attributes=attributes).end(ends)

    def _end(self, now: int, *, is_error: bool = False, reason: str = "") -> None:
        if self._open is None:
            return
        if is_error:
            self._open.span.set_status(Status(StatusCode.ERROR, reason))
        self._open.span.end(now)
        self._last, self._open = self._open.context, None
