"""May the driver commit? Only if the writers' receipts equal what the encode tasks planned.

A receipt counts the acknowledged records of one target partition. A manifest counts the records
that one encode task encoded. Both travel to the driver in one Arrow schema. Each target partition
has one writer ("one writer per target partition"). The driver compares both, because the broker
does not:
- The broker checks sequences, but not whether everything planned was sent.
- It acknowledges a repeated sequence range without comparing the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, binaries
from eos.errors import AttemptFailedError
from eos.kafka.target_partitions import Targets

SCHEMA = (
    "planned boolean, target int, records long, offset_first long, offset_last long, "
    "bytes long, digest long, batches binary"
)
_ARROW = pa.schema(
    [
        ("planned", pa.bool_()),
        ("target", pa.int32()),
        ("records", pa.int64()),
        ("offset_first", pa.int64()),
        ("offset_last", pa.int64()),
        ("bytes", pa.int64()),
        ("digest", pa.int64()),
        ("batches", pa.binary()),
    ]
)
BATCHES_MAX = 5  # a leader keeps the last five record batches of a producer
_NUMBER = np.dtype("<i8")
_SOURCE = -1  # the target of a row that counts source records
_RETRIED = "no action is needed: the micro-batch is retried. If it repeats, report it as a bug"


class AppendedBatch(NamedTuple):
    """An acknowledged record batch. All ends are inclusive. `at_ms` is its largest timestamp."""

    sequence_first: int
    sequence_last: int
    offset_first: int
    offset_last: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The acknowledged records of one target partition in one attempt.

    Sequences start at 0, so `records` determines all of them. `digest` chains the digests of the
    partition's record batches in order. `batches` has the last five of them, oldest first. In
    records of older releases it is empty.
    """

    topic: str
    partition: int
    records: int
    offset_first: int
    offset_last: int
    bytes: int
    digest: int
    batches: tuple[AppendedBatch, ...] = ()

    @property
    def sequence_last(self) -> int:
        return (self.records - 1) & 0x7FFFFFFF

    def as_json(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in _SUMS}  # `asdict` takes ten times as long
        found |= {"sequence_first": 0, "sequence_last": self.sequence_last}
        if self.batches:
            found["batches"] = [list(each) for each in self.batches]
        return found


_SUMS = tuple(each.name for each in fields(Receipt) if each.name != "batches")


def rows(
    receipts: Mapping[int, Receipt], planned: Mapping[int, int], records_read: int = 0
) -> pa.RecordBatch:
    """Return the rows that one writer task sends to the driver: its receipts, and the sum of the
    manifests if this task received them.

    `records_read` is the number of source records in these manifests; 0 if Spark counts them.
    """
    if records_read:
        planned = {**planned, _SOURCE: records_read}
    lines: list[tuple[Any, ...]] = [
        (
            *(False, target, r.records, r.offset_first, r.offset_last, r.bytes, r.digest),
            np.array(r.batches, _NUMBER).tobytes(),
        )
        for target, r in receipts.items()
    ]
    lines += [(True, target, count, -1, -1, 0, 0, b"") for target, count in planned.items()]
    columns = list(zip(*lines, strict=True)) if lines else [()] * len(_ARROW)
    arrays = [array_of(c, f.type) for c, f in zip(columns[:-1], _ARROW, strict=False)]
    arrays.append(binaries(columns[-1]))
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def lines(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return the rows of a writer as Spark's `collect` would return them."""
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def check(collected: Iterable[Sequence[Any]], targets: Targets) -> tuple[Receipt, ...]:
    """Return the attempt's receipts if every planned record was acknowledged exactly once.

    Raises AttemptFailedError otherwise, so that the attempt is aborted and retried. Two receipts
    for one target mean two writers. Different counts mean a lost or repeated record batch.
    """
    receipts: dict[int, Receipt] = {}
    planned: dict[int, int] = {}
    for is_plan, target, records, offset_first, offset_last, size, digest, batches in collected:
        if target == _SOURCE:
            continue
        topic, partition = targets.partitions[target]
        if is_plan:
            planned[target] = planned.get(target, 0) + records
        elif target in receipts:
            raise AttemptFailedError(
                "partition_written_twice",
                f"two tasks of one attempt wrote to {topic}-{partition}",
                hint=_RETRIED,
            )
        else:
            receipts[target] = Receipt(
                *(topic, partition, records, offset_first, offset_last, size, digest),
                _batches(batches),
            )
    acknowledged = {target: receipt.records for target, receipt in receipts.items()}
    planned = {target: count for target, count in planned.items() if count}
    if acknowledged != planned:
        target = min(acknowledged.items() ^ planned.items())[0]
        topic, partition = targets.partitions[target]
        n_encoded, n_acknowledged = planned.get(target, 0), acknowledged.get(target, 0)
        raise AttemptFailedError(
            "record_count_mismatch",
            f"{topic}-{partition}: {n_encoded} records were encoded, {n_acknowledged} acknowledged",
            hint=_RETRIED,
        )
    return tuple(receipts[target] for target in sorted(receipts))


def _batches(packed: bytes) -> tuple[AppendedBatch, ...]:
    numbers = np.frombuffer(packed, _NUMBER).reshape(-1, len(AppendedBatch._fields))
    return tuple(AppendedBatch(*each) for each in numbers.tolist())


def records_read(collected: Iterable[Sequence[Any]]) -> int:
    """Return how many source records the tasks read, as they reported it. 0 if they did not count
    them."""
    return sum(row[2] for row in collected if row[1] == _SOURCE)
