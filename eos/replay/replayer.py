"""How are dead letters written back to their source topics, each exactly once?

A replay is a pipeline without Spark, whose source is the dead-letter topic. It fences older replays
of the rule, reads its ledger, and writes transactions. Each transaction commits the records, a
ledger record and the group's offsets of the dead-letter topic. So a killed replay resumes after its
last commit, and a second concurrent replay fences the first.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from eos.deadline import Deadline
from eos.encode.sink_spec import SinkSpec
from eos.encode.stage import EncodeStage
from eos.errors import PromiseBrokenError, UsageError
from eos.faults import Dies
from eos.kafka.api import Identity
from eos.kafka.cluster import TopicInfo
from eos.kafka.compression_type import Codec
from eos.kafka.target_partitions import Targets
from eos.ledger import receipt
from eos.ledger.ranges import PlannedBatch
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends, LedgerRecord, Position
from eos.observe.bus import Bus
from eos.plan.plan import Plan
from eos.replay.pending_dead_letters import READ_TIMEOUT_MS, DeadLetterTopic, Letter, ReplayedTopic
from eos.spark.tasks import WriteStage
from eos.startup.acquire import acquire, still_ours
from eos.startup.ownership import RunLock
from eos.startup.resume_position import require_no_members
from eos.startup.topic_lookup import existing_topics
from eos.transaction.attempt_work import AttemptFacts, AttemptWork
from eos.transaction.clean_end import note_clean_end
from eos.transaction.ledger_trim import trim
from eos.transaction.micro_batch import STEP_TIMEOUT_MS, MicroBatches

LETTERS_MAX, BYTES_MAX = 1_000, 32 << 20  # per transaction; its dead letters are held in memory
LEDGER_KEPT = 1_000  # records to keep; a replay needs the last one, operators may read all
_WRITER_SHARE = 0.8
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("to_topic", pa.string()),
        ("to_partition", pa.int32()),
        ("at_ms", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A request to replay the dead letters of one rule.

    Dead letters that were written before `since_ms` are skipped for good. With `is_now`, records
    get the current time as timestamp, else that of their source record.
    """

    rule: str
    since_ms: int = 0
    records_max: int | None = None
    is_now: bool = False


@dataclass(slots=True)
class ReplayResult:
    records: int = 0
    passed_over: int = 0  # skipped for good: written before `since_ms`


@dataclass(frozen=True, slots=True)
class _Part:
    """The dead letters of one transaction, and the offsets after them."""

    letters: Sequence[Letter]
    ends: Ends
    passed_over: int


def _require_one_cluster(planned: Plan) -> None:
    """Raise UsageError if the source topics are on another cluster than the dead letters: one
    transaction can't write to one and move the position on the other."""
    other = planned.source_cluster
    if other is not None:
        raise UsageError(
            "replay_other_cluster",
            f"{planned.names.pipeline}: its dead letters can't be replayed, because its source "
            f"topics are on the cluster {other.name!r}, and its dead letters are not",
            hint="read the dead-letter topic with a pipeline of its own, which writes the targets",
            cluster=other.name,
        )


def put_back(
    topic: DeadLetterTopic,
    request: ReplayRequest,
    bus: Bus,
    crash: Dies,
    *,
    take_over: bool = False,
) -> ReplayResult:
    """Write all dead letters of the rule that are in the topic now back to their source topics.

    If the pipeline rejects a replayed record again, the new dead letter waits for the next replay.
    """
    _require_one_cluster(topic.planned)
    planned, client = topic.of_rule(request.rule), topic.client
    deadline = Deadline.after_ms(READ_TIMEOUT_MS)
    with closing(RunLock(planned)) as lock:
        lock.acquire(is_forced=take_over)
        client.agree_on_profile(deadline)
        acquired = acquire(planned, client, crash, deadline, is_forced=take_over)
        with _terminable():
            # Read the topic's ends after the fence: before it, another replay may have committed a
            # position beyond the ends that were read.
            topic_id, ends = topic.ends(deadline)
            source = ReplayedTopic(planned, client, topic_id=topic_id)
            with still_ours(acquired.coordinator, acquired.ledger):
                require_no_members(planned, source, deadline)
                position = _position(planned, acquired.last, topic_id, ends)
            batches = acquired.batches(position, source, bus)
            until = {tp: end for tp, (_, end) in ends.items()}
            replay = _Replay(topic, planned, request, until, batches, crash)
            try:
                batches.note("start")
                done = replay.run_all()
                note_clean_end(batches, bus, is_at_rest=False)
            except (KeyboardInterrupt, UsageError):
                # End the open transaction. Otherwise readers of the source topics would stop at it
                # until its timeout.
                note_clean_end(batches, bus, is_at_rest=False)
                raise
            trim(acquired.ledger, LEDGER_KEPT, bus)
    return done


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, as SIGINT does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _position(
    planned: Plan, last: LedgerRecord | None, topic_id: str, ends: Mapping[Any, Any]
) -> Position:
    """Return the position after the last replayed dead letter of the rule.

    Dead letters that retention deleted are skipped without an error. If the topic was recreated,
    the position is its beginning. Raise PromiseBrokenError if the topic ends before the position.
    """
    topic = planned.source_topics[0]
    known = last.position if last is not None else None
    before = known.ends if known and known.topic_ids.get(topic) == topic_id else {}
    for tp, (_, end) in sorted(ends.items()):
        if before.get(tp, 0) > end:
            raise PromiseBrokenError(
                "source_lost",
                f"{planned.names.pipeline}: {tp.topic}-{tp.partition} ends at offset {end}, but "
                f"dead letters up to {before[tp]} were replayed: some of them are missing now",
                hint="did an unclean leader election lose records? New ones would get the lost "
                f"records' offsets. Delete the topic {planned.names.ledger!r} to replay all dead "
                "letters that are left, including those replayed before",
                topic=tp.topic,
                partition=tp.partition,
            )
    starts = {tp: max(first, before.get(tp, first)) for tp, (first, _) in ends.items()}
    return Position(ends=starts, topic_ids={topic: topic_id})


