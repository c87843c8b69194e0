"""The ledger: the pipeline's own topic, one record for each attempt, inside its transaction.

It is the truth about what is committed (rule R4). Group offsets can't be: a plain OffsetCommit
between ours and the end of the transaction wins, and they expire. Spark's checkpoint can't be
either: its commit log is written after EndTxn, so a crash in between leaves it one behind.

Each record is complete by itself. Only the last committed one is ever read to decide something.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from eos.deadline import Backoff, Deadline
from eos.encode.codec import Codec
from eos.encode.record_batch import Columns, encode, stamp
from eos.errors import PromiseBrokenError
from eos.transaction.port import Identity, TopicPartition
from eos.transaction.receipt import Receipt
from eos.transaction.wire import Wire

FORMAT = 1
# How far `read_last` looks back, in offsets: at first, and at most at a time. Each record may hold
# many receipts, so a window's records must fit into memory.
_LOOK_BACK_FIRST, _LOOK_BACK_MAX = 256, 4096
_LAST_MOMENTS_MS = 200
_MESSAGE_BYTES_MAX = 8 * 1024 * 1024
CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(_MESSAGE_BYTES_MAX),
}

Ends = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Position:
    """How far the pipeline has come: the source's ends, and Spark's name for the last step.

    `batch_id` is -1 as long as no micro-batch of `query_id` has committed.
    """

    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    query_id: str = ""
    batch_id: int = -1


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt did: recorded inside the transaction that it describes."""

    number: int
    identity: Identity
    starts: Mapping[TopicPartition, int]
    receipts: Sequence[Receipt]


class Ledger:
    """Reads and builds the ledger's records. The coordinator sends them."""

    def __init__(self, wire: Wire, topic: str, pipeline: str, owner: Mapping[str, Any]) -> None:
        self._wire = wire
        self.partition = TopicPartition(topic, 0)
        self._pipeline = pipeline
        self._owner = dict(owner)

    def ensure_topic(self, replication: int, deadline: Deadline) -> None:
        """Creates the topic, or refuses one that could forget."""
        topic = self.partition.topic
        self._wire.create_topic(topic, 1, replication, CONFIG, deadline)
        for name in ("cleanup.policy", "retention.ms", "retention.bytes"):
            value = self._wire.topic_config(topic, name, deadline)
            if value != CONFIG[name]:
                raise PromiseBrokenError(
                    f"the ledger topic {topic!r} has {name}={value}, so it would forget what "
                    "is committed",
                    hint=f"set {name}={CONFIG[name]} on the topic",
                )

    def read_last(self, deadline: Deadline) -> Position | None:
        """The last committed record, once nothing is open on the topic.

        To be called after our own fence: from then on no older copy of this pipeline can commit,
        and what it left open is aborted. The two ends differ only while that abort's marker is on
        its way, or if a transaction of someone else is open here.
        """
        first, end = self._settled_range(deadline)
        look_back = _LOOK_BACK_FIRST
        while end > first:  # past aborted attempts and markers: bounded by the topic's size
            start = max(first, end - look_back)
            records = self._wire.read_records(
                self.partition, start, end, committed=True, deadline=deadline
            )
            if records:
                return self._decode(records[-1].value)
            end, look_back = start, min(_LOOK_BACK_MAX, look_back * 4)
        return None

    def _settled_range(self, deadline: Deadline) -> tuple[int, int]:
        backoff = Backoff()
        while True:
            committed = self._offset("latest", committed=True, deadline=deadline)
            written = self._offset("latest", committed=False, deadline=deadline)
            if committed == written:
                return self._offset("earliest", committed=False, deadline=deadline), written
            backoff.sleep(deadline)
            # Not in its last moments: a question that has no time to be answered would put "no
            # answer" in the place of what is known.
            if deadline.left_ms <= _LAST_MOMENTS_MS:
                raise PromiseBrokenError(
                    f"a transaction is open on the ledger {self.partition.topic!r} from offset "
                    f"{committed} on, after this pipeline fenced its own",
                    hint="somebody else writes to this topic: find the producer with "
                    "kafka-transactions.sh find-hanging",
                )

    def _offset(
        self, at: Literal["earliest", "latest"], *, committed: bool, deadline: Deadline
    ) -> int:
        found = self._wire.list_offsets(
            [self.partition], at, committed=committed, deadline=deadline
        )
        return found[self.partition]

    def start_record(self, position: Position) -> bytes:
        """Where a pipeline without history begins, as numbers."""
        return self._encode("start", position, None)

    def attempt_record(self, position: Position, attempt: Attempt) -> bytes:
        return self._encode("attempt", position, attempt)

    def _encode(self, kind: str, position: Position, attempt: Attempt | None) -> bytes:
        now_ms = int(time.time() * 1000)
        body: dict[str, Any] = {
            "format": FORMAT,
            "kind": kind,
            "pipeline": self._pipeline,
            "at_ms": now_ms,
            "owner": self._owner,
            "query_id": position.query_id,
            "batch_id": position.batch_id,
            "topic_ids": dict(position.topic_ids),
            "ends": _nested(position.ends),
        }
        if attempt is not None:
            body["attempt"] = {
                "number": attempt.number,
                "producer_id": attempt.identity.producer_id,
                "epoch": attempt.identity.epoch,
                "starts": _nested(attempt.starts),
                "receipts": [receipt.as_json() for receipt in attempt.receipts],
            }
        value = json.dumps(body, separators=(",", ":")).encode()
        columns = Columns(
            key=pa.array([self._pipeline.encode()], pa.binary()),
            value=pa.array([value], pa.binary()),
        )
        return encode(columns, Codec.NONE, now_ms).blob

    def _decode(self, value: bytes | None) -> Position:
        try:
            body = json.loads(value or b"")
            if (body["format"], body["pipeline"]) != (FORMAT, self._pipeline):
                raise ValueError(f"format {body['format']}, pipeline {body['pipeline']!r}")
            return Position(
                ends={
                    TopicPartition(name, int(partition)): int(end)
                    for name, partitions in body["ends"].items()
                    for partition, end in partitions.items()
                },
                topic_ids=dict(body["topic_ids"]),
                query_id=str(body["query_id"]),
                batch_id=int(body["batch_id"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PromiseBrokenError(
                f"the last record of the ledger {self.partition.topic!r} is not one that this "
                f"release wrote for {self._pipeline!r} ({type(error).__name__}: {error})",
                hint="does something else write to this topic, or a newer release?",
            ) from error


def stamped(blob: bytes, identity: Identity) -> bytes:
    """The ledger gets one record an attempt, so its sequence is always 0."""
    return stamp(blob, identity, 0)


def require_same_topics(position: Position, topic_ids: Mapping[str, str]) -> None:
    """Stops if a source topic was deleted and created again: its offsets mean other records now."""
    for name, now in sorted(topic_ids.items()):
        known = position.topic_ids.get(name, now)
        if known != now:
            raise PromiseBrokenError(
                f"the source topic {name!r} was deleted and created again: its id is {now}, the "
                f"ledger knows {known}",
                hint="start the pipeline under a new name to read the new topic from its beginning",
                topic=name,
            )


def advanced(
    position: Position,
    ends: Ends,
    query_id: str,
    batch_id: int,
    topic_ids: Mapping[str, str],
) -> Position:
    """The position after a micro-batch. Partitions that it did not touch keep their ends."""
    return replace(
        position,
        ends={**position.ends, **ends},
        topic_ids={**position.topic_ids, **topic_ids},
        query_id=query_id,
        batch_id=batch_id,
    )


def _nested(offsets: Ends) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested
