"""How do the ledger's records become rows of the audit table, each exactly once?

This updates `producers` (`producers_projection`), and after it `transactions`: so the state machine
has validated each attempt before its rows are stored.

The table's log has the ledger offset up to which the table is complete, under a name made of
pipeline and ledger topic id. New rows and the new offset are one Delta commit, so after any crash
the next update finds both consistent. A recreated ledger topic has another id and so another name,
and is read from its beginning. A deleted table is filled again from all records of the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from eos.audit import rows as made
from eos.audit.producer_states import TRANSACTIONAL_ID_IDLE_MS
from eos.audit.producers_projection import (
    LedgerChunk,
    LedgerSource,
    ProducersProjection,
    ProducersResult,
)
from eos.audit.table import FILE_BYTES, OvertakenError, ProducersTable, TransactionsTable
from eos.deadline import Deadline
from eos.errors import EosError, PromiseBrokenError, UnavailableError
from eos.finding import Finding
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.records.parser import Marker
from eos.kafka.transaction_states import TransactionPhase
from eos.ledger.decoder import decoded
from eos.ledger.ledger import Ledger
from eos.ledger.record import LedgerRecord
from eos.producers.state import IDLE_MS

# Ledger records in one Delta commit, and their bytes. Both bound memory.
RECORDS_MAX, BYTES_MAX = 500, 8 * 1024 * 1024
_TRIES_MAX = 10
_ASK_MS = 10_000


@dataclass(frozen=True, slots=True)
class ProjectionResult:
    """Result of an update of the audit table.

    `until` is the last ledger offset that both tables have. `lost` is the range of ledger offsets
    that were trimmed before `transactions` had them; usually empty. `is_settled` is false if more
    records may follow at once: a transaction is open on the ledger, or time ran out. `findings` and
    `rebuilt_from` are those of `producers`.
    """

    until: int
    rows: int = 0
    lost: range = range(0)
    is_settled: bool = True
    findings: Sequence[Finding] = ()
    rebuilt_from: int | None = None


class Projection:
    """Copy of one pipeline's ledger records into the audit table. Not thread-safe."""

    def __init__(
        self,
        table: TransactionsTable,
        client: KafkaClient,
        pipeline: str,
        ledger: str,
        transactional_id: str = "",
    ) -> None:
        self.table = table
        self._client = client
        self._pipeline = pipeline
        self._ledger = TopicPartition(ledger, 0)
        self._transactional_id = transactional_id
        self._ledger_id = ""
        self._chunk: tuple[int, int, LedgerChunk] | None = None  # the last one, with its range
        self.reached: Callable[[str], None] = lambda _point: None

    def catch_up(self, deadline: Deadline) -> ProjectionResult:
        """Add ledger records until the table has all that were committed when the call began.

        Stop at the deadline, with `is_settled` false."""
        # Read the table first. Otherwise: 1. the ledger's end is read; 2. another process adds
        # newer records to the table; 3. the table seems to be ahead of the ledger.
        found = ProjectionResult(self.table.known(self._app(deadline)))
        end = self._offset("latest", deadline)
        is_settled = end == self._offset("latest", deadline, committed=False)
        if end <= found.until:
            raise PromiseBrokenError(
                "ledger_behind_audit_table",
                f"{self._pipeline}: the audit table has the ledger up to offset {found.until}, "
                f"but {self._ledger.topic!r} ends at {end}: committed records are gone",
                hint="did an unclean leader election or a restored broker lose them? `eos recover "
                f"{self._pipeline}` lists what is left to resume from",
            )
        producers = self._producers_caught_up(end, deadline, has_rows=found.until >= 0)
        is_settled &= producers.is_settled
        validated_end = end if producers.is_settled else producers.until + 1
        is_all = False
        while found.until < validated_end - 1 and not is_all:
            if deadline.has_passed:
                is_settled = False
                break
            part, is_all = self._step(found.until, validated_end, deadline)
            found = ProjectionResult(part.until, found.rows + part.rows, found.lost or part.lost)
        self._chunk = None
        self.producers.reported()
        return replace(
            found,
            until=min(found.until, producers.until),
            is_settled=is_settled,
            findings=producers.findings,
            rebuilt_from=producers.rebuilt_from,
        )

    @cached_property
    def producers(self) -> ProducersProjection:
        return ProducersProjection(ProducersTable(self.table.location.sibling("producers")))

    def _producers_caught_up(
        self, end: int, deadline: Deadline, *, has_rows: bool
    ) -> ProducersResult:
        """Update `producers`. `has_rows` is whether `transactions` has rows: without any, the
        pipeline is new, and states are not rebuilt but built for the first time."""
        source = LedgerSource(
            self._pipeline,
            self._ledger,
            self._ledger_id,
            self._transactional_id,
            self._app(deadline),
            self._offset("earliest", deadline),
            end,
            self._idle_ms,
            has_rows,
        )
        for _ in range(_TRIES_MAX):
            try:
                return self.producers.catch_up(source, self._read, self.reached, deadline)
            except OvertakenError:  # another process of this pipeline, perhaps with the same rows
                continue
        raise self._conflict_error()

    @cached_property
    def _idle_ms(self) -> tuple[int, int]:
        """Return after how long brokers forget a producer id, and a transactional id. These are
        Kafka's defaults if this user may not read the settings."""
        names = "producer.id.expiration.ms", "transactional.id.expiration.ms"
        try:
            first, second = (
                int(self._client.broker_config(name, Deadline.after_ms(_ASK_MS))) for name in names
            )
        except EosError:
            return IDLE_MS, TRANSACTIONAL_ID_IDLE_MS
        return first, second

    def end_with(self, failed: Sequence[Mapping[str, Any]], last: LedgerRecord) -> int:
        """Add aborted attempts that no ledger record will list, because the run ends.

        Their rows get the offset of `last`, the newest record. A row that the table has already is
        not added again. Return the number of added rows.
        """
        for _ in range(_TRIES_MAX):
            app = f"{self._app(Deadline.after_ms(_ASK_MS))}/ended"
            version = self.table.known(app) + 1
            listed = self._read_aborted()
            new = [each for each in failed if (each["producer_id"], each["epoch"]) not in listed]
            if not new:
                return 0
            shared = made.shared(self._pipeline, self._ledger.topic, self._ledger_id, last)
            try:
                self.table.append(
                    made.table(made.aborted(shared, each) for each in new), app, version
                )
            except OvertakenError:  # another process ended, too, and added rows
                continue
            return len(new)
        raise self._conflict_error()

    def _read_aborted(self) -> set[tuple[int, int]]:
        """Return producer id and epoch of each aborted attempt in the table.

        The query reads the snapshot of `known` or a newer one. If another process adds rows after
        the query, the commit fails, so no row is added twice.
        """
        ledger_id = self._ledger_id
        rows = self.table.query(
            "SELECT producer_id, epoch FROM transactions "  # noqa: S608 - names, which are plain
            f"WHERE pipeline = '{self._pipeline}' AND ledger_id = '{ledger_id}' "
            f"AND outcome = '{TransactionPhase.COMPLETE_ABORT.value}'"
        )
        return {(row["producer_id"], row["epoch"]) for row in rows}

    def _step(self, until: int, end: int, deadline: Deadline) -> tuple[ProjectionResult, bool]:
        """Add the next ledger records after offset `until` in one Delta commit.

        Return the result, and whether the table has all records below `end`.
        """
        for _ in range(_TRIES_MAX):
            first = max(until + 1, self._offset("earliest", deadline))
            chunk = self._read(first, end, deadline)
            records = chunk.records
            if not records:
                return ProjectionResult(until), True
            found = made.table(
                made.rows(self._pipeline, self._ledger.topic, self._ledger_id, records)
            )
            app = self._app(deadline)
            self.reached("audit_append:before")
            try:
                self.table.append(found, app, records[-1].offset)
            except OvertakenError:  # another process of this pipeline added rows
                until = self.table.known(app)
                continue
            self.reached("audit_append:after")
            reached = ProjectionResult(records[-1].offset, found.num_rows, range(until + 1, first))
            return reached, chunk.is_all
        raise self._conflict_error()

    def maintain(self, files_max: int) -> None:
        """Compact the table if the pipeline has `files_max` files in it or more, and delete unused
        files of both tables. So the cost of a commit and of a query does not grow with time."""
        if self.producers.table.file_count(self._pipeline) is not None:
            self.producers.table.clean()  # each commit leaves an unused file
        if self._files() < files_max:
            return
        self.table.compact(self._pipeline, FILE_BYTES)
        if self._files() >= files_max // 2:
            self.table.compact(self._pipeline)
        self.table.clean()

    def _files(self) -> int:
        return self.table.file_count(self._pipeline) or 0

    def _read(self, first: int, end: int, deadline: Deadline) -> LedgerChunk:
        """Return the first records of a range. Both tables usually need the same ones, so the last
        chunk is kept."""
        if self._chunk is not None:
            start, its_end, chunk = self._chunk
            left = [each for each in chunk.records if each.offset >= first]
            if start <= first and end == its_end and (left or chunk.is_all):
                return chunk._replace(records=left)
        chunk = self._read_chunk(first, end, deadline)
        self._chunk = first, end, chunk
        return chunk

    def _read_chunk(self, first: int, end: int, deadline: Deadline) -> LedgerChunk:
        """Read the records from `first` to `end` (exclusive): at most `RECORDS_MAX`, or fewer large
        ones.

        Raise for a record of another producer, unless an operator accepted it (`eos recover`).
        """
        found: list[LedgerRecord] = []
        markers: list[Marker] = []
        decided_until = 0
        is_all = False
        bytes_left = BYTES_MAX
        while (room := RECORDS_MAX - len(found)) > 0 and (bytes_left > 0 or not found):
            stored = self._client.read_records(
                *(self._ledger, first, end),
                committed=True,
                deadline=deadline,
                records_max=room,
                bytes_max=max(1, bytes_left),
                markers=markers,
            )
            size = sum(each.bytes for each in stored)
            for each in stored:
                try:
                    found.append(decoded(self._pipeline, self._ledger.topic, each))
                except PromiseBrokenError as error:
                    if error.code == "ledger_newer":
                        raise
                    if each.offset >= decided_until:
                        decided_until = self._decided_until(each.offset, deadline)
                    if each.offset >= decided_until:
                        raise
            is_all = len(stored) < room and size < max(1, bytes_left)
            if is_all:
                break
            bytes_left -= size
            first = stored[-1].offset + 1
        return LedgerChunk(found, _markers_of(found, markers), is_all)

    def _decided_until(self, offset: int, deadline: Deadline) -> int:
        ledger = Ledger(self._client, self._ledger.topic, self._pipeline, {}, skips_foreign=True)
        return ledger.decided_until(offset, deadline)

    def _app(self, deadline: Deadline) -> str:
        if not self._ledger_id:
            topic = self._ledger.topic
            self._ledger_id = self._client.topics([topic], deadline)[topic].topic_id
        return f"{self._pipeline}/{self._ledger_id}"

    def _offset(
        self, at: Literal["earliest", "latest"], deadline: Deadline, *, committed: bool = True
    ) -> int:
        tp = self._ledger
        return self._client.list_offsets([tp], at, committed=committed, deadline=deadline)[tp]

    def _conflict_error(self) -> UnavailableError:
        tries = _TRIES_MAX
        return UnavailableError(
            "audit_table_conflict",
            f"{self._pipeline}: {tries} commits to the audit table failed, because other processes "
            "wrote to it",
            hint="does another instance of this pipeline run? End it",
        )


def _markers_of(records: Sequence[LedgerRecord], markers: Sequence[Marker]) -> Mapping[int, Marker]:
    """Return the marker of each record by its offset: the next one of the same producer id."""
    found: dict[int, Marker] = {}
    following: dict[int, Marker] = {}
    left = sorted(markers, key=lambda each: each.offset)
    for record in reversed(records):
        while left and left[-1].offset > record.offset:
            marker = left.pop()
            following[marker.identity.producer_id] = marker
        if record.identity.producer_id in following:
            found[record.offset] = following[record.identity.producer_id]
    return found
