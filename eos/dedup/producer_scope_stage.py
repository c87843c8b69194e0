"""Dedup of producers whose numbers are spread over partitions: what runs inside a Spark task.

Their records of a micro-batch are judged out of their stamps alone, which come together by
producer: before the micro-batch is read to be written, by a job of its own (`gather`), or behind
that, by the tasks that wrote (`trusting`). Here each shard of the producers is decided, all its
records at once. The verdicts go to files, and whoever reads the source after that looks them up
(`lookup`): so a record has one verdict in an attempt, however often it is read.

Imported by every Python worker, so nothing here loads pyspark.sql, YAML or the configuration.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, binaries, longs, no_rows, values_of
from eos.dedup import stamp_shards
from eos.dedup.buckets import SPREAD_STATES, BucketManifest, bucket_of, distinct, read_states, shard
from eos.dedup.partition_validator import stamped
from eos.dedup.policy import NAMES, UNSTAMPED, Policy
from eos.dedup.producer_scope import ScopeVerdicts, Spread, Stamps, decide
from eos.dedup.producer_scope_states import ProducerNumbers, newest_ms
from eos.dedup.record_errors import refusal
from eos.dedup.record_position import unpacked
from eos.dedup.spool import StateSpool, whole
from eos.dedup.summary import Account
from eos.dedup.verdict_rows import VerdictRows
from eos.errors import EosError
from eos.kafka.api import TopicPartition
from eos.producers.sequences import Flags, Ints
from eos.producers.state import Verdict
from eos.seal import Seal, of_this_process

_FIRST_BUCKETS = 1  # a shard's: there are many of them


@dataclass(frozen=True, slots=True)
class ProducerScopeStage:
    """One attempt. `folder` is the table's, `work` the attempt's own; `known` are the states that
    it begins with. `topic`: the only one that rows are of; empty: they say it."""

    pipeline: str
    folder: str
    work: str
    policy: Policy
    known: Mapping[TopicPartition, BucketManifest]
    now_ms: int
    topic: str = ""
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    @property
    def schema(self) -> pa.Schema:
        """Of the stamps."""
        return stamp_shards.schema(is_of_one_topic=bool(self.topic))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As Spark calls an Arrow function over batches: of packed stamps that come ordered by
        shard, and all of a shard to one task. Nothing comes out."""
        yield from self._judged(stamp_shards.unpacked(batches, self.schema))

    def at_once(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Likewise of stamps as they are read, all of the micro-batch to one task, which holds
        them."""
        yield from self._judged(stamp_shards.sorted_by_shard(batches, self.schema))

    def _judged(self, parts: Iterable[stamp_shards.Part]) -> Iterator[pa.RecordBatch]:
        try:
            self.judge(parts)
        except EosError as error:
            raise self.seal.crossing(error) from error
        yield from ()

    def judge(self, parts: Iterable[stamp_shards.Part]) -> None:
        leaving = StateSpool(self.pipeline, self.folder, self.work)
        # All of a shard are held until the last has come: a producer's are judged together.
        for number, own in itertools.groupby(parts, key=itemgetter(0)):
            rows = pa.Table.from_batches([part for _, part in own])
            home = shard(number)
            kept = self.known.get(home, BucketManifest(_FIRST_BUCKETS))
            judge = _ShardValidator(
                self.pipeline, home, self.policy, kept, Path(self.folder), self.now_ms, self.topic
            )
            judge.judge(rows)
            leaving.leave(judge)


@dataclass(slots=True)
class _ShardValidator:
    """Of one shard in one attempt. `states` are those of the buckets that were read, and behind
    them those that take their places: a row that does not stay was replaced."""

    pipeline: str
    home: TopicPartition
    policy: Policy
    kept: BucketManifest
    folder: Path
    now_ms: int
    topic: str
    states: pa.Table = field(default_factory=lambda: no_rows(SPREAD_STATES))
    read: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    expired: int = 0
    account: Account = field(init=False)
    _bucket: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # of each row
    _stays: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    _places: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.account = Account(range(1, len(NAMES)))

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self._stays))

    def by_bucket(self, buckets: int) -> tuple[pa.Table, Ints]:
        states, bucket = self.states.combine_chunks(), self._bucket
        if buckets != self.kept.buckets:
            bucket = bucket_of(whole(states.column("producer")), buckets)
        # Numbers of 16 bits, which all buckets fit into, numpy sorts several times faster.
        order = np.argsort(bucket.astype(np.uint16), kind="stable")
        order = order[self._stays[order]]
        return states.take(longs(order)), bucket[order]

    def says(self) -> Mapping[str, Any]:
        return {"places": self._places}

    def load(self, buckets: set[int]) -> None:
        """Reads what is not there yet. Who sent nothing for too long is unknown from here on."""
        missing = sorted(buckets - self.read)
        self.read |= buckets
        parts, of = [no_rows(SPREAD_STATES)], [self._bucket[:0]]
        for bucket in missing:
            file = self.kept.files.get(bucket)
            if file is None:
                continue
            found = read_states(str(self.folder / file.path), file, SPREAD_STATES)
            oldest = values_of(found.column("at_ms")).min()
            if self.now_ms - oldest >= self.policy.forget_ms:
                found = self._without_idle(bucket, found)
            parts.append(found)
            of.append(np.full(len(found), bucket))
        self._add(pa.concat_tables(parts), np.concatenate(of))

    def _add(self, states: pa.Table, bucket: Ints) -> None:
        self.states = pa.concat_tables([self.states, states])
        self._bucket = np.concatenate((self._bucket, bucket))
        self._stays = np.concatenate((self._stays, np.ones(len(bucket), np.bool_)))

    def _without_idle(self, bucket: int, states: pa.Table) -> pa.Table:
        """A producer stays with all its epochs, or goes with all of them."""
        is_young = self.now_ms - newest_ms(states) < self.policy.forget_ms
        if is_young.all():
            return states
        gone = states.filter(array_of(~is_young, pa.bool_())).column("producer")
        self.expired += len(pc.unique(gone))
        self.changed.add(bucket)
        return states.filter(array_of(is_young, pa.bool_()))

    def judge(self, table: pa.Table) -> None:
        """All its records, whatever their order."""
        at, producer, epoch, sequence, *topics = (whole(each) for each in table.columns)
        topic, partition, offset = unpacked(at, topics, self.topic)
        is_stamped = stamped(self.policy, producer, epoch, sequence)
        codes = np.full(table.num_rows, UNSTAMPED, np.int8)
        missing = np.zeros(table.num_rows, np.int64)
        place, names = self._placed(topic, partition)
        has = values_of(is_stamped)
        who = producer.filter(is_stamped)
        numbers = [_ints(each)[has] for each in (epoch, sequence, offset)]
        found = self._decided(who, numbers, place[has], names)
        codes[has], missing[has] = found.codes, found.missing
        rows = VerdictRows(codes, topic, partition, offset, producer, epoch, sequence)
        wrong = np.flatnonzero(np.isin(codes, self.policy.codes(self.policy.refused)))
        if len(wrong):
            first = int(wrong[np.lexsort((values_of(offset)[wrong], place[wrong]))[0]])
            says = self._expected(rows, first, missing)
            raise refusal(self.pipeline, rows, first, says, has_window=True)
        self.account.add(rows, lambda at: self._missing(missing, at))

    def _placed(self, topic: pa.Array, partition: pa.Array) -> tuple[Ints, pa.Array]:
        """Of each row the number of its partition, in the order of topic and partition."""
        named, numbers = topic.dictionary_encode(), _ints(partition)
        topics = named.dictionary.to_pylist()
        rank = np.argsort(np.argsort(np.array(topics)))  # of a topic among them
        span = int(numbers.max(initial=0)) + 1
        combined = rank[_ints(named.indices)] * span + numbers
        counts = np.bincount(combined)
        there = np.flatnonzero(counts)
        topics.sort()
        self._places = [[topics[n // span], n % span, int(counts[n])] for n in there.tolist()]
        names = binaries([f"{each[0]}-{each[1]}".encode() for each in self._places])
        place = np.zeros(len(counts), np.int64)
        place[there] = np.arange(len(there))
        return place[combined], names.cast(pa.string())

    def _decided(
        self, producer: pa.Array, numbers: Sequence[Ints], place: Ints, names: pa.Array
    ) -> ScopeVerdicts:
        # An id is looked for once: all else goes by numbers.
        rows, who = ProducerNumbers.of(producer, names)
        buckets = bucket_of(rows.producers, self.kept.buckets)
        self.load(distinct(buckets))
        of_states = rows.who(self.states)
        is_asked = of_states >= 0
        own = self.states.filter(array_of(is_asked, pa.bool_()))
        known, numbered = rows.known(own, of_states[is_asked])
        epoch, sequence, offset = numbers
        stamps = Stamps(who, epoch, sequence, place, offset)
        rules = self.policy.rules
        accepts_gap = rules.writes(Verdict.GAP)
        found = decide(stamps, known, Spread(self.policy.window, accepts_gap, rules.sequences))
        has_moved = np.zeros(len(buckets) + 1, np.bool_)  # the last: of no producer
        has_moved[found.moved] = True
        # Who did not move on stays as it is, also in time.
        self._stays &= ~has_moved[of_states]
        after = numbered.states(found.epochs, np.full(len(buckets), self.now_ms))
        bucket, moves = buckets[found.epochs.producer], has_moved[found.epochs.producer]
        if not moves.all():
            after, bucket = after.filter(array_of(moves, pa.bool_())), bucket[moves]
        self._add(after, bucket)
        self.changed |= distinct(buckets[found.moved])
        return found

    def _expected(self, rows: VerdictRows, at: int, missing: Ints) -> str:
        if NAMES[rows.codes[at]] != Verdict.GAP.value:
            return ""
        number, window = self._missing(missing, at), self.policy.window
        return f", where {number} is still missing, a window of {window:,} or more below"

    def _missing(self, missing: Ints, at: int) -> int:
        return int(missing[at]) % self.policy.rules.sequences


def _ints(values: Any) -> Ints:
    found: Ints = values_of(values).astype(np.int64)
    return found
