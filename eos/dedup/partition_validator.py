"""Validation of the records of one source partition with `scope: partition`.

The validator compares each record's sequence number with its producer's state, on Arrow columns.
Rows arrive in chunks, and `chunk.decide` decides one chunk at a time. Only the state files of the
chunk's producers are read. `scalar_verdicts` is the specification, with a worked example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, one_array, scalar_of, text_of, values_of
from eos.dedup.buckets import BucketManifest, bucket_of, distinct, read_states
from eos.dedup.chunk import Sent, decide
from eos.dedup.partition_states import READ, PartitionStates
from eos.dedup.policy import UNSTAMPED, Policy
from eos.dedup.producer_index import ProducerIndex
from eos.dedup.record_errors import expected_number, expected_text, partition_name, refusal
from eos.dedup.summary import Account
from eos.dedup.verdict_rows import Codes, VerdictRows
from eos.errors import PromiseBrokenError
from eos.folder import Folder
from eos.kafka.api import TopicPartition
from eos.producers.sequences import Ints


@dataclass(slots=True)
class PartitionValidator:
    """Verdicts and producer states of one source partition in one attempt."""

    pipeline: str
    home: TopicPartition
    policy: Policy
    manifest: BucketManifest
    folder: Folder
    now_ms: int
    read: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    expired: int = 0
    offset_first: int = -1
    offset_last: int = -1
    account: Account = field(init=False)
    _known: PartitionStates = field(init=False)

    def __post_init__(self) -> None:
        self.account = Account(self.policy.codes(self.policy.dead))
        self._known = PartitionStates(self.policy.rules.ranges_max)

    @property
    def count(self) -> int:
        return len(self._known)

    def by_bucket(self, buckets: int) -> tuple[pa.Table, Ints]:
        return self._known.by_bucket(buckets, is_as_read=buckets == self.manifest.buckets)

    def report(self) -> Mapping[str, Any]:
        return {"offset_first": self.offset_first, "offset_last": self.offset_last}

    def validate(self, offset: Any, producer: Any, epoch: Any, sequence: Any) -> Codes:
        """Return a verdict code for each row of a chunk. Rows must be in the partition's order.

        Raise RecordRefusedError for the first record whose verdict ends the run."""
        self._require_order(offset)
        is_stamped = valid_stamps(self.policy, producer, epoch, sequence)
        codes = np.full(len(offset), UNSTAMPED, np.int8)
        stamps = (each.filter(is_stamped) for each in (producer, epoch, sequence))
        codes[values_of(is_stamped)], before = self._decided(*stamps)
        topic = text_of(self.home.topic, len(offset))
        partition = pa.repeat(scalar_of(self.home.partition, pa.int32()), len(offset))
        rows = VerdictRows(codes, topic, partition, offset, producer, epoch, sequence)
        refused = np.flatnonzero(np.isin(codes, self.policy.codes(self.policy.refused)))
        if len(refused):
            at = int(refused[0])
            raise refusal(self.pipeline, rows, at, expected_text(self.policy, rows, at, before))
        self.account.add(rows, lambda at: expected_number(self.policy, rows, at, before))
        return codes

    def load(self, buckets: set[int]) -> None:
        """Read the states of these buckets that are not loaded yet.

        Producers that were idle for `forget_ms` are removed and become unknown."""
        missing = sorted(buckets - self.read)
        self.read |= buckets
        files = {each: self.manifest.files[each] for each in missing if each in self.manifest.files}
        if not files:
            return
        states = pa.concat_tables(read_states(self.folder, file, READ) for file in files.values())
        bucket = np.repeat(list(files), [file.rows for file in files.values()])
        is_idle = self.now_ms - values_of(states.column("at_ms")) >= self.policy.forget_ms
        if is_idle.any():
            self.expired += int(np.count_nonzero(is_idle))
            self.changed |= distinct(bucket[is_idle])
            states, bucket = states.filter(array_of(~is_idle, pa.bool_())), bucket[~is_idle]
        self._known.add(states, bucket)

    def _decided(self, producer: Any, epoch: Any, sequence: Any) -> tuple[Codes, pa.Table]:
        """Return the verdict codes of these records, which all have a valid stamp.

        Also return the states, before the chunk, of the producers that skipped or repeated a
        number."""
        # Look up each distinct id once. All later steps use row numbers.
        chunk = ProducerIndex()
        who = chunk.add(producer)
        buckets = bucket_of(chunk.ids, self.manifest.buckets)
        self.load(distinct(buckets))
        rows = self._known.rows(chunk.ids, buckets)
        numbers = (values_of(each).astype(np.int64) for each in (epoch, sequence))
        sent = Sent(who, *numbers)
        decided = decide(self._known, rows, sent, self.now_ms, self.policy.rules)
        self.changed |= distinct(buckets[decided.has_moved])
        before = decided.before
        names = self._known.producer.take(one_array(before.column("producer")))
        return decided.codes, before.set_column(0, "producer", names)

    def _require_order(self, offset: Any) -> None:
        """Raise PromiseBrokenError if offsets do not increase within and across chunks.

        Spark passes all records of a partition to one task, in offset order. In any other order,
        verdicts would be wrong."""
        numbers = values_of(offset)
        if not len(numbers):
            return
        if numbers[0] <= self.offset_last or (np.diff(numbers) <= 0).any():
            partition, offset_first = partition_name(self.home), int(numbers[0])
            raise PromiseBrokenError(
                "dedup_order",
                f"{self.pipeline}: the records of {partition} arrived out of order "
                f"(offset {offset_first} after {self.offset_last})",
                hint="does a step between the source and dedup change the order of rows? Start "
                "again; if the error repeats, report it as a bug",
            )
        self.offset_first = self.offset_first if self.account.records else int(numbers[0])
        self.offset_last = int(numbers[-1])


def valid_stamps(policy: Policy, producer: Any, epoch: Any, sequence: Any) -> Any:
    """Return a mask of the records with a producer id and with epoch and sequence in range."""
    found = values_of(pc.is_valid(producer))
    limits = policy.rules.limits
    for numbers, limit in ((epoch, limits["epoch"]), (sequence, limits["first"])):
        values = values_of(numbers, null=-1)
        found = found & (values >= 0) & (values < limit)
    return array_of(found, pa.bool_())
