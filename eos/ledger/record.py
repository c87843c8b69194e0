"""The content of a ledger record. Each record is complete, so the last one alone decides.

start     the begin of a run: where it resumes, or `start:` resolved to offsets for a new pipeline
attempt   a micro-batch: the offsets that it read, and the receipts of what it wrote
refresh   nothing new: written by an idle pipeline, so that group offsets and ids don't expire
stop      a clean end: after it another deployment may acquire the pipeline without --take-over
recovery  an operator moved the position: who, when and why
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from eos.finding import Witness
from eos.kafka.api import NO_IDENTITY, Identity, TopicPartition
from eos.kafka.compression_type import Codec
from eos.kafka.records.record_batch import Columns, encode, stamp
from eos.ledger.receipt import Receipt

FORMAT = 1
# The ids of the last runs of a batch job, which the ledger keeps.
RUNS_MAX = 1_000
RUN_ID_MAX = 100  # characters
BATCH_QUERY = "batch"  # stands for Spark's query id in the records of a batch job
# Fields of a position that a record contains only if they are set.
_OPTIONAL = (
    "is_reset",
    "checkpoint",
    "producers",
    "accepts_gap",
    "keeps_state",
    "validate_first",
    "runs",
)

Ends = Mapping[TopicPartition, int]
Refused = Mapping[str, Mapping[str, int]]  # rejected records, by rule and outcome


class RowCounts(NamedTuple):
    """How many rows one commit to a Delta table inserted, updated and deleted, as Delta reported
    them in the table's log."""

    inserted: int
    updated: int = 0
    deleted: int = 0


class TableState(NamedTuple):
    """The state of a Delta table, as a ledger record contains it.

    - `id`: the table's own id.
    - `at`: an offset of the ledger. The table has all rows up to that record. The table's log has
      the same offset, as the version of the pipeline's last write.
    - `version`: a Delta version of the table, which contained all of those rows. The table's
      history was checked up to it. None in records of older releases.
    - `rows`: the row counts of the write `at`. None in records of older releases, and if Delta
      reported none.
    - `sha256`: the digest of the file in the table's log that has the write `at`. So it covers the
      names, sizes and statistics of the data files. None in records of older releases.
    """

    id: str
    at: int
    version: int | None = None
    rows: RowCounts | None = None
    sha256: str | None = None

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"id": self.id, "at": self.at}
        if self.version is not None:
            found["version"] = self.version
        if self.rows is not None:
            found["rows"] = list(self.rows)
        if self.sha256 is not None:
            found["sha256"] = self.sha256
        return found


Kind = Literal["start", "attempt", "refresh", "stop", "recovery"]


