"""Dedup without Spark: rows as an Arrow function over an iterator gets them.

model              what upstreams send to dedup; program: an upstream
on_spark           micro-batches with dedup on a session
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from eos.dedup.buckets import SHARDS
from eos.dedup.policy import NAMES, OPTIONS, Policy
from eos.dedup.producer_scope_stage import ProducerScopeStage
from eos.dedup.scalar_verdicts import StampedRecord
from eos.dedup.stamp_shards import STAMPS, Gather, unpacked
from eos.dedup.state_attempt import StateAttempt
from eos.dedup.state_table import ProducersTable
from eos.dedup.state_versions import StateVersions
from eos.faults import Dies
from eos.folder import Folder, as_folder
from eos.kafka.api import TopicPartition
from eos.kafka.record_reader import StoredRecord
from eos.ledger.record import Position
from eos.producers.state import UNWRAPPED, Rules, Verdict


class Sent(NamedTuple):
    """A record of the source. None is a part of the stamp that can't be read."""

    partition: int
    producer: bytes | None
    epoch: int | None
    sequence: int | None


class Row(NamedTuple):
    offset: int
    sent: Sent


def stamped(rows: Iterable[Row]) -> list[StampedRecord]:
    """Return the rows as the scalar specification takes them."""
    return [StampedRecord(sent.partition, offset, *sent[1:]) for offset, sent in rows]


def policy(
    refused: Iterable[str] = (),
    sequences: int = UNWRAPPED,
    forget_ms: int = 10**9,
    dead: Iterable[str] = (),
    window: int = 0,
) -> Policy:
    """Return a policy that accepts verdicts that are neither refused nor dead letters."""
    names = {"gap": Verdict.GAP, "unknown_producer": Verdict.UNKNOWN_PRODUCER}
    left_out = {*refused, *dead}
    accepts = frozenset(verdict for name, verdict in names.items() if name not in left_out)
    assert left_out <= OPTIONS.keys()
    rules = Rules(accepts=accepts, sequences=sequences, epochs=2**62, is_ordered=not window)
    return Policy(rules, forget_ms, frozenset(refused), frozenset(dead), window)


def versions_in(
    folder: Folder | Path, wanted: Policy | None = None, *reading: str
) -> StateVersions:
    table = ProducersTable(as_folder(folder).child("producers"), "p")
    return StateVersions("p", table, wanted or policy(), reading or ("id", "epoch", "sequence"))


def verdicts_of(
    opened: StateAttempt, rows: Sequence[Row], batch: int = 3
) -> dict[tuple[int, int], str]:
    """Return the verdict of each (partition, offset).

    Each partition is read by its own task, as in Spark. With `scope: producer` the stamps are
    validated by shard before that."""
    found: dict[tuple[int, int], str] = {}
    stage = opened.stage
    if isinstance(stage, ProducerScopeStage):
        stage.validate(unpacked(by_shard(rows, stage, batch), stage.schema))
        stage = opened.lookup()
    for partition in sorted({row.sent.partition for row in rows}):
        own = [row for row in rows if row.sent.partition == partition]
        parts = [own[at : at + batch] for at in range(0, len(own), batch)]
        wanted = [columns(part)[: 6 if stage is opened.stage else 3] for part in parts]
        codes = [code for each in stage.codes(iter(wanted)) for code in each]
        for row, code in zip(own, codes, strict=True):
            found[partition, row.offset] = NAMES[code.as_py()]
    return found


def by_shard(
    rows: Sequence[Row], stage: ProducerScopeStage, batch: int
) -> Iterator[pa.RecordBatch]:
    """Return packed rows as the job of `dedup_columns.validating` shuffles them: each partition is
    gathered by its own task, and a shard's packed rows are brought together."""
    gathered = Gather(stage.schema)
    packed: list[pa.RecordBatch] = []
    for partition in sorted({row.sent.partition for row in rows}):
        own = [row for row in rows if row.sent.partition == partition]
        parts = (own[at : at + batch] for at in range(0, len(own), batch))
        packed += gathered(map(stamps, parts))
    for number in range(SHARDS):
        for each in packed:
            found = [at for at, shard in enumerate(each.column(0).to_pylist()) if shard == number]
            yield each.take(pa.array(found, pa.int64()))


def stamps(rows: Sequence[Row], topics: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return stamps as the JVM sends them if the source has several topics."""
    topic, partition, offset, *stamp = columns(rows)
    at = pc.bit_wise_or(pc.shift_left(offset, 16), partition.cast(pa.int64()))
    topic = topic if topics is None else pa.array(topics, pa.string())
    return pa.RecordBatch.from_arrays([at, *stamp, topic], schema=STAMPS)


def columns(rows: Sequence[Row]):
    sent = [row.sent for row in rows]
    return (
        pa.array(["t"] * len(rows), pa.string()),
        pa.array([each.partition for each in sent], pa.int32()),
        pa.array([row.offset for row in rows], pa.int64()),
        pa.array([each.producer for each in sent], pa.binary()),
        pa.array([each.epoch for each in sent], pa.int64()),
        pa.array([each.sequence for each in sent], pa.int64()),
    )


class CopyDedup:
    """Dedup of a pipeline without Spark. A record's stamp is its value, `producer:epoch:sequence`.

    Each verdict but `appended`, `duplicate` and `fenced` ends the run."""

    def __init__(self, folder: Folder, crash: Dies, window: int = 0) -> None:
        self._versions = versions_in(folder, policy(OPTIONS, window=window))
        self._crash = crash
        self.opened: StateAttempt | None = None

    def require(self, position: Position) -> None:
        self._versions.require(position.producers)

    def begin(self, position: Position) -> None:
        self.opened = self._versions.begin(position.producers, accepts_gap=position.accepts_gap)

    def kept(self, read: Iterable[tuple[TopicPartition, Sequence[StoredRecord]]]) -> Iterator[Any]:
        """Yield the accepted records of each partition."""
        found = list(read)
        rows = [
            Row(each.offset, stamp_of(tp.partition, each.value or b""))
            for tp, records in found
            for each in records
        ]
        verdicts = verdicts_of(self.opened, rows, batch=7)
        dropped = {"duplicate", "fenced"}
        for tp, records in found:
            yield tp, [r for r in records if verdicts[tp.partition, r.offset] not in dropped]

    def producers(self) -> tuple[str, Mapping[str, Any]]:
        return self.opened.commit(self._crash.reached)


def stamp_of(partition: int, value: bytes) -> Sent:
    producer, epoch, sequence = value.split(b":")
    return Sent(partition, producer, int(epoch), int(sequence))
