"""What becomes of the records of one source partition: the state machine over an Arrow stream.

Vectorised: rows come in chunks, and `producer_batch` decides a chunk at a time. Only the buckets
that a chunk's producers lie in are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.audit import producer_table as tables
from eos.audit.producer_batch import decide_all
from eos.audit.producer_chain import Ints
from eos.audit.producer_state import VERDICTS
from eos.dedup.account import Account
from eos.dedup.homes import STATES, Kept, bucket_of, read_states
from eos.dedup.policy import UNSTAMPED, Policy
from eos.dedup.refusal import awaited, expected, named, refusal
from eos.dedup.rows import Codes, Rows
from eos.errors import PromiseBrokenError
from eos.transaction.port import TopicPartition

_KEYED = tables.schema(pa.binary(), pa.int32())


@dataclass(slots=True)
class Judge:
    """Of one partition in one attempt. `states` are those of the buckets that were read."""

    pipeline: str
    home: TopicPartition
    policy: Policy
    kept: Kept
    folder: Path
    now_ms: int
    read: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    expired: int = 0
    offset_first: int = -1
    offset_last: int = -1
    account: Account = field(init=False)
    _states: pa.Table = field(default_factory=_KEYED.empty_table)

    def __post_init__(self) -> None:
        self.account = Account(self.policy.codes(self.policy.dead))

    @property
    def states(self) -> pa.Table:
        return self._states.select(STATES.names)

    def says(self) -> Mapping[str, Any]:
        return {"offset_first": self.offset_first, "offset_last": self.offset_last}

    def judge(self, offset: Any, producer: Any, epoch: Any, sequence: Any) -> Codes:
        """A code for each row of a chunk; the rows come in the partition's order."""
        self._require_order(offset)
        is_stamped = stamped(self.policy, producer, epoch, sequence)
        codes = np.full(len(offset), UNSTAMPED, np.int8)
        events = [each.filter(is_stamped) for each in (producer, epoch, sequence)]
        buckets = bucket_of(events[0], self.kept.buckets)
        self.load(set(np.unique(buckets).tolist()))
        before = self._states
        codes[np.asarray(is_stamped)] = self._decided(buckets, *events)
        topic = pa.repeat(pa.scalar(self.home.topic), len(offset))
        partition = pa.repeat(pa.scalar(self.home.partition, pa.int32()), len(offset))
        rows = Rows(codes, topic, partition, offset, producer, epoch, sequence)
        wrong = np.flatnonzero(np.isin(codes, self.policy.codes(self.policy.refused)))
        if len(wrong):
            at = int(wrong[0])
            raise refusal(self.pipeline, rows, at, expected(self.policy, rows, at, before))
        self.account.add(rows, lambda at: awaited(self.policy, rows, at, before))
        return codes

    def load(self, buckets: set[int]) -> None:
        """Reads what is not there yet. Who sent nothing for too long is unknown from here on."""
        missing = sorted(buckets - self.read)
        self.read |= buckets
        parts = [self._states]
        for bucket in missing:
            file = self.kept.files.get(bucket)
            if file is None:
                continue
            found = read_states(str(self.folder / file.path), file)
            zero = pa.array(np.zeros(found.num_rows, np.int32), pa.int32())
            found = found.append_column("partition", zero).select(_KEYED.names)
            oldest = pc.min(found.column("at_ms")).as_py()
            if self.now_ms - oldest >= self.policy.forget_ms:
                fresh = tables.without_idle(found, self.now_ms, self.policy.forget_ms)
                self.expired += found.num_rows - fresh.num_rows
                self.changed.add(bucket)
                found = fresh
            parts.append(found)
        self._states = pa.concat_tables(parts)

    def _decided(self, buckets: Ints, producer: Any, epoch: Any, sequence: Any) -> Codes:
        count = len(producer)
        # An id is looked for once: all else goes by numbers.
        ids = producer.cast(pa.binary()).dictionary_encode()
        columns = {
            "producer": ids.indices,
            "partition": pa.array(np.zeros(count, np.int32), pa.int32()),
            "epoch": epoch,
            "first": sequence,
            "last": sequence,
            "at_ms": pa.array(np.full(count, self.now_ms, np.int64), pa.int64()),
        }
        # Most of a bucket's states are of producers that sent nothing now.
        who = pc.index_in(self._states.column("producer"), value_set=ids.dictionary)
        others = self._states.filter(pc.is_null(who))
        asked = self._states.set_column(0, "producer", who).filter(pc.is_valid(who))
        decided = decide_all(pa.table(columns), asked, self.policy.rules)
        after = decided.states
        named = ids.dictionary.take(after.column("producer").combine_chunks())
        self._states = pa.concat_tables([others, after.set_column(0, "producer", named)])
        moves = [at for at, each in enumerate(VERDICTS) if self.policy.rules.writes(each)]
        self.changed |= set(np.unique(buckets[np.isin(decided.codes, moves)]).tolist())
        return decided.codes

    def _require_order(self, offset: Any) -> None:
        """By Spark's source a partition is one task's, in order. Were it not, what is judged here
        would be no verdict at all."""
        numbers = np.asarray(offset)
        if not len(numbers):
            return
        if numbers[0] <= self.offset_last or (np.diff(numbers) <= 0).any():
            raise PromiseBrokenError(
                f"{self.pipeline}: the records of {named(self.home)} did not come in their "
                f"order (offset {int(numbers[0])} behind {self.offset_last})",
                hint="does something between the source and dedup change the order of rows?",
                case="dedup_order",
            )
        self.offset_first = self.offset_first if self.account.records else int(numbers[0])
        self.offset_last = int(numbers[-1])


def stamped(policy: Policy, producer: Any, epoch: Any, sequence: Any) -> Any:
    """Which records have an id, and numbers that can be meant."""
    limits = policy.rules.limits
    return _all(
        pc.is_valid(producer), _within(epoch, limits["epoch"]), _within(sequence, limits["first"])
    )


def _within(numbers: Any, limit: int) -> Any:
    is_valid = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, limit))
    return pc.fill_null(is_valid, False)


def _all(*flags: Any) -> Any:
    found = flags[0]
    for each in flags[1:]:
        found = pc.and_(found, each)
    return found
