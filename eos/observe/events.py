"""Which events does a run emit? Any module may emit them; emitting never waits."""

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
    """Skip of a micro-batch that an earlier process committed, according to the ledger."""

    batch_id: int


@dataclass(frozen=True, slots=True)
class AttemptFailed(Event):
    """Failure of an attempt. None of its records is visible to a read_committed reader."""

    batch_id: int
    attempt: int
    reason: str
    will_redo: bool
    is_requested: bool = False  # it ended because the run was asked to stop; not a failure


@dataclass(frozen=True, slots=True)
class AttemptRetried(Event):
    """Abort and retry of an attempt as part of normal operation; nothing failed."""

    batch_id: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class MicroBatchCommitted(Event):
    """Commit of a micro-batch in one transaction.

    `offsets_in` also counts transaction markers and aborted records. `records_in` counts the
    visible records; None if they were not counted. `run_ms` is the time of read, transform, encode
    and write. The other times are those of the last three steps."""

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
    """Rejected source records of a committed micro-batch, with the position of the first one.

    `rule` is a rule of the pipeline file, or `malformed`. `answer` is drop or dead_letter.
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
    """Records of a committed micro-batch that dedup dropped, or accepted out of sequence.

    Both are numbers of records by verdict."""

    batch_id: int
    dropped: Mapping[str, int]
    accepted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TableFollowed(Event):
    """Progress of a Delta table: it has the rows of the ledger record at offset `ledger`.

    `became` is written, caught_up (by a later run) or skipped (it had the rows already). `was` is
    the offset of the ledger record that the table had before."""

    table: str
    became: str
    ledger: int
    was: int
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokersSilent(Event):
    """Outage: no broker has answered for `silent_s` seconds, since `since` (Unix time)."""

    since: float
    silent_s: float
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class BrokersAnswer(Event):
    """End of an outage: a broker answers again after `silent_s` seconds."""

    silent_s: float


@dataclass(frozen=True, slots=True)
class Stopping(Event):
    """Request to stop the run. The open micro-batch has `finish_s` seconds to commit."""

    finish_s: float


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    """End of a run. `refused` lists its rejected source records: (rule, answer, records)."""

    pipeline: str
    reason: str
    refused: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Warned(Event):
    message: str
