"""Brings the table up to the ledger, exactly once, wherever it was left.

The table says which ledger offset it has (under a name made of pipeline and ledger topic), the
ledger says what came since. Whatever dies in between, the next call finds both as they are: rows
and offset are one Delta commit. A topic that was made anew has another id, so another name, and is
read from its beginning; a table that was deleted is filled again from all that the ledger has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from eos.audit import rows as made
from eos.audit.table import OvertakenError, TransactionsTable
from eos.deadline import Deadline
from eos.errors import PromiseBrokenError, UnavailableError
from eos.transaction.ledger_record import Record, decoded
from eos.transaction.port import TopicPartition
from eos.transaction.wire import Wire

RECORDS_MAX = 500  # ledger records in one Delta commit: what bounds the memory for them
_TRIES_MAX = 10


@dataclass(frozen=True, slots=True)
class Reached:
    """`until`: the last ledger offset that the table has. `lost`: offsets of the ledger that were
    trimmed before the table had them, as a range; empty in all good cases. Not `is_settled`: a
    transaction is open on the ledger, or its marker on the way."""

    until: int
    rows: int = 0
    lost: range = range(0)
    is_settled: bool = True


class Projection:
    """Of one pipeline. Not shared between threads."""

    def __init__(self, table: TransactionsTable, wire: Wire, pipeline: str, ledger: str) -> None:
        self.table = table
        self._wire = wire
        self._pipeline = pipeline
        self._ledger = TopicPartition(ledger, 0)
        self._ledger_id = ""
        self.reached: Callable[[str], None] = lambda _point: None

    def catch_up(self, deadline: Deadline) -> Reached:
        """Returns when the table has all that was committed when this began."""
        end = self._offset("latest", deadline)
        is_settled = end == self._offset("latest", deadline, committed=False)
        found = Reached(self.table.known(self._app(deadline)))
        if end <= found.until:
            raise PromiseBrokenError(
                f"{self._pipeline}: the audit table has the ledger up to offset {found.until}, "
                f"but {self._ledger.topic!r} ends at {end}: what was committed there is gone",
                hint="an unclean leader election, or a restored broker? `eos recover "
                f"{self._pipeline}` shows what is left",
            )
        is_all = False
        while found.until < end - 1 and not is_all:
            if deadline.has_passed:
                return replace(found, is_settled=False)
            part, is_all = self._step(found.until, end, deadline)
            found = Reached(part.until, found.rows + part.rows, found.lost or part.lost)
        return replace(found, is_settled=is_settled)

    def end_with(self, failed: Sequence[Mapping[str, Any]], record: Record | None) -> int:
        """Attempts that were aborted and that no ledger record will tell of, since the run ends.
        Under a name of its own, whose version is the offset of the run's last record: each run
        has another one, since it begins with a record. Returns how many rows there are."""
        if not failed or record is None:
            return 0
        app = f"{self._app(Deadline.after_ms(0))}/ended"
        shared = {
            **next(iter(made.rows(self._pipeline, self._ledger.topic, self._ledger_id, [record]))),
        }
        keep = ("pipeline", "ledger", "ledger_id", "ledger_offset", "deployment", "host", "process")
        told = {name: shared[name] for name in (*keep, "schema_version")}
        if self.table.known(app) >= record.offset:
            return 0
        self.table.append(
            made.table(made.aborted(told, each) for each in failed), app, record.offset
        )
        return len(failed)

    def _step(self, until: int, end: int, deadline: Deadline) -> tuple[Reached, bool]:
        """One Delta commit, if there is something for one; and whether no more is left."""
        for _ in range(_TRIES_MAX):
            first = max(until + 1, self._offset("earliest", deadline))
            records = self.records(first, end, deadline)
            if not records:
                return Reached(until), True
            found = made.table(
                made.rows(self._pipeline, self._ledger.topic, self._ledger_id, records)
            )
            app = self._app(deadline)
            self.reached("audit_append:before")
            try:
                self.table.append(found, app, records[-1].offset)
            except OvertakenError:  # another process of this pipeline: it may have had the same
                until = self.table.known(app)
                continue
            self.reached("audit_append:after")
            reached = Reached(records[-1].offset, found.num_rows, range(until + 1, first))
            return reached, len(records) < RECORDS_MAX
        raise UnavailableError(
            f"{self._pipeline}: other processes wrote to the audit table {_TRIES_MAX} times in "
            "between",
            hint="does another copy of this pipeline run?",
        )

    def maintain(self, files_max: int) -> None:
        """Keeps what a commit and a look cost as it is, however many there were."""
        size = self.table.size(self._pipeline)
        if size is not None and size.files >= files_max:
            self.table.compact(self._pipeline)
            self.table.clean()

    def records(self, first: int, end: int, deadline: Deadline) -> list[Record]:
        stored = self._wire.read_records(
            self._ledger, first, end, committed=True, deadline=deadline, records_max=RECORDS_MAX
        )
        return [decoded(self._pipeline, self._ledger.topic, each) for each in stored]

    def _app(self, deadline: Deadline) -> str:
        if not self._ledger_id:
            topic = self._ledger.topic
            self._ledger_id = self._wire.topics([topic], deadline)[topic].topic_id
        return f"{self._pipeline}/{self._ledger_id}"

    def _offset(
        self, at: Literal["earliest", "latest"], deadline: Deadline, *, committed: bool = True
    ) -> int:
        tp = self._ledger
        return self._wire.list_offsets([tp], at, committed=committed, deadline=deadline)[tp]
