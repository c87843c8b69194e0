"""How does a Spark task validate records if a producer's numbers span several partitions?

This is `scope: producer`. Validation needs only the stamps (producer id, epoch, sequence), grouped
by producer. It happens either before the write, in its own Spark job (`stamp_shards`), or after the
write, in the writing tasks (`optimistic_pass`). A hash divides the producers into shards. The stage
decides all records of a shard at once and writes their verdicts to files. A task that reads the
source later looks up the verdicts in these files (`verdict_lookup`). So a record has one verdict in
an attempt, however often Spark reads the record.

Every Python worker imports this module, so it must not load pyspark.sql, YAML or the configuration.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, binaries, ints_of, longs, no_rows, one_array, values_of
from eos.dedup import stamp_shards
from eos.dedup.buckets import SCOPE_STATES, BucketManifest, bucket_of, distinct, read_states, shard
from eos.dedup.continuing_producers import advance_continuing
from eos.dedup.partition_validator import valid_stamps
from eos.dedup.policy import NAMES, UNSTAMPED, Policy
from eos.dedup.producer_scope import ScopeRules, ScopeVerdicts, Stamps, decide
from eos.dedup.producer_scope_states import ProducerNumbers, newest_ms
from eos.dedup.record_errors import refusal
from eos.dedup.record_position import unpacked
from eos.dedup.spool import StateSpool
from eos.dedup.summary import Account
from eos.dedup.verdict_rows import Codes, VerdictRows
from eos.folder import Folder
from eos.kafka.api import TopicPartition
from eos.producers.sequences import Flags, Ints
from eos.producers.state import Verdict
from eos.seal import Seal, of_this_process

_FIRST_BUCKETS = 1  # state files of a new shard; one is enough, since there are 16 shards


@dataclass(frozen=True, slots=True)
class ProducerScopeStage:
    """Producer-wide dedup of one attempt, as a function that Spark calls for each task.

    `folder` is the folder of the `producers` table, `work` the folder of the attempt, and `known`
    the states at its beginning. `topic` is the only source topic; if it is empty, each row names
    its topic."""

    pipeline: str
    folder: Folder
    work: Folder
    policy: Policy
    known: Mapping[TopicPartition, BucketManifest]
    now_ms: int
    topic: str = ""
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the stamps; it lacks the topic if the source has only one."""
        return stamp_shards.schema(is_of_one_topic=bool(self.topic))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Validate packed stamps; yield no rows. Spark calls this with batches of `PACKED` rows.

        Rows must be ordered by shard, and one task must get all rows of a shard."""
        yield from self._validated(stamp_shards.unpacked(batches, self.schema))

    def at_once(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Validate all stamps of a micro-batch in one task, which keeps them in memory.

        Spark calls this without a shuffle, so the stamps are not packed: each row is one stamp.
        Yield no rows, because the verdicts are written to files."""
        yield from self._validated(stamp_shards.sorted_by_shard(batches, self.schema))

    def _validated(self, parts: Iterable[stamp_shards.Part]) -> Iterator[pa.RecordBatch]:
        with self.seal.crossing_errors():
            self.validate(parts)
        yield from ()

    def validate(self, parts: Iterable[stamp_shards.Part]) -> None:
        spool = StateSpool(self.pipeline, self.folder, self.work)
        # Collect all records of a shard, because all records of a producer are decided together.
        for number, own in itertools.groupby(parts, key=itemgetter(0)):
            rows = pa.Table.from_batches([part for _, part in own])
            home = shard(number)
            manifest = self.known.get(home, BucketManifest(_FIRST_BUCKETS))
            validator = _ShardValidator(
                self.pipeline,
                home,
                self.policy,
                manifest,
                self.folder,
                self.now_ms,
                self.topic,
            )
            validator.validate(rows)
            spool.write(validator)


@dataclass(slots=True)
class _ShardValidator:
    """Verdicts and producer states of one shard in one attempt.

    `states` has the states of the loaded buckets (state files), followed by the changed states. If
    `_is_current` is false for a row, a later row has replaced it."""

    pipeline: str
    home: TopicPartition
    policy: Policy
    manifest: BucketManifest
    folder: Folder
    now_ms: int
    topic: str
    states: pa.Table = field(default_factory=lambda: no_rows(SCOPE_STATES))
    read: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    expired: int = 0
    account: Account = field(init=False)
    _bucket: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # bucket of each row
    _is_current: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    _places: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.account = Account(range(1, len(NAMES)))

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self._is_current))

    def by_bucket(self, buckets: int) -> tuple[pa.Table, Ints]:
        states, bucket = self.states, self._bucket
        if buckets != self.manifest.buckets:
            bucket = bucket_of(one_array(states.column("producer")), buckets)
        if not self._is_current.all() or (np.diff(bucket) < 0).any():
            # All bucket numbers fit into 16 bits, which numpy sorts several times faster.
            order = np.argsort(bucket.astype(np.uint16), kind="stable")
            order = order[self._is_current[order]]
            states, bucket = states.combine_chunks().take(longs(order)), bucket[order]
        return states, bucket

    def report(self) -> Mapping[str, Any]:
        return {"places": self._places}

    def load(self, buckets: set[int]) -> None:
        """Read the states of these buckets that are not loaded yet.

        Producers that were idle for `forget_ms` are removed and become unknown."""
        missing = sorted(buckets - self.read)
        self.read |= buckets
        parts, of = [no_rows(SCOPE_STATES)], [self._bucket[:0]]
        for bucket in missing:
            file = self.manifest.files.get(bucket)
            if file is None:
                continue
            found = read_states(self.folder, file, SCOPE_STATES)
            oldest = values_of(found.column("at_ms")).min()
            if self.now_ms - oldest >= self.policy.forget_ms:
                found = self._without_idle(bucket, found)
            parts.append(found)
            of.append(np.full(len(found), bucket))
        self._add(pa.concat_tables(parts), np.concatenate(of))

    def _add(self, states: pa.Table, bucket: Ints) -> None:
        self.states = pa.concat_tables([self.states, states])
        self._bucket = np.concatenate((self._bucket, bucket))
        self._is_current = np.concatenate((self._is_current, np.ones(len(bucket), np.bool_)))

    def _without_idle(self, bucket: int, states: pa.Table) -> pa.Table:
        """Return the states of the producers that were not idle for `forget_ms`.

        A producer is kept or removed with all its epochs."""
        is_young = self.now_ms - newest_ms(states) < self.policy.forget_ms
        if is_young.all():
            return states
        expired = states.filter(array_of(~is_young, pa.bool_())).column("producer")
        self.expired += len(pc.unique(expired))
        self.changed.add(bucket)
        return states.filter(array_of(is_young, pa.bool_()))

    def validate(self, table: pa.Table) -> None:
        """Validate all records of the shard, in any order.

        Raise RecordRefusedError for the first record whose verdict ends the run."""
        at, producer, epoch, sequence, *topics = (one_array(each) for each in table.columns)
        topic, partition, offset = unpacked(at, topics, self.topic)
        is_stamped = valid_stamps(self.policy, producer, epoch, sequence)
        codes = np.full(table.num_rows, UNSTAMPED, np.int8)
        missing = np.zeros(table.num_rows, np.int64)
        place, names = self._placed(topic, partition)
        has = values_of(is_stamped)
        producers = producer.filter(is_stamped)
        numbers = [ints_of(each)[has] for each in (epoch, sequence, offset)]
        codes[has], missing[has] = self._decided(producers, numbers, place[has], names)
        rows = VerdictRows(codes, topic, partition, offset, producer, epoch, sequence)
        refused = np.flatnonzero(np.isin(codes, self.policy.codes(self.policy.refused)))
        if len(refused):
            first = int(refused[np.lexsort((values_of(offset)[refused], place[refused]))[0]])
            details = self._expected(rows, first, missing)
            raise refusal(self.pipeline, rows, first, details, has_window=True)
        self.account.add(rows, lambda at: self._missing(missing, at))

    def _placed(self, topic: pa.Array, partition: pa.Array) -> tuple[Ints, pa.Array]:
        """Return the index of each row's partition, and the partitions' names by index.

        Partitions are ordered by topic and partition number. The report gets their row counts."""
        named, numbers = topic.dictionary_encode(), ints_of(partition)
        topics = named.dictionary.to_pylist()
        rank = np.argsort(np.argsort(np.array(topics)))  # of each topic in sorted order
        span = int(numbers.max(initial=0)) + 1
        combined = rank[ints_of(named.indices)] * span + numbers
        counts = np.bincount(combined)
        present = np.flatnonzero(counts)
        topics.sort()
        self._places = [[topics[n // span], n % span, int(counts[n])] for n in present.tolist()]
        names = binaries([f"{each[0]}-{each[1]}".encode() for each in self._places])
        place = np.zeros(len(counts), np.int64)
        place[present] = np.arange(len(present))
        return place[combined], names.cast(pa.string())

    def _decided(
        self, producer: pa.Array, numbers: Sequence[Ints], place: Ints, names: pa.Array
    ) -> tuple[Codes, Ints]:
        """Return verdict codes and lowest missing numbers of these records, and update the states.

        All of the records have a valid stamp."""
        # Look up each distinct id once. All later steps use numbers.
        rows, producers = ProducerNumbers.of(producer, names)
        buckets = bucket_of(rows.producers, self.manifest.buckets)
        self.load(distinct(buckets))
        of_states = rows.numbers_of(self.states)
        epoch, sequence, offset = numbers
        columns = producers, epoch, sequence, place, offset
        accepts_gap = self.policy.rules.writes(Verdict.GAP)
        rules = ScopeRules(self.policy.window, accepts_gap, self.policy.rules.sequences)
        continues, self.states = advance_continuing(
            self.states, of_states, Stamps(*columns), names, rules, self.now_ms
        )
        self.changed |= distinct(buckets[continues])
        # `decide` gets the other producers only. The element that is appended is that of -1.
        of_states[np.append(continues, False)[of_states]] = -1
        others = np.flatnonzero(~continues[producers])
        stamps = Stamps(*(each[others] for each in columns))
        found = self._decided_others(rows, of_states, buckets, stamps, rules)
        codes, missing = np.zeros(len(producers), np.int8), np.zeros(len(producers), np.int64)
        codes[others], missing[others] = found.codes, found.missing
        return codes, missing

    def _decided_others(
        self,
        rows: ProducerNumbers,
        of_states: Ints,
        buckets: Ints,
        stamps: Stamps,
        rules: ScopeRules,
    ) -> ScopeVerdicts:
        """Return the verdicts on records of all other producers, and update their states.

        `of_states` has the number of each state's producer, or -1 if it has no such record."""
        is_known = of_states >= 0
        own = self.states.filter(array_of(is_known, pa.bool_()))
        known, numbered = rows.known(own, of_states[is_known])
        found = decide(stamps, known, rules)
        has_moved = np.zeros(len(buckets) + 1, np.bool_)  # the last element: other producers
        has_moved[found.moved] = True
        # A producer without a change keeps its state, including the time of its last change.
        self._is_current &= ~has_moved[of_states]
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
        return f"; {number} is still missing, at least the window of {window:,} below"

    def _missing(self, missing: Ints, at: int) -> int:
        return int(missing[at]) % self.policy.rules.sequences
