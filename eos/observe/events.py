"""The events of a run, which modules emit on the bus: commits, failures, warnings, outages.

The classes are public: observers of users get their instances (docs/observers.md). Within one
VERSION events are only added, and fields only at the end, with a default. Another VERSION may
remove or rename them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

VERSION = 1
TRACE_CONTEXTS_MAX = 32  # of one micro-batch


@dataclass(frozen=True, slots=True)
class Event:
    """Base class of all events."""


@dataclass(frozen=True, slots=True)
class PipelineStarted(Event):
    """The query of a run started.

    `reader` is the component that reads the source, and `reader_reason` why it is not the Arrow
    reader. `transaction_timeout_s` is the pipeline's `transaction.timeout`. `audit_behind_max` is
    the number of attempts that the audit table may lack; None if the run has no audit table."""

    pipeline: str
    checkpoint: str = ""
    reader: str = ""
    reader_reason: str = ""
    transaction_timeout_s: float | None = None
    audit_behind_max: int | None = None


@dataclass(frozen=True, slots=True)
class MetricsServed(Event):
    """The endpoint is open from which Prometheus can scrape this run's metrics."""

    url: str


@dataclass(frozen=True, slots=True)
class MicroBatchSkipped(Event):
    """A micro-batch was skipped, because the ledger shows that an earlier process committed it."""

    batch_id: int


@dataclass(frozen=True, slots=True)
class AttemptStarted(Event):
    """An attempt at a micro-batch started, under a producer id and epoch of its own.

    `offsets_in` has the number of source offsets to read, by topic."""

    batch_id: int
    attempt: int
    producer_id: int
    epoch: int
    offsets_in: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptFailed(Event):
    """An attempt to run a micro-batch failed. Its transaction does not commit.

    `code` is the error's code (docs/messages.md). If Kafka rejected a request, `api` and
    `kafka_error` have the names of the request and of Kafka's error."""

    batch_id: int
    attempt: int
    reason: str
    will_redo: bool
    is_requested: bool = False  # true: no failure, a signal asked the run to stop
    code: str = ""
    api: str = ""
    kafka_error: str = ""
    producer_id: int = -1
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class TraceContextsRead(Event):
    """Source records of an attempt have trace contexts, and the profile sends traces.

    `traceparents` has the first distinct values of the record header `traceparent`, at most 32."""

    batch_id: int
    traceparents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AttemptRetried(Event):
    """An attempt was aborted and is retried, for example because dedup found a duplicate among
    written records. It is no failure."""

    batch_id: int
    attempt: int
    reason: str
    producer_id: int = -1
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class StepsLeftToSpark(Event):
    """Python tasks could not run the steps on some records. So Spark runs them, in this attempt
    and the next `attempts`."""

    batch_id: int
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class RequestRejected(Event):
    """Kafka rejected a request of the driver without ending the attempt: the request is repeated,
    for example. `api` and `kafka_error` have the names of the request and of Kafka's error."""

    api: str
    kafka_error: str


@dataclass(frozen=True, slots=True)
class MicroBatchCommitted(Event):
    """A micro-batch was committed in one transaction.

    `offsets_in` also counts transaction markers and aborted records. `records_in` counts the
    visible records; None if they were not counted. `run_ms` is the time to read, transform, encode
    and write. The other times are those of ledger record, group offsets and EndTxn.
    `offsets_in_by_topic` splits `offsets_in` by source topic, `records_out_by_topic` and
    `bytes_out_by_topic` the output by target topic. `ledger_end` is the ledger's end offset after
    the commit. `records_in_by_topic` and `bytes_in_by_topic` have what tasks read: visible records,
    and bytes of their record batches. Both are empty with Spark's reader, or if a run has neither
    observers nor metrics, and the records also if tasks read them twice."""

    batch_id: int
    attempt: int
    offsets_in: int
    records_in: int | None
    records_out: int
    bytes_out: int
    run_ms: float
    ledger_ms: float
    offsets_ms: float
    end_ms: float
    producer_id: int = -1
    epoch: int = -1
    ledger_end: int = -1
    offsets_in_by_topic: Mapping[str, int] = field(default_factory=dict)
    records_out_by_topic: Mapping[str, int] = field(default_factory=dict)
    bytes_out_by_topic: Mapping[str, int] = field(default_factory=dict)
    records_in_by_topic: Mapping[str, int] = field(default_factory=dict)
    bytes_in_by_topic: Mapping[str, int] = field(default_factory=dict)

    @property
    def total_ms(self) -> float:
        return self.run_ms + self.ledger_ms + self.offsets_ms + self.end_ms


@dataclass(frozen=True, slots=True)
class RecordsRefused(Event):
    """A committed micro-batch rejected `records` source records by one rule.

    `rule` is a rule of the pipeline file, or `malformed`. `answer` is `drop` or `dead_letter`.
    Topic, partition and offset are those of the first rejected record.
    """

    batch_id: int
    rule: str
    answer: str
    records: int
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class RecordsDeduplicated(Event):
    """Dedup dropped records of a committed micro-batch, or accepted some that were not next in
    sequence or had no valid number.

    `dropped` and `accepted` have the number of records by verdict, such as `duplicate` or `gap`."""

    batch_id: int
    dropped: Mapping[str, int]
    accepted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TableFollowed(Event):
    """A Delta table now has the rows of the attempt whose ledger record is at offset `ledger`.

    `became` is `written`, `caught_up` (written by a later run) or `skipped` (the table had the rows
    already). `was` is the offset of the ledger record whose rows it had before."""

    table: str
    became: str
    ledger: int
    was: int
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class AuditFollowed(Event):
    """The audit table was updated, or a try to update it failed. It lacks `lag` attempts."""

    lag: int


@dataclass(frozen=True, slots=True)
class SourceLag(Event):
    """The lag of the source, every few seconds. By topic:

    `committed` and `ends` are sums over the topic's partitions: the committed position, and the
    end of the source as Spark saw it last. `seconds` is the time since the run first saw offsets
    that are not committed yet. A backlog from before the run counts from the run's start."""

    committed: Mapping[str, int]
    ends: Mapping[str, int]
    seconds: Mapping[str, float]

    @property
    def offsets(self) -> Mapping[str, int]:
        return {topic: end - self.committed.get(topic, 0) for topic, end in self.ends.items()}


@dataclass(frozen=True, slots=True)
class BrokersSilent(Event):
    """No broker has responded for `silent_s` seconds, since the Unix time `since`."""

    since: float
    silent_s: float
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class BrokersAnswer(Event):
    """A broker responds again, after `silent_s` seconds without a response."""

    silent_s: float


@dataclass(frozen=True, slots=True)
class Stopping(Event):
    """A signal asked the run to stop. The open micro-batch has `finish_s` seconds to commit."""

    finish_s: float


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    """The run ended.

    `refused` has its rejected source records: (rule, `drop` or `dead_letter`, number)."""

    pipeline: str
    reason: str
    refused: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RunFailed(Event):
    """An error ended the run. `kind` is the error's class, such as fenced or promise_broken.
    docs/messages.md lists the codes, and the README the exit codes."""

    pipeline: str
    code: str
    kind: str
    message: str
    hint: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """A warning was logged. It does not stop the run."""

    message: str
