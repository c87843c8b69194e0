"""The ledger: the pipeline's own topic, one record for each attempt, inside its transaction.

It is the truth about what is committed (rule R4). Group offsets can't be: a plain OffsetCommit
between ours and the end of the transaction wins, and they expire. Spark's checkpoint can't be
either: its commit log is written after EndTxn, so a crash in between leaves it one behind.

Kafka's reads are not linearizable: a broker that stood still while another became leader (a paused
machine, a long collection) leads on in its own eyes when it wakes, for the moments until it hears
the news, and tells an end of the ledger that is long past. Whoever believed it would run again what
is committed. A write can't be taken in like that, since with acks=all a stale leader has nobody who
confirms. So each record that we write must follow what we read (`require_follows`), and the first
one of a process is its start record, before any micro-batch.
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
from eos.ledger import errors
from eos.ledger.decoder import decoded
from eos.ledger.record import AttemptRecord, Kind, LedgerRecord, Position, encoded, stamped

# How far back is read, in offsets: at first, and at most at a time. Each record may hold many
# receipts, so a window's records must fit into memory.
_LOOK_BACK_FIRST, _LOOK_BACK_MAX = 256, 4096
_LAST_MOMENTS_MS = 200
_SURE_AFTER_MS = 10_000  # a marker on its way takes less, where brokers answer at all
_ASK_MS = 2_000
_RECORD_AND_MARKER = 2  # what each of our transactions leaves on the ledger
_FOREIGN_MAX = 100
_TRIM_SHARE = 0.1  # of what is kept: less is not worth a request
_MESSAGE_BYTES_MAX = 8 * 1024 * 1024
CONFIG = {
    "cleanup.policy": "delete",
    "compression.type": "producer",  # a cluster's default would make brokers compress it again
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(_MESSAGE_BYTES_MAX),
}

Send = Callable[[Mapping[TopicPartition, bytes], Deadline], Mapping[TopicPartition, int]]


class Foreign(NamedTuple):
    """A committed record that the pipeline did not write, and why it is known not to have."""

    stored: StoredRecord
    error: PromiseBrokenError


class Ledger:
    """Reads and builds the ledger's records, and appends them by the coordinator."""

    def __init__(
        self,
        wire: KafkaClient,
        topic: str,
        pipeline: str,
        owner: Mapping[str, Any],
        *,
        skips_foreign: bool = False,
    ) -> None:
        """`skips_foreign`: records that the pipeline did not write are collected and passed over,
        for recovery. Without it the first one stops the reader."""
        self._wire = wire
        self._skips_foreign = skips_foreign
        self.partition = TopicPartition(topic, 0)
        self._pipeline = pipeline
        self._owner = dict(owner)
        self.foreign: dict[int, Foreign] = {}  # by offset, the newest ones
        self._end: int | None = None  # since our fence: as it was read, or as we wrote it
        self._checked_until = 0  # no record of others lies between our fence and this offset

    def ensure_topic(self, replication: int, deadline: Deadline) -> None:
        """Creates the topic, or refuses one that could forget."""
        self._wire.create_topic(self.partition.topic, 1, replication, CONFIG, deadline)
        self.require_kept(deadline)

    def require_kept(self, deadline: Deadline) -> None:
        topic = self.partition.topic
        for name in ("cleanup.policy", "retention.ms", "retention.bytes"):
            value = self._wire.topic_config(topic, name, deadline)
            if value != CONFIG[name]:
                raise PromiseBrokenError(
                    f"{self._pipeline}: the ledger topic {topic!r} has {name}={value}, so it would "
                    "forget what is committed",
                    hint=f"set {name}={CONFIG[name]} on the topic",
                    case="ledger_forgets",
                )

    def look(self, deadline: Deadline) -> LedgerRecord | None:
        """The last record that is committed this moment. Asks nobody to stop: whoever owns the
        pipeline may write the next one meanwhile."""
        return next(self.newest_first(deadline), None)

    def wait_at_rest(self, most_ms: int, deadline: Deadline) -> bool:
        """Wait until no transaction is open on the topic. False: one was open for so long."""
        backoff, patience = Backoff(), Deadline.after_ms(deadline.at_most_ms(most_ms))
        while not patience.has_passed:
            committed = self._offset("latest", committed=True, deadline=deadline)
            if committed >= self._offset("latest", committed=False, deadline=deadline):
                return True
            backoff.sleep(patience)
        return False

    def read_last(self, deadline: Deadline) -> LedgerRecord | None:
        """The last committed record, once nothing is open on the topic.

        To be called after our own fence: from then on no older copy of this pipeline can commit,
        and what it left open is aborted. The two ends differ only while that abort's marker is on
        its way, or if a transaction of someone else is open here.
        """
        return next(self._backwards(*self._settled_range(deadline), deadline), None)

    def history(self, count: int, deadline: Deadline) -> list[LedgerRecord]:
        """The last `count` committed records, newest first."""
        return list(islice(self.newest_first(deadline), count))

    def decided_until(self, offset: int, deadline: Deadline) -> int:
        """Return the offset below which a recovery decided about other producers' records, as far
        as that covers `offset`; else 0."""
        for record in self.newest_first(deadline):
            if record.foreign_until > offset:
                return record.foreign_until
            if record.offset <= offset:
                break
        return 0

    def newest_first(self, deadline: Deadline) -> Iterator[LedgerRecord]:
        """All that is committed this moment, read as far back as is asked for."""
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
        """Return the record's bytes for `stamped`, which gets the same identity."""
        return encoded(self._pipeline, self._owner, kind, position, attempt, note, failed, identity)

    def append(self, send: Send, record: bytes, identity: Identity, deadline: Deadline) -> int:
        """Write a record in the open transaction of `identity`, and return its offset. `send` is
        the coordinator's. Raises if the record does not follow what was read."""
        with errors.must_exist(self._pipeline, self.partition.topic):
            written = send({self.partition: stamped(record, identity)}, deadline)
        self.require_follows(written[self.partition], deadline)
        return written[self.partition]

    def require_follows(self, offset: int, deadline: Deadline) -> None:
        """Our record was acknowledged at `offset`, in a transaction that is still open. Raises if
        that is not where the ledger ended, control records and aborted ones aside: then what we
        took for its last record is not the last, or is gone."""
        if self._end is not None and offset != self._end:
            self._require_none_missed(offset, self._end, deadline)
        # Only now: after a failure, what is read next is still compared with what was there.
        self._end, self._checked_until = offset + _RECORD_AND_MARKER, offset + 1

    def _require_none_missed(self, offset: int, end: int, deadline: Deadline) -> None:
        if offset < end:
            raise self._lost(offset, end)
        missed = self._wire.read_records(
            self.partition, self._checked_until, offset, committed=True, deadline=deadline
        )
        for each in missed:
            self._decoded(each)  # raises for one of another producer
        if missed:
            raise UnavailableError(
                f"{self._pipeline}: the ledger {self.partition.topic!r} has {len(missed)} records "
                f"from offset {missed[0].offset} on that its leader did not show when it was "
                f"read: it ended at {end} then",
                hint="a broker that stood still takes itself for leader for a moment. Nothing was "
                "written: start again, which reads them. If it repeats, somebody else writes to "
                "this topic",
                case="ledger_stale",
                topic=self.partition.topic,
                offset=missed[0].offset,
            )

    def trim(self, keep: int, deadline: Deadline, needed_from: int | None = None) -> bool:
        """Forgets all but the last `keep` records, once there are some more than that. The last
        committed one always stays, and what is `needed_from` this offset on. Returns whether
        anything was forgotten."""
        first = self._offset("earliest", committed=False, deadline=deadline)
        end = self._offset("latest", committed=True, deadline=deadline)
        before = end - 2 * keep  # each has a marker behind it
        if needed_from is not None:
            before = min(before, needed_from)
        if before - first < keep * _TRIM_SHARE:
            return False
        last = self.look(deadline)
        if last is None:
            return False
        self._wire.delete_records({self.partition: min(before, last.offset)}, deadline)
        return True

    def _backwards(self, first: int, end: int, deadline: Deadline) -> Iterator[LedgerRecord]:
        """Committed records from the end on, past aborted ones and markers. A record of another
        producer stops it, unless a later recovery decided about it."""
        look_back, decided_until = _LOOK_BACK_FIRST, 0
        while end > first:  # bounded by the topic's size
            start = max(first, end - look_back)
            records = self._wire.read_records(
                self.partition, start, end, committed=True, deadline=deadline
            )
            for stored in reversed(records):
                record = self._own(stored, decided_until)
                if record is not None:
                    decided_until = max(decided_until, record.foreign_until)
                    yield record
            end, look_back = start, min(_LOOK_BACK_MAX, look_back * 4)

    def _own(self, stored: StoredRecord, decided_until: int) -> LedgerRecord | None:
        """The record, or None for one to pass over."""
        try:
            return self._decoded(stored)
        except PromiseBrokenError as error:
            if stored.offset < decided_until:
                return None
            if not self._skips_foreign or error.fields["case"] == "ledger_newer":
                raise
            if len(self.foreign) < _FOREIGN_MAX:
                self.foreign.setdefault(stored.offset, Foreign(stored, error))
            return None

    def _decoded(self, stored: StoredRecord) -> LedgerRecord:
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
            if written < known:  # whoever says so may not lead any more
                self._wire.refresh_metadata([self.partition.topic], deadline)
            backoff.sleep(deadline)
            # Not in its last moments: a question that has no time to be answered would put "no
            # answer" in the place of what is known.
            if deadline.left_ms <= _LAST_MOMENTS_MS:
                if had_ms < _SURE_AFTER_MS:
                    raise UnavailableError(
                        f"{self._pipeline}: the ledger {self.partition.topic!r} was looked at for "
                        f"{had_ms} ms only, and did not come to rest: {committed} of {written} "
                        f"offsets are decided, {known} were acknowledged",
                        hint="start again: it is looked at for longer then",
                        case="ledger_unsettled",
                    )
                if written < known:
                    raise self._lost(written, known)
                raise PromiseBrokenError(
                    f"{self._pipeline}: a transaction is open on the ledger "
                    f"{self.partition.topic!r} from offset {committed} on, after this pipeline "
                    f"fenced its own{self._who(committed)}",
                    hint="somebody else writes to this topic: end that producer, or "
                    "`kafka-transactions.sh abort` its transaction, and start again",
                    case="ledger_open",
                )

    def ends_before(self, record: LedgerRecord) -> PromiseBrokenError:
        """Return the error for a ledger whose last record is older than one of this process."""
        seen = f"ends with the record at offset {record.offset}, but this process wrote later ones"
        return errors.cut(self._pipeline, self.partition.topic, seen, record.offset)

    def _lost(self, offset: int, end: int) -> PromiseBrokenError:
        seen = f"ends at offset {offset}, but it ended at {end} before"
        return errors.cut(self._pipeline, self.partition.topic, seen, offset)

    def _who(self, offset: int) -> str:
        """Which producer holds the ledger open, as far as its leader tells."""
        with suppress(EosError):
            producers = self._wire.describe_producers([self.partition], Deadline.after_ms(_ASK_MS))
            for state in producers[self.partition]:
                if state.transaction_start_offset == offset:
                    return f": producer id {state.identity.producer_id}"
        return ""

    def _offset(
        self, at: Literal["earliest", "latest"], *, committed: bool, deadline: Deadline
    ) -> int:
        with errors.must_exist(self._pipeline, self.partition.topic):
            found = self._wire.list_offsets(
                [self.partition], at, committed=committed, deadline=deadline
            )
        return found[self.partition]
