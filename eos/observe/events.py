"""What happens in a run, as values. Everyone may emit them; nobody waits for who listens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """The base of all events."""


@dataclass(frozen=True, slots=True)
class PipelineStarted(Event):
    pipeline: str
    checkpoint: str = ""


@dataclass(frozen=True, slots=True)
class MicroBatchSkipped(Event):
    """The ledger says that an earlier process committed it already."""

    batch_id: int


@dataclass(frozen=True, slots=True)
class AttemptFailed(Event):
    """Nothing of this attempt is visible to a read_committed reader."""

    batch_id: int
    attempt: int
    reason: str
    will_redo: bool
    is_asked: bool = False  # it ended since the run is to stop: no failure


@dataclass(frozen=True, slots=True)
class AttemptRetried(Event):
    """An attempt that is aborted and retried as part of normal work: nothing failed."""

    batch_id: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class MicroBatchCommitted(Event):
    """One transaction. `offsets_in` counts transaction markers and aborted records, too, and
    `records_in` the records that were visible; None: nobody counted them. `run_ms` is read,
    transform, encode and write; then its three last steps."""

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
    """Of a committed micro-batch: source records that were not taken, and the first of them.

    `rule` is that of the pipeline file, or `malformed`; `answer` is drop or dead_letter.
    """

    batch_id: int
    rule: str
    answer: str
    records: int
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class RecordsJudged(Event):
    """Of a committed micro-batch: what dedup dropped, and what it accepted although it was not
    simply next. Records by verdict."""

    batch_id: int
    dropped: Mapping[str, int]
    accepted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TableFollowed(Event):
    """A Delta table has the rows of the ledger's record at offset `ledger`. `became` is written,
    caught_up (by a later start) or skipped (it had them); `was`: the record it had before."""

    table: str
    became: str
    ledger: int
    was: int
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokersSilent(Event):
    """No broker has answered for `silent_s`, since `since` (seconds since 1970)."""

    since: float
    silent_s: float
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class BrokersAnswer(Event):
    """A broker answers again, after so long."""

    silent_s: float


@dataclass(frozen=True, slots=True)
class Stopping(Event):
    """Asked to, while a micro-batch is under way, which has so long to end."""

    finish_s: float


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    """`refused`: (rule, answer, records) of the run's source records that were not taken."""

    pipeline: str
    reason: str
    refused: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Warned(Event):
    message: str
