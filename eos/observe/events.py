"""The events of a run, which modules emit on the bus: commits, failures, warnings, outages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Base class of all events."""


@dataclass(frozen=True, slots=True)
class PipelineStarted(Event):
    pipeline: str
    checkpoint: str = ""
    reader: str = ""


@dataclass(frozen=True, slots=True)
class MicroBatchSkipped(Event):
    """A micro-batch was skipped, because the ledger shows that an earlier process committed it."""

    batch_id: int


@dataclass(frozen=True, slots=True)
class AttemptFailed(Event):
    """An attempt to run a micro-batch failed. Its transaction does not commit."""

    batch_id: int
    attempt: int
    reason: str
    will_redo: bool
    is_requested: bool = False  # true: no failure, a signal asked the run to stop


@dataclass(frozen=True, slots=True)
class AttemptRetried(Event):
    """An attempt was aborted and is retried, for example because dedup found a duplicate among
    written records. It is no failure."""

    batch_id: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class MicroBatchCommitted(Event):
    """A micro-batch was committed in one transaction.

    `offsets_in` also counts transaction markers and aborted records. `records_in` counts the
    visible records; None if they were not counted. `run_ms` is the time to read, transform, encode
    and write. The other times are those of ledger record, group offsets and EndTxn."""

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
    """Dedup dropped records of a committed micro-batch, or accepted some out of sequence.

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
class Warned(Event):
    message: str
