"""The Prometheus metrics that are made from the events of a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from eos.observe import events
from eos.observe.metric_registry import MetricRegistry

SEVERAL = "several"  # the topic of records that were not counted by topic
NO_RESPONSE = "NO_RESPONSE"  # in the place of Kafka's error, if there was no response
STEP_SECONDS = "eos_micro_batch_step_seconds"
OUTCOMES = ("committed", "failed", "retried", "stopped")


def step_seconds(event: events.Event) -> Mapping[str, float]:
    """Return the duration of the steps that an event reports; empty for most events."""
    match event:
        case events.MicroBatchCommitted():
            found = {
                "run": event.run_ms,
                "ledger": event.ledger_ms,
                "offsets": event.offsets_ms,
                "end": event.end_ms,
            }
        case events.TableFollowed(became="written"):
            found = {"table": event.ms}
        case _:
            found = {}
    return {step: ms / 1000 for step, ms in found.items()}


class RunMetrics:
    """The metrics of one run. It is called with each event."""

    def __init__(
        self, pipeline: str, versions: Mapping[str, str], clock: Callable[[], float] = time.time
    ) -> None:
        self.registry = MetricRegistry(pipeline)
        self._clock = clock
        self._begun: float | None = None  # when the running attempt began
        self._ended: Counter[str] = Counter()  # attempts by outcome
        self._declare_attempts()
        self._declare_records()
        self._declare_source()
        self._declare_run(versions)

    def _declare_attempts(self) -> None:
        add = self.registry
        self._attempts = add.counter(
            "eos_attempts_total", "Attempts at micro-batches, by outcome.", "outcome"
        )
        for outcome in OUTCOMES:
            self._attempts.of(outcome)
        self._redo = add.gauge(
            "eos_redo_ratio", "Share of this run's attempts that were aborted, from 0 to 1."
        )
        self._seconds = add.histogram(
            STEP_SECONDS,
            "Duration of the steps of committed micro-batches: run (read, transform, encode, "
            "write), ledger, offsets, end (EndTxn), and table (one Delta table).",
            "step",
        )
        self._skipped = add.counter(
            "eos_micro_batches_skipped_total", "Micro-batches that the ledger had already."
        )
        self._last_commit = add.gauge(
            "eos_last_commit_timestamp_seconds", "Unix time of this run's last commit."
        )
        self._timeout = add.gauge(
            "eos_transaction_timeout_seconds",
            "Time after which the broker aborts an open transaction.",
        )
        add.gauge(
            "eos_transaction_age_seconds",
            "Time since the running attempt began, which is the age of its transaction at most; 0 "
            "between attempts.",
        ).of().set_function(self._age)
        self._kafka_errors = add.counter(
            "eos_kafka_errors_total",
            "Requests that Kafka rejected, by request and error: those of the driver, and of a "
            "task if the error ended its attempt.",
            "api",
            "error",
        )

    def _declare_records(self) -> None:
        add = self.registry
        self._offsets_in = add.counter(
            "eos_source_offsets_total", "Source offsets that were committed.", "topic"
        )
        self._records_in = add.counter(
            "eos_source_records_total",
            "Visible source records that were committed. The topic is `several` if they were not "
            "counted by topic.",
            "topic",
        )
        self._bytes_in = add.counter(
            "eos_source_bytes_total",
            "Bytes of record batches that committed micro-batches read, as they are in the log.",
            "topic",
        )
        self._records_out = add.counter(
            "eos_target_records_total", "Records in committed transactions.", "topic"
        )
        self._bytes_out = add.counter(
            "eos_target_bytes_total", "Bytes of record batches in committed transactions.", "topic"
        )
        self._rejected = add.counter(
            "eos_rejected_records_total",
            "Rejected source records, by rule and answer: drop or dead_letter.",
            "rule",
            "answer",
        )
        self._last_rejected = add.gauge(
            "eos_last_rejected_record_timestamp_seconds",
            "Unix time of the last commit with records that the rule rejected.",
            "rule",
            "answer",
        )
        self._deduplicated = add.counter(
            "eos_deduplicated_records_total",
            "Records that dedup dropped, or accepted out of sequence, by verdict.",
            "verdict",
            "answer",
        )

    def _declare_source(self) -> None:
        add = self.registry
        self._lag = add.gauge(
            "eos_source_lag_offsets", "Source offsets that are not committed yet.", "topic"
        )
        self._lag_seconds = add.gauge(
            "eos_source_lag_seconds",
            "Time since the run first saw offsets that are not committed yet.",
            "topic",
        )
        self._committed = add.gauge(
            "eos_source_committed_offsets",
            "Committed position, summed over the topic's partitions.",
            "topic",
        )
        self._ends = add.gauge(
            "eos_source_end_offsets",
            "End of the source, summed over the topic's partitions.",
            "topic",
        )

    def _declare_run(self, versions: Mapping[str, str]) -> None:
        add = self.registry
        self._ledger_end = add.gauge("eos_ledger_end_offset", "End offset of the ledger.")
        self._backlog = add.gauge(
            "eos_audit_backlog_attempts", "Attempts that the audit table lacks."
        )
        self._backlog.of().set(0)
        self._backlog_max = add.gauge(
            "eos_audit_backlog_max_attempts", "Audit backlog at which the run stops."
        )
        self._brokers = add.gauge(
            "eos_brokers_silent", "1 while no broker answers the driver, otherwise 0."
        )
        self._brokers.of().set(0)
        self._warnings = add.counter("eos_warnings_total", "Warnings that the run logged.")
        self._warnings.of()
        self._failures = add.counter(
            "eos_run_failures_total", "Errors that ended the run, by kind.", "kind"
        )
        self._failures.of("fenced")
        self._exit_code = add.gauge(
            "eos_run_exit_code", "Exit code of the run. There is no sample while the run lasts."
        )
        self._ended_at = add.gauge(
            "eos_run_end_timestamp_seconds",
            "Unix time of the run's end. There is no sample while the run lasts.",
        )
        build = add.gauge("eos_build_info", "Versions of the run; the value is 1.", *versions)
        build.of(*versions.values()).set(1)

    def __call__(self, event: events.Event) -> None:
        for step, seconds in step_seconds(event).items():
            self._seconds.of(step).observe(seconds)
        self._count(event)

    def _count(self, event: events.Event) -> None:
        match event:
            case events.AttemptStarted():
                self._begun = self._clock()
            case events.MicroBatchCommitted():
                self._count_commit(event)
            case events.AttemptRetried():
                self._end_attempt("retried")
            case events.AttemptFailed():
                self._end_attempt("stopped" if event.is_requested else "failed")
                if event.api:
                    self._count_error(event.api, event.kafka_error)
            case events.MicroBatchSkipped():
                self._skipped.of().inc()
            case events.RequestRejected():
                self._count_error(event.api, event.kafka_error)
            case events.RecordsRefused():
                self._rejected.of(event.rule, event.answer).inc(event.records)
                self._last_rejected.of(event.rule, event.answer).set(self._clock())
            case events.RecordsDeduplicated():
                for verdict, count in event.dropped.items():
                    self._deduplicated.of(verdict, "dropped").inc(count)
                for verdict, count in event.accepted.items():
                    self._deduplicated.of(verdict, "accepted").inc(count)
            case _:
                self._note(event)

    def _note(self, event: events.Event) -> None:
        match event:
            case events.PipelineStarted():
                self._set_limits(event)
            case events.SourceLag():
                self._set_lag(event)
            case events.AuditFollowed():
                self._backlog.of().set(event.lag)
            case events.BrokersSilent():
                self._brokers.of().set(1)
            case events.BrokersAnswer():
                self._brokers.of().set(0)
            case events.Warned():
                self._warnings.of().inc()
            case events.Stopped():
                self._end_run(0)
            case events.RunFailed():
                self._failures.of(event.kind).inc()
                self._end_run(event.exit_code)
            case _:
                pass

    def _set_limits(self, event: events.PipelineStarted) -> None:
        if event.transaction_timeout_s is not None:
            self._timeout.of().set(event.transaction_timeout_s)
        if event.audit_behind_max is not None:
            self._backlog_max.of().set(event.audit_behind_max)

    def _end_run(self, exit_code: int) -> None:
        self._begun = None
        self._exit_code.of().set(exit_code)
        self._ended_at.of().set(self._clock())

    def _count_commit(self, event: events.MicroBatchCommitted) -> None:
        self._end_attempt("committed")
        read = event.offsets_in_by_topic
        for metric, counts in (
            (self._offsets_in, read),
            (self._records_out, event.records_out_by_topic),
            (self._bytes_out, event.bytes_out_by_topic),
            (self._records_in, event.records_in_by_topic),
            (self._bytes_in, event.bytes_in_by_topic),
        ):
            for topic, count in counts.items():
                metric.of(topic).inc(count)
        if event.records_in is not None and not event.records_in_by_topic:
            topic = next(iter(read)) if len(read) == 1 else SEVERAL
            self._records_in.of(topic).inc(event.records_in)
        self._last_commit.of().set(self._clock())
        self._ledger_end.of().set(event.ledger_end)

    def _end_attempt(self, outcome: str) -> None:
        self._begun = None
        self._attempts.of(outcome).inc()
        self._ended[outcome] += 1
        every = sum(self._ended.values())
        self._redo.of().set((every - self._ended["committed"]) / every)

    def _count_error(self, api: str, error: str) -> None:
        self._kafka_errors.of(api, error or NO_RESPONSE).inc()

    def _set_lag(self, event: events.SourceLag) -> None:
        for metric, values in (
            (self._lag, event.offsets),
            (self._committed, event.committed),
            (self._ends, event.ends),
        ):
            totals: Counter[str] = Counter()
            for topic, value in values.items():
                totals[self.registry.bounded("topic", topic)] += value
            for topic, total in totals.items():
                metric.of(topic).set(total)
        longest: dict[str, float] = {}
        for topic, seconds in event.seconds.items():
            name = self.registry.bounded("topic", topic)
            longest[name] = max(seconds, longest.get(name, 0.0))
        for topic, seconds in longest.items():
            self._lag_seconds.of(topic).set(seconds)

    def _age(self) -> float:
        begun = self._begun
        return 0.0 if begun is None else max(0.0, self._clock() - begun)