@dataclass(frozen=True, slots=True)
class Position:
    """The pipeline's position: the end offset of each source partition, and what belongs to these
    ends.

    - `batch_id`: -1 if no micro-batch of `query_id` has committed.
    - `is_reset`: an operator moved the ends, or another deployment did, or the transaction read
      only a part of what Spark had planned (`--until`, `max_bytes`). So no existing checkpoint may
      be used.
    - `checkpoint`: the name of Spark's checkpoint folder. A clean stop keeps it only if the query
      certainly writes no more.
    - `producers`: the version of dedup's states for these ends; empty if dedup knows no producer.
    - `accepts_gap`: an operator lets the next micro-batch continue after records that never
      arrived.
    - `validate_first`: in how many of the next micro-batches dedup validates records before
      writing.
    - `keeps_state`: the checkpoint has Spark's state for these ends, which can't be recreated.
    - `runs`: the ids of the last runs of a batch job, at most 1,000.
    - `tables`: the Delta sinks by name, as of before this record. An attempt's own rows are written
      after its transaction, so the next record contains their versions.
    """

    ends: Ends
    topic_ids: Mapping[str, str]
    query_id: str = ""
    batch_id: int = -1
    is_reset: bool = False
    checkpoint: str = ""
    producers: str = ""
    accepts_gap: bool = False
    keeps_state: bool = False
    validate_first: int = 0
    runs: tuple[str, ...] = ()
    tables: Mapping[str, TableState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """The part of a ledger record that describes one attempt, in whose transaction it is
    written."""

    number: int
    identity: Identity
    starts: Ends
    receipts: Sequence[Receipt]
    begun_ms: int = 0
    refused: Refused = field(default_factory=dict)
    dedup: Mapping[str, Any] = field(default_factory=dict)
    reads: Mapping[str, int] = field(default_factory=dict)  # versions of lookup tables, by name
    records_read: int | None = None  # source records read, without aborted ones; None: not counted
    # For the audit table: how long the oldest records after its ends have waited (None: unknown),
    # and how long the commit of the run's previous micro-batch took, by step.
    lag_ms: int | None = None
    previous_ms: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        entries: dict[str, Any] = {
            "number": self.number,
            "producer_id": self.identity.producer_id,
            "epoch": self.identity.epoch,
            "starts": nested(self.starts),
            "begun_ms": self.begun_ms,
            "receipts": [receipt.as_json() for receipt in self.receipts],
        }
        if self.records_read is not None:
            entries["records_read"] = self.records_read
        if self.lag_ms is not None:
            entries["lag_ms"] = self.lag_ms
        if self.previous_ms:
            entries["previous_ms"] = dict(self.previous_ms)
        if self.refused:
            entries["refused"] = self.refused
        if self.dedup:
            entries["dedup"] = dict(self.dedup)
        if self.reads:
            entries["reads"] = dict(self.reads)
        return entries


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """A record as read from the ledger.

    - `identity`: the producer id and epoch of its transaction. No other record has the same.
    - `attempt`: only in records of the kind `attempt`. `note`: facts about an operator's decision.
    - `failed`: attempts that aborted before this record; only the audit table reads them.
    - `foreign_until`: an operator decided that records of other producers below this offset are
      skipped.
    - `declared`: the settings of the pipeline file, for `eos plan --against-running`. Only some
      records have them, and none of an older release.
    """

    kind: Kind
    position: Position
    owner: Mapping[str, Any]
    at_ms: int
    offset: int
    identity: Identity
    attempt: Mapping[str, Any] | None = None
    note: Mapping[str, Any] | None = None
    failed: Sequence[Mapping[str, Any]] = ()
    foreign_until: int = 0
    declared: Mapping[str, str] | None = None

    @property
    def witness(self) -> Witness:
        number = None if self.attempt is None else self.attempt["number"]
        return Witness(self.offset, self.kind, self.position.batch_id, number, self.identity)


def encoded(
    pipeline: str,
    owner: Mapping[str, Any],
    kind: Kind,
    position: Position,
    attempt: AttemptRecord | None = None,
    note: Mapping[str, Any] | None = None,
    failed: Sequence[Mapping[str, Any]] = (),
    identity: Identity = NO_IDENTITY,
    declared: Mapping[str, str] | None = None,
) -> bytes:
    """Return a record batch with one ledger record, for `stamped`.

    The record contains `identity`, the producer id and epoch of its transaction, so that a copy in
    another transaction is rejected.
    """
    now_ms = int(time.time() * 1000)
    body: dict[str, Any] = {
        "format": FORMAT,
        "kind": kind,
        "pipeline": pipeline,
        "at_ms": now_ms,
        "owner": dict(owner),
        "query_id": position.query_id,
        "batch_id": position.batch_id,
        "topic_ids": dict(position.topic_ids),
        "ends": nested(position.ends),
    }
    if identity != NO_IDENTITY:
        body["producer_id"], body["epoch"] = identity
    body |= {name: value for name in _OPTIONAL if (value := getattr(position, name))}
    if position.tables:
        body["tables"] = {name: each.as_json() for name, each in position.tables.items()}
    if attempt is not None:
        body["attempt"] = attempt.as_json()
    if note is not None:
        body["note"] = dict(note)
    if declared:
        body["declared"] = dict(declared)
    if failed:
        body["failed"] = [dict(each) for each in failed]
    columns = Columns(
        key=pa.array([pipeline.encode()], pa.binary()),
        value=pa.array([json.dumps(body, separators=(",", ":")).encode()], pa.binary()),
    )
    return encode(columns, Codec.NONE, now_ms).blob


def stamped(blob: bytes, identity: Identity) -> bytes:
    """Return the record batch with the producer id and epoch of `identity`. Its sequence is 0,
    because a transaction writes one ledger record."""
    return stamp(blob, identity, 0)


def advanced(
    position: Position,
    ends: Ends,
    query_id: str,
    batch_id: int,
    topic_ids: Mapping[str, str],
    producers: str = "",
    run_id: str = "",
) -> Position:
    """Return the position after a micro-batch. Partitions that it did not read keep their ends.

    `run_id` is that of a batch job's run.

    If no `producers` is given, the position names no dedup states, because the earlier ones would
    be older than its ends.
    """
    return replace(
        position,
        ends={**position.ends, **ends},
        topic_ids={**position.topic_ids, **topic_ids},
        query_id=query_id,
        batch_id=batch_id,
        is_reset=False,
        producers=producers,
        accepts_gap=False,
        runs=(*position.runs, run_id)[-RUNS_MAX:] if run_id else position.runs,
    )


def nested(offsets: Ends) -> dict[str, dict[str, int]]:
    """Return `{topic: {"0": offset}}`, the form of JSON records and of Spark's options."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(name, int(partition)): int(offset)
        for name, partitions in offsets.items()
        for partition, offset in partitions.items()
    }