@dataclass(slots=True)
class _Replay:
    topic: DeadLetterTopic
    planned: Plan
    wanted: ReplayRequest
    until: Ends
    batches: MicroBatches
    crash: Dies
    _targets: dict[str, TopicInfo] = field(default_factory=dict)

    def run_all(self) -> ReplayResult:
        done, query_id, number = ReplayResult(), uuid.uuid4().hex, 0
        while True:  # ends at the fixed offsets `until`, even if dead letters are added
            part = self._next(done)
            starts = {tp: self.batches.position.ends[tp] for tp in part.ends}
            if part.ends == starts:
                return done
            step = PlannedBatch(query_id, number, starts, part.ends)
            targets = self._places(part.letters)
            self.batches.run(step, ReplayWork(self, part.letters, targets))
            done.records += len(part.letters)
            done.passed_over += part.passed_over
            number += 1

    def _next(self, done: ReplayResult) -> _Part:
        left = LETTERS_MAX
        if self.wanted.records_max is not None:
            left = min(left, self.wanted.records_max - done.records)
        letters: list[Letter] = []
        ends: dict[Any, int] = {}
        passed_over = size = 0
        for tp, start in sorted(self.batches.position.ends.items()):
            if len(letters) >= left or size >= BYTES_MAX:
                break
            ends[tp] = self.until[tp]
            for letter in self.topic.letters(tp, start, self.until[tp]):
                if letter.origin.rule != self.wanted.rule:
                    continue
                if letter.stored.timestamp_ms < self.wanted.since_ms:
                    passed_over += 1
                    continue
                letters.append(letter)
                size += letter.stored.bytes
                if len(letters) >= left or size >= BYTES_MAX:
                    ends[tp] = letter.stored.offset + 1
                    break
        return _Part(letters, ends, passed_over)

    def _places(self, letters: Sequence[Letter]) -> Targets:
        """Return the source topics to write to. Raise UsageError if one can't be written to.

        Topic and partition are in headers of the dead letter. Every producer with access to the
        topic can set these headers, so their values are validated.
        """
        for number, letter in enumerate(letters):
            if not self.topic.planned.source.reads(letter.origin.source.topic):
                raise self._nowhere(letter, number, "which the pipeline does not read (any more)")
        topics = sorted({letter.origin.source.topic for letter in letters})
        found = self._existing(topics)
        for number, letter in enumerate(letters):
            topic, partition = letter.origin.source
            if partition >= found[topic].partitions:
                has = f"but that topic has {found[topic].partitions} partitions now"
                raise self._nowhere(letter, number, has)
        deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
        if not self.wanted.is_now:
            for name in topics:
                self._require_in_topic(name, letters, deadline)
        self._targets |= {name: found[name] for name in topics if name not in self._targets}
        config = self.topic.client.topic_config
        limits = {name: int(config(name, "max.message.bytes", deadline)) for name in topics}
        return Targets.of({name: (found[name].partitions, limits[name]) for name in topics})

    def write(
        self, letters: Sequence[Letter], targets: Targets, identity: Identity
    ) -> Sequence[Receipt]:
        if not letters:
            return ()
        encode = EncodeStage(
            sinks=(
                SinkSpec(
                    topic_column="to_topic",
                    topics=targets.topics,
                    codec=Codec.LZ4,
                    partition_column="to_partition",
                    timestamp_column="at_ms",
                ),
            ),
            targets=targets,
            n_writers=1,
            base_timestamp_ms=int(time.time() * 1000),
            record_batch_bytes_max=self.topic.client.settings.max_request_bytes,
        )
        write = WriteStage(
            settings=self.topic.client.settings,
            profile=self.topic.client.profile,
            transactional_id=self.planned.names.transactional_id,
            identity=identity,
            targets=targets,
            timeout_ms=int(self.planned.transaction_timeout_ms * _WRITER_SHARE),
            crash=self.crash,
        )
        rows = write.write(encode.encode(iter([self._rows(letters)]), 0), 0)
        return receipt.check((tuple(row.values()) for row in rows.to_pylist()), targets)

    def _rows(self, letters: Sequence[Letter]) -> pa.RecordBatch:
        origins = [letter.origin for letter in letters]
        columns = [
            [letter.stored.key for letter in letters],
            [letter.stored.value for letter in letters],
            [[{"key": key, "value": value} for key, value in each.headers] for each in origins],
            [each.source.topic for each in origins],
            [each.source.partition for each in origins],
            [None if self.wanted.is_now else each.timestamp_ms for each in origins],
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)

    def _existing(self, names: Sequence[str]) -> Mapping[str, TopicInfo]:
        return existing_topics(
            self.topic.client,
            names,
            Deadline.after_ms(STEP_TIMEOUT_MS),
            what="source",
            code="replayed_topic_missing",
            missing=PromiseBrokenError,
            hint="was the topic deleted? Its dead letters can't be replayed; --since skips older "
            "ones",
            pipeline=self.planned.names.pipeline,
        )

    def require_same_targets(self) -> None:
        """Raise PromiseBrokenError if a topic that is replayed to was recreated meanwhile.

        Records that the old topic acknowledged are lost.
        """
        for name, info in self._existing(sorted(self._targets)).items():
            if info.topic_id != self._targets[name].topic_id:
                raise PromiseBrokenError(
                    "target_recreated",
                    f"{self.planned.names.pipeline}: the topic {name!r} was recreated while dead "
                    "letters were replayed to it: some of them are gone",
                    hint="replay again for the other dead letters",
                    topic=name,
                )

    def _nowhere(self, letter: Letter, before: int, reason: str) -> UsageError:
        """Return the error for a dead letter whose source partition can't be written.

        `before` dead letters precede it in the same transaction."""
        source, at = letter.origin.source, letter.at
        first = f"`--limit {before}` replays the dead letters before it; " if before else ""
        return UsageError(
            "dead_letter_origin_missing",
            f"{self.topic.planned.names.pipeline}: the dead letter in {at.topic}-{at.partition} at "
            f"offset {letter.stored.offset} is from {source.topic}-{source.partition}, {reason}",
            hint=f"check whether the source was changed or the topic recreated. {first}"
            "--since with a later time skips it and all older dead letters permanently",
            topic=source.topic,
            partition=source.partition,
        )

    def _require_in_topic(self, name: str, letters: Sequence[Letter], deadline: Deadline) -> None:
        """Raise UsageError if a record is older than the topic's retention.

        With its original timestamp, it could be deleted before the pipeline reads it again."""
        config = self.topic.client.topic_config
        keeps_ms = int(config(name, "retention.ms", deadline))
        if keeps_ms < 0 or "delete" not in config(name, "cleanup.policy", deadline):
            return
        if config(name, "message.timestamp.type", deadline) == "LogAppendTime":
            return  # the broker gives the records the current time
        of_topic = [each for each in letters if each.origin.source.topic == name]
        oldest = min(of_topic, key=lambda each: each.origin.timestamp_ms).origin
        age_ms = int(time.time() * 1000) - oldest.timestamp_ms
        if age_ms >= keeps_ms:
            age_hours, kept_hours = age_ms // 3_600_000, keeps_ms // 3_600_000
            raise UsageError(
                "replay_record_expired",
                f"{self.topic.planned.names.pipeline}: the record from {name}-"
                f"{oldest.source.partition}, offset {oldest.offset}, is {age_hours} hours old, but "
                f"the topic keeps records for {kept_hours} hours (retention.ms): with its original "
                "time it could be deleted before it is read",
                hint="replay with --now, which gives the records the current time",
            )


@dataclass(frozen=True, slots=True)
class ReplayWork(AttemptWork):
    """Work of one attempt: write some dead letters back, before the transaction commits."""

    replay: _Replay
    letters: Sequence[Letter]
    targets: Targets

    def execute(self, identity: Identity, _position: Position, _floors: Ends) -> Sequence[Receipt]:
        return self.replay.write(self.letters, self.targets, identity)

    def prepare_commit(self) -> AttemptFacts:
        self.replay.require_same_targets()
        return AttemptFacts()
