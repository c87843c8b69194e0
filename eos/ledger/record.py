"""What a record of the ledger says. Each is complete by itself: the last one alone decides.

start     where a pipeline without history begins, `start:` resolved to numbers
attempt   a micro-batch: its ranges, and the receipts of what it wrote
refresh   nothing new: written while idle, so that group offsets and ids don't expire
stop      a clean end: from here on another deployment may take the pipeline without force
recovery  a person moved the position on purpose: who, when, why
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from eos.kafka.api import NO_IDENTITY, Identity, TopicPartition
from eos.kafka.compression_type import Codec
from eos.kafka.records.record_batch import Columns, encode, stamp
from eos.ledger.receipt import Receipt

FORMAT = 1
# Fields of a position that a record has where they say something.
_OPTIONAL = (
    "is_reset",
    "checkpoint",
    "producers",
    "accepts_gap",
    "keeps_state",
    "validate_first",
)

Ends = Mapping[TopicPartition, int]
Refused = Mapping[str, Mapping[str, int]]  # records, by rule and what became of them


class TableState(NamedTuple):
    """A Delta table as a record of the ledger knows it.

    `id` is the table's own. Up to the ledger's record `at` it has every row; the same offset is in
    the table's log, as the version of the pipeline's last write. `version` is Delta's version of
    the table up to which the table's history was read, and which contained all of those rows. It is
    None in records of a release that did not keep it.
    """

    id: str
    at: int
    version: int | None = None

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"id": self.id, "at": self.at}
        return found if self.version is None else {**found, "version": self.version}


Kind = Literal["start", "attempt", "refresh", "stop", "recovery"]


@dataclass(frozen=True, slots=True)
class Position:
    """How far the pipeline has come: the source's ends, and Spark's name for the last step.

    `batch_id` is -1 as long as no micro-batch of `query_id` has committed. With `is_reset` the ends
    were moved by a person: no checkpoint made before goes with them. `checkpoint` is the name of
    the folder that Spark plans in. A clean end keeps it only if the query certainly writes no more.
    `producers` names the generation of dedup's states that goes with it; none: nothing is known.
    With `accepts_gap` a person lets the next micro-batch go on behind records that never came.
    In the next `validate_first` micro-batches dedup validates records before it writes them.
    With `keeps_state` Spark's state in that checkpoint belongs to it, and can't be made again.
    `tables` are the Delta sinks by name, as they were when the record was begun: an attempt's own
    rows are written to them after its transaction, so that is what the next record says.
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
    tables: Mapping[str, TableState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """What one attempt did: recorded inside the transaction that it describes."""

    number: int
    identity: Identity
    starts: Ends
    receipts: Sequence[Receipt]
    begun_ms: int = 0
    refused: Refused = field(default_factory=dict)
    dedup: Mapping[str, Any] = field(default_factory=dict)
    reads: Mapping[str, int] = field(default_factory=dict)  # tables by name, and their versions
    records_read: int | None = None  # source records that were visible

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "number": self.number,
            "producer_id": self.identity.producer_id,
            "epoch": self.identity.epoch,
            "starts": nested(self.starts),
            "begun_ms": self.begun_ms,
            "receipts": [receipt.as_json() for receipt in self.receipts],
        }
        if self.records_read is not None:
            told["records_read"] = self.records_read
        if self.refused:
            told["refused"] = self.refused
        if self.dedup:
            told["dedup"] = dict(self.dedup)
        if self.reads:
            told["reads"] = dict(self.reads)
        return told


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """As it is read back. `identity` is the transaction's that it was committed in, which no other
    record shares. `attempt` and `note` are there where the kind has them. `failed`: attempts that
    were aborted since the record before; nothing but the audit table reads them. `foreign_until`: a
    recovery decided about other producers' records below that offset, which readers skip."""

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


def encoded(
    pipeline: str,
    owner: Mapping[str, Any],
    kind: Kind,
    position: Position,
    attempt: AttemptRecord | None = None,
    note: Mapping[str, Any] | None = None,
    failed: Sequence[Mapping[str, Any]] = (),
    identity: Identity = NO_IDENTITY,
) -> bytes:
    """A record batch of one record, to be stamped with `identity`, that of its transaction. The
    record names it, too, so that a copy in another transaction is refused."""
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
    if failed:
        body["failed"] = [dict(each) for each in failed]
    columns = Columns(
        key=pa.array([pipeline.encode()], pa.binary()),
        value=pa.array([json.dumps(body, separators=(",", ":")).encode()], pa.binary()),
    )
    return encode(columns, Codec.NONE, now_ms).blob


def stamped(blob: bytes, identity: Identity) -> bytes:
    """The ledger gets one record an attempt, so its sequence is always 0."""
    return stamp(blob, identity, 0)


def advanced(
    position: Position,
    ends: Ends,
    query_id: str,
    batch_id: int,
    topic_ids: Mapping[str, str],
    producers: str = "",
) -> Position:
    """The position after a micro-batch. Partitions that it did not touch keep their ends. States of
    producers that are not named are not taken along: they would lag behind it."""
    return replace(
        position,
        ends={**position.ends, **ends},
        topic_ids={**position.topic_ids, **topic_ids},
        query_id=query_id,
        batch_id=batch_id,
        is_reset=False,
        producers=producers,
        accepts_gap=False,
    )


def nested(offsets: Ends) -> dict[str, dict[str, int]]:
    """`{topic: {"0": offset}}`, as JSON has it, and Spark's options."""
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
