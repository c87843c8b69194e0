"""Read and write the ledger: the pipeline's own topic, with one record per committed attempt.

Each record is written inside the transaction of its attempt. So the ledger is the truth about what
is committed ("the ledger is the truth"). Two other records of progress can't be:
- Group offsets expire. And if a plain OffsetCommit arrives after the transaction's TxnOffsetCommit
  and before its end, the plain one wins.
- Spark's checkpoint may lack the last micro-batch: Spark writes its commit log after EndTxn, and a
  crash may come in between.

Kafka's reads are not linearizable, so a stale leader could cause committed records to repeat:
1. The leader of the ledger stops (a paused machine, a long garbage collection). Another broker
   becomes the leader.
2. The first broker wakes. For a few moments it does not know of the election.
3. A startup reads the ledger there, and gets an old end. Micro-batches after it look as if they had
   not committed.

Reads can't detect this, but a write can: with acks=all, a stale leader gets no confirmation. So
each record that this process writes must follow what it read (`require_follows`). The first one of
a process is its start record, before any micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Literal, NamedTuple

from eos.deadline import Backoff, Deadline
from eos.errors import EosError, PromiseBrokenError, UnavailableError
from eos.kafka.api import NO_IDENTITY, Identity, TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.record_reader import StoredRecord
from eos.kafka.records.batch_headers import Batch, batches
from eos.kafka.records.parser import stored_records
from eos.ledger import errors
from eos.ledger.decoder import decoded
from eos.ledger.record import AttemptRecord, Kind, LedgerRecord, Position, encoded, stamped

# How many offsets are read at once: at first, and at most. A record may hold many receipts, so the
# records of one read must fit into memory.
_LOOK_BACK_FIRST, _LOOK_BACK_MAX = 256, 4096
_LAST_MOMENTS_MS = 200
_SURE_AFTER_MS = 10_000  # a startup that waited this long knows that no marker is late
_ASK_MS = 2_000
_OFFSET_MAX = (1 << 63) - 1
_RECORD_AND_MARKER = 2  # offsets of one transaction of this pipeline
_FOREIGN_MAX = 100
# Of a run's attempts, one in so many has the settings of the pipeline file. All other records of a
# run have them. So few records must be read to find them, and few are larger for it.
DECLARED_EVERY = 256
_RUN = ("deployment", "host", "process", "version")  # of a record's owner
_DECLARED_WITHIN = 2 * DECLARED_EVERY
_TRIM_SHARE = 0.1  # of `keep`; fewer offsets are not worth a request
_MESSAGE_BYTES_MAX = 8 * 1024 * 1024
CONFIG = {
    "cleanup.policy": "delete",
    "compression.type": "producer",  # a cluster's default would make brokers recompress it
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(_MESSAGE_BYTES_MAX),
}

Send = Callable[[Mapping[TopicPartition, bytes], Deadline], Mapping[TopicPartition, int]]


class Foreign(NamedTuple):
    """A committed record in the ledger that the pipeline did not write, and the error with the
    reason."""

    stored: StoredRecord
    error: PromiseBrokenError


class Ledger:
    """The ledger topic of one pipeline: builds, appends and reads its records."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        pipeline: str,
        owner: Mapping[str, Any],
        *,
        skips_foreign: bool = False,
        declared: Mapping[str, str] | None = None,
    ) -> None:
        """`declared` has the settings of the pipeline file, for the records of a run.

        With `skips_foreign`, records that the pipeline did not write are collected in `foreign`
        and skipped, as a recovery needs. Without it, the first such record raises."""
        self._client = client
        self._skips_foreign = skips_foreign
        self.partition = TopicPartition(topic, 0)
        self._pipeline = pipeline
        self._owner = dict(owner)
        self._declared = dict(declared or {})
        self.foreign: dict[int, Foreign] = {}  # by offset; the newest 100
        # where the ledger ended when this process last read or wrote it
        self._end: int | None = None
        self._checked_until = 0  # no unread committed record below this offset

    def ensure_topic(self, replication: int, deadline: Deadline) -> None:
        """Create the topic if it is missing. Raise if an existing topic's settings let Kafka delete
        records."""
        self._client.create_topic(self.partition.topic, 1, replication, CONFIG, deadline)
        self.require_kept(deadline)

    def require_kept(self, deadline: Deadline) -> None:
        topic = self.partition.topic
        for name in ("cleanup.policy", "retention.ms", "retention.bytes"):
            value, required = self._client.topic_config(topic, name, deadline), CONFIG[name]
            if value != required:
                raise PromiseBrokenError(
                    "ledger_forgets",
                    f"{self._pipeline}: the ledger topic {topic!r} has {name}={value}, so Kafka "
                    "would delete records of committed attempts",
                    hint=f"set {name}={required} on the topic: `kafka-configs.sh --alter "
                    f"--entity-type topics --entity-name {topic} --add-config {name}={required}`",
                )

    def peek(self, deadline: Deadline) -> LedgerRecord | None:
        """Return the last record that is committed now, or None. No instance is fenced, so the
        pipeline's owner may write the next record meanwhile."""
        return next(self.newest_first(deadline), None)

    def wait_at_rest(self, most_ms: int, deadline: Deadline) -> bool:
        """Wait at most `most_ms` until no transaction is open on the topic. Return whether that was
        reached."""
        backoff, patience = Backoff(), Deadline.after_ms(deadline.at_most_ms(most_ms))
        while not patience.has_passed:
            committed = self._offset("latest", committed=True, deadline=deadline)
            if committed >= self._offset("latest", committed=False, deadline=deadline):
                return True
            backoff.sleep(patience)
        return False

    def read_last(self, deadline: Deadline) -> LedgerRecord | None:
        """Return the last committed record, or None, after waiting until no transaction is open on
        the topic.

        Call this after this process's fence. From then on no older instance of this pipeline can
        commit, and its open transaction is aborted. Then the last stable offset differs from the
        high watermark in two cases only: the marker of that abort has not arrived, or another
        producer has an open transaction here.
        """
        return next(self._backwards(*self._settled_range(deadline), deadline), None)

    def history(self, count: int, deadline: Deadline) -> list[LedgerRecord]:
        """Return the last `count` committed records, newest first."""
        return list(islice(self.newest_first(deadline), count))

    def decided_until(self, offset: int, deadline: Deadline) -> int:
        """Return the offset below which an operator's recovery decided to skip records of other
        producers. Return 0 if no such decision covers `offset`."""
        for record in self.newest_first(deadline):
            if record.foreign_until > offset:
                return record.foreign_until
            if record.offset <= offset:
                break
        return 0

    def newest_first(self, deadline: Deadline) -> Iterator[LedgerRecord]:
        """Yield the records that are committed now, newest first. The topic is read only as far
        back as the caller iterates."""
        first = self._offset("earliest", committed=False, deadline=deadline)
        end = self._offset("latest", committed=True, deadline=deadline)
        yield from self._backwards(first, end, deadline)

    def record(
        self,
        kind: Kind,
        position: Position,
        attempt: AttemptRecord | None = None,
        note: Mapping[str, Any] | None = None,
        failed: Sequence[Mapping[str, Any]] = (),
        identity: Identity = NO_IDENTITY,
    ) -> bytes:
        """Return an encoded record for `append`, which must be called with the same producer id and
        epoch (`identity`)."""
        return encoded(
            *(self._pipeline, self._owner, kind, position, attempt, note, failed, identity),
            self._settings_for(kind, position),
        )

    def _settings_for(self, kind: Kind, position: Position) -> Mapping[str, str] | None:
        """Return the settings that a record of this kind has, if it has them."""
        if kind == "attempt":
            return self._declared if position.batch_id % DECLARED_EVERY == 0 else None
        return None if kind == "recovery" else self._declared  # `eos recover` does not run the file

    def last_declared(self, deadline: Deadline) -> LedgerRecord | None:
        """Return the newest record with the settings of the last run's pipeline file. Return None
        if that run's records have none, as those of an older release.

        Recoveries are no runs. The settings of an earlier run are not returned, since the last run
        may have had others.
        """
        last: tuple[Any, ...] | None = None
        for record in islice(self.newest_first(deadline), _DECLARED_WITHIN):
            if record.kind == "recovery":
                continue
            run = tuple(record.owner.get(name) for name in _RUN)
            last = last or run
            if run != last:
                return None
            if record.declared is not None:
                return record
        return None

    def append(self, send: Send, record: bytes, identity: Identity, deadline: Deadline) -> int:
        """Write a record in the open transaction of `identity`, and return its offset. `send` is
        the coordinator's `produce`. Raise if the record does not directly follow what this process
        has read."""
        blob = stamped(record, identity)
        self._require_readable(blob)
        with errors.must_exist(self._pipeline, self.partition.topic):
            written = send({self.partition: blob}, deadline)
        self.require_follows(written[self.partition], deadline)
        return written[self.partition]

    def _require_readable(self, blob: bytes) -> None:
        """Raise unless the record can be read back. Once committed, it would stop each startup."""
        offset = _OFFSET_MAX if self._end is None else self._end  # of the record, once it is sent
        try:
            for batch in batches(blob):
                assert isinstance(batch, Batch)
                for stored in stored_records(batch):
                    self._decode(stored._replace(offset=offset))
        except PromiseBrokenError as error:
            reason = error.__cause__ or error.message
            raise errors.unreadable(self._pipeline, self.partition.topic, reason) from error

    def require_follows(self, offset: int, deadline: Deadline) -> None:
        """Raise unless the record that this process wrote at `offset` directly follows the end that
        it knew.

        Control records and aborted records may be in between. Any other offset means that the
        ledger has records which this process did not read, or that it lost some.
        """
        if self._end is not None and offset != self._end:
            self._require_none_missed(offset, self._end, deadline)
        # Set only after the check, so that after a failure the next read is compared with the old
        # end.
        self._end, self._checked_until = offset + _RECORD_AND_MARKER, offset + 1

    def _require_none_missed(self, offset: int, end: int, deadline: Deadline) -> None:
        if offset < end:
            raise self._lost(offset, end)
        missed = self._client.read_records(
            self.partition, self._checked_until, offset, committed=True, deadline=deadline
        )
        for each in missed:
            self._decode(each)  # raises for a record of another producer
        if missed:
            count, first = len(missed), missed[0].offset
            raise UnavailableError(
                "ledger_stale",
                f"{self._pipeline}: the ledger {self.partition.topic!r} has {count} records from "
                f"offset {first} on that its leader did not return before: it ended at {end} then",
                hint="a broker that was paused may believe for a moment that it is still the "
                "leader. The pipeline wrote nothing to its targets. Start it again: the next run "
                "reads these records. If it repeats, another client writes to this topic",
                topic=self.partition.topic,
                offset=first,
            )

    def trim(self, keep: int, deadline: Deadline, needed_from: int | None = None) -> bool:
        """Delete about all but the last `keep` records, and return whether any was deleted.

        The last committed record and all records from offset `needed_from` on are kept. If there
        are few records to delete, do nothing.
        """
        first = self._offset("earliest", committed=False, deadline=deadline)
        end = self._offset("latest", committed=True, deadline=deadline)
        before = end - 2 * keep  # each record has a marker after it
        if needed_from is not None:
            before = min(before, needed_from)
        if before - first < keep * _TRIM_SHARE:
            return False
        last = self.peek(deadline)
        if last is None:
            return False
        self._client.delete_records({self.partition: min(before, last.offset)}, deadline)
        return True

    def _backwards(self, first: int, end: int, deadline: Deadline) -> Iterator[LedgerRecord]:
        """Yield committed records from the end backwards, without aborted ones and markers. A
        record of another producer raises, unless a later recovery decided to skip it."""
        window, decided_until = _LOOK_BACK_FIRST, 0
        while end > first:  # terminates: each step reads older offsets
            start = max(first, end - window)
            records = self._client.read_records(
                self.partition, start, end, committed=True, deadline=deadline
            )
            for stored in reversed(records):
                record = self._decode_own(stored, decided_until)
                if record is not None:
                    decided_until = max(decided_until, record.foreign_until)
                    yield record
            end, window = start, min(_LOOK_BACK_MAX, window * 4)

    def _decode_own(self, stored: StoredRecord, decided_until: int) -> LedgerRecord | None:
        """Return the record, or None if it is a record of another producer that is skipped."""
        try:
            return self._decode(stored)
        except PromiseBrokenError as error:
            if error.code == "ledger_newer":
                raise
            if stored.offset < decided_until:
                return None
            if not self._skips_foreign:
                raise
            if len(self.foreign) < _FOREIGN_MAX:
                self.foreign.setdefault(stored.offset, Foreign(stored, error))
            return None

    def _decode(self, stored: StoredRecord) -> LedgerRecord:
        return decoded(self._pipeline, self.partition.topic, stored)

    def _settled_range(self, deadline: Deadline) -> tuple[int, int]:
        backoff, had_ms = Backoff(), deadline.left_ms
        while True:
            committed = self._offset("latest", committed=True, deadline=deadline)
            written = self._offset("latest", committed=False, deadline=deadline)
            known = self._end or 0
            if committed == written >= known:
                self._end = self._checked_until = written
                return self._offset("earliest", committed=False, deadline=deadline), written
            if written < known:  # find the current leader: this broker may have been replaced
                self._client.refresh_metadata([self.partition.topic], deadline)
            backoff.sleep(deadline)
            # Stop before the deadline: a request without enough time would fail with "no response"
            # and hide what is known.
            if deadline.left_ms <= _LAST_MOMENTS_MS:
                if had_ms < _SURE_AFTER_MS:
                    raise UnavailableError(
                        "ledger_unsettled",
                        f"{self._pipeline}: the ledger {self.partition.topic!r} did not settle "
                        f"within {had_ms} ms: {committed} of {written} offsets are decided, "
                        f"{known} were acknowledged",
                        hint="start again: a startup waits for longer",
                    )
                if written < known:
                    raise self._lost(written, known)
                raise PromiseBrokenError(
                    "ledger_open",
                    f"{self._pipeline}: a transaction is open on the ledger "
                    f"{self.partition.topic!r} from offset {committed} on, after this pipeline "
                    f"fenced its own{self._open_producer(committed)}",
                    hint="another client writes to this topic: end that producer, or abort its "
                    "transaction with `kafka-transactions.sh abort`, and start again",
                )

    def ends_before(self, record: LedgerRecord) -> PromiseBrokenError:
        """Return the error for a ledger that ends with `record`, although this process wrote later
        records."""
        problem = (
            f"ends with the record at offset {record.offset}, but this process wrote later ones"
        )
        return errors.cut(self._pipeline, self.partition.topic, problem, record.offset)

    def _lost(self, offset: int, end: int) -> PromiseBrokenError:
        problem = f"ends at offset {offset}, but it ended at {end} before"
        return errors.cut(self._pipeline, self.partition.topic, problem, offset)

    def _open_producer(self, offset: int) -> str:
        """Return the producer of the open transaction, as a part of a message; "" if the leader
        does not report it."""
        with suppress(EosError):
            producers = self._client.describe_producers(
                [self.partition], Deadline.after_ms(_ASK_MS)
            )
            for state in producers[self.partition]:
                if state.transaction_start_offset == offset:
                    return f": producer id {state.identity.producer_id}"
        return ""

    def _offset(
        self, at: Literal["earliest", "latest"], *, committed: bool, deadline: Deadline
    ) -> int:
        with errors.must_exist(self._pipeline, self.partition.topic):
            found = self._client.list_offsets(
                [self.partition], at, committed=committed, deadline=deadline
            )
        return found[self.partition]
