"""How does each committed micro-batch get into the Delta tables, also after a crash?

A table can't be part of Kafka's transaction. So it is written after the transaction has committed,
and before the next micro-batch begins. The write's version in the table's log is the offset of the
ledger's record. After a crash, the startup compares the two numbers. If the table lacks the write,
the startup reads the source ranges of that record again, and the same steps produce the same rows.

An attempt's ledger record also has the tables' state at its beginning (`Position.tables`). So a
table that only lacks that attempt can be distinguished from a deleted, restored or replaced one.
A RESTORE does not change the number in the table's log. It is only visible in the table's history
since the version in the ledger (`delta/history.py`). The history is checked at startup, and before
and after each write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from eos.checkpoint.files import files_for
from eos.deadline import Deadline
from eos.delta import table as delta
from eos.delta import table_check
from eos.delta.log import DeltaLog
from eos.delta.rows import require_fits, rows_to_write, written_schema
from eos.delta.table_status import TableStatus, table_status
from eos.errors import (
    EosError,
    PromiseBrokenError,
    TransformError,
    UnavailableError,
    UsageError,
    about,
)
from eos.faults import CrashPlan
from eos.ledger.ledger import Ledger
from eos.ledger.record import Ends, LedgerRecord, Position, TableState, flat
from eos.observe import events
from eos.observe.bus import Bus
from eos.plan.delta_sink import Table, app_of
from eos.plan.plan import Plan
from eos.startup.source_state import LiveSource
from eos.transaction.micro_batch import STEP_TIMEOUT_MS
from eos.transform.nondeterminism import unstable
from eos.transform.sql import message_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TablesInLedger:
    """The part of the ledger about Delta tables: topic id, last position and newest attempt."""

    ledger_id: str
    position: Position
    newest: LedgerRecord | None


class DeltaSinks:
    """The Delta tables of one run."""

    def __init__(self, planned: Plan, spark: SparkSession, bus: Bus, crash: CrashPlan) -> None:
        self._planned = planned
        self._spark = spark
        self._bus = bus
        self._crash = crash
        self._ledger_id = ""  # known once the ledger exists
        self._schemas: dict[str, StructType] = {}
        self.is_behind = False  # whether a table lacks a committed micro-batch

    def app(self, table: Table) -> str:
        return app_of(self._planned.names, self._ledger_id, table.name)

    # --- before the fence

    def check(self, stream: DataFrame) -> None:
        """Raise if the rows could not be written to the tables. Called before the fence, so that a
        run that can't write stops no other copy.

        `stream` has the last step's rows. Only its plan is used.
        """
        self._require_stateless()
        for table in self._planned.tables:
            self._view_stream(table, stream)
        changing = unstable(stream)
        if changing:
            used = ", ".join(changing)
            message = f"the steps use {used}: evaluated again, they give the tables other values"
            self._bus.emit(events.Warned(f"{message} than the topics"))

    def _require_stateless(self) -> None:
        if self._planned.is_stateful:
            raise TransformError(
                "table_with_stateful_steps",
                "the sink has Delta tables, but the transforms keep state: a micro-batch can't be "
                "computed again after a crash, since Spark may have replaced its state",
                hint="fill the table by a second pipeline, from the topic that this one writes",
            )

    def _view_stream(self, table: Table, stream: DataFrame) -> delta.TableView | None:
        self._schemas[table.name] = schema = written_schema(stream, table)
        view = self._view(table)
        if view is not None:
            require_fits(table, schema, self._read(delta.read_layout, table))
        return view

    def predict_table(self, table: Table, stream: DataFrame, known: TablesInLedger | None) -> str:
        """Return a text on what the next run would do with one table. Raise if it would stop.

        Writes nothing. Since nothing is fenced, a running copy may change the table meanwhile.
        `known` is the ledger's state, or None if there is no ledger.
        """
        self._require_stateless()
        self._ledger_id = known.ledger_id if known is not None else ""
        view = self._view_stream(table, stream)
        name = f"{table.name} ({table.path})"
        before = known.position.tables.get(table.name) if known is not None else None
        if known is None or before is None:
            return f"{name} is used as it is" if view else f"{name}: the first start creates it"
        _, status = self._compare(table, before, known.newest)
        if status is TableStatus.OWED:
            return f"{name} lacks the last micro-batch, which the next run writes first"
        return f"{name} has all committed micro-batches"

    # --- at startup, after the fence

    def settle(
        self,
        ledger: Ledger,
        ledger_id: str,
        position: Position,
        last: LedgerRecord | None,
        source: LiveSource,
        rows: Callable[[Ends, Ends, Mapping[str, Any]], DataFrame],
    ) -> Mapping[str, TableState]:
        """Write the committed rows that tables lack, and return the state of every table.

        `rows` returns the last step's rows of a range of the source, as the given attempt had them.
        """
        self._ledger_id = ledger_id
        newest = newest_attempt(ledger) if position.tables else None
        found: dict[str, TableState] = {}
        lacking: list[Table] = []
        for table in self._planned.tables:
            known = position.tables.get(table.name)
            if known is None:
                found[table.name] = self._adopt(table, last)
                continue
            found[table.name], status = self._compare(table, known, newest)
            if status is TableStatus.OWED:
                lacking.append(table)
        for name in position.tables.keys() - found.keys():
            self._bus.emit(events.Warned(_removed_table(name, position.tables[name], newest)))
        if lacking:
            assert newest is not None, "a table can lack only an attempt"
            starts, ends = self._lacking_ranges(lacking, newest, position, source)
            frame = self._recompute(partial(rows, starts, ends), newest, lacking)
            found |= self._write(frame, lacking, newest.offset, found, "caught_up")
        return found

    def _recompute(
        self,
        rows: Callable[[Mapping[str, Any]], DataFrame],
        newest: LedgerRecord,
        lacking: Sequence[Table],
    ) -> DataFrame:
        """Return the newest attempt's rows again. Raise PromiseBrokenError if they would differ."""
        from pyspark.errors import AnalysisException

        assert newest.attempt is not None, "a table can lack only an attempt"
        try:
            return rows(newest.attempt)
        except (AnalysisException, PromiseBrokenError) as error:
            lost = error.message if isinstance(error, EosError) else message_of(error)[:300]
            reads = newest.attempt.get("reads", {}).items()
            read = ", ".join(f"version {at} of {name}" for name, at in reads)
            lost = f"{lost} (it was joined with {read})" if read else lost
            raise self._gap(lacking, newest, lost) from error

    def _adopt(self, table: Table, last: LedgerRecord | None) -> TableState:
        """Begin to write a table that the ledger does not have yet, and return its state.

        Existing rows are kept, and earlier micro-batches are not added. An empty commit records
        the start in the table's log, and creates an absent table.
        """
        at = last.offset if last else 0
        name = f"{self._name}: the table {table.name} ({table.path})"
        view = self._view(table)
        if view is not None and view.at > at:
            raise table_check.ahead(self._name, table, view.at, at)
        try:
            delta.create(self._spark, table, self._schemas[table.name], self.app(table), at)
        except Exception as error:
            reason = message_of(error)[:500]
            raise UnavailableError(
                "table_create_failed",
                f"{name} can't be created: {reason}",
                hint="may this user write there, and does Delta support the types of the columns?",
            ) from error
        view = self._view(table)
        if view is None or view.at != at:
            raise UnavailableError(
                "table_create_conflict",
                f"{name} changed right after it was created",
                hint="does another program create or restore it? Stop it, then start again",
            )
        return TableState(view.id, at, view.version)

    def _compare(
        self, table: Table, known: TableState, newest: LedgerRecord | None
    ) -> tuple[TableState, TableStatus]:
        """Return the table's state, and whether it has the newest attempt. Raise
        PromiseBrokenError if it lacks more than that, or has more than the ledger."""
        now = self._view_complete(table, known)
        status = table_status(known.at, now.at, -1 if newest is None else newest.offset)
        if status is TableStatus.AHEAD:
            raise table_check.ahead(self._name, table, now.at, known.at)
        if status is TableStatus.COMPLETE and now.at > known.at:
            self._bus.emit(events.TableFollowed(table.name, "skipped", now.at, was=now.at))
        return now, status

    def _view_complete(self, table: Table, known: TableState) -> TableState:
        """Return the table's state. Raise PromiseBrokenError if it was recreated, or if it lacks
        rows that the pipeline wrote."""
        view = self._view(table)
        if view is None or view.id != known.id:
            raise table_check.replaced(self._name, table, known, view.id if view else None)
        if view.at < known.at:
            raise table_check.table_behind(self._name, table, view.at, known.at)
        return self._require_complete(table, known, view)

    def _require_complete(
        self, table: Table, known: TableState, view: delta.TableView
    ) -> TableState:
        log = DeltaLog(files_for(table.path, self._spark), table.path, self.app(table))
        try:
            last = table_check.require_complete(self._name, table, log, known, view.version)
        except UnavailableError as error:
            raise about(self._name, error) from error
        return TableState(view.id, view.at, view.version, last.rows, last.sha256)

    def _lacking_ranges(
        self, lacking: Sequence[Table], newest: LedgerRecord, position: Position, source: LiveSource
    ) -> tuple[Ends, Ends]:
        """Return the source ranges that the attempt read. Raise PromiseBrokenError if the source
        no longer has all of them."""
        assert newest.attempt is not None, "a table can lack only an attempt"
        then = flat(newest.attempt["starts"])
        starts = {tp: start for tp, start in then.items() if start < newest.position.ends[tp]}
        ends = {tp: newest.position.ends[tp] for tp in starts}
        before, ids = newest.position.topic_ids, position.topic_ids
        same = {tp for tp in starts if before.get(tp.topic) == ids.get(tp.topic)}
        lost = [
            f"all of {tp.topic}-{tp.partition}, whose topic was recreated or forgotten"
            for tp in sorted(starts.keys() - same)
        ]
        earliest = source.earliest(same)
        for tp in sorted(same):
            if earliest[tp] > starts[tp]:
                problem = f"{tp.topic}-{tp.partition} begins at offset {earliest[tp]}"
                lost.append(f"{problem}, but {starts[tp]} to {ends[tp] - 1} are needed")
        if lost:
            raise self._gap(lacking, newest, "; ".join(lost))
        return starts, ends

    def _gap(self, lacking: Sequence[Table], newest: LedgerRecord, lost: str) -> PromiseBrokenError:
        name, before = self._planned.names.pipeline, newest.position.tables
        tables = ", ".join(f"{each.name} has record {before[each.name].at}" for each in lacking)
        commands = " and ".join(f"`eos recover {name} --accept-table {e.name}`" for e in lacking)
        return PromiseBrokenError(
            "table_gap",
            f"{name}: the ledger's record {newest.offset} (micro-batch {newest.position.batch_id}) "
            f"is committed, but the table {tables}: the missing rows can't be read again: {lost}",
            hint=f"nothing was skipped; run {commands} to continue without these rows: the ledger "
            "records that they are missing",
            pipeline=name,
            tables=",".join(each.name for each in lacking),
            ledger=newest.offset,
        )

    # --- after a transaction

    def follow(
        self, frame: DataFrame, offset: int, before: Mapping[str, TableState]
    ) -> Mapping[str, TableState]:
        """Write the rows of a committed attempt, and return the tables' state. `offset` is that of
        its ledger record."""
        self._crash.reached("tables:before")
        found = self._write(frame, self._planned.tables, offset, before, "written")
        self.is_behind = False
        return found

    def skipped(self, tables: Mapping[str, TableState]) -> None:
        """Report that a committed micro-batch, which Spark runs again, is in the tables already."""
        for table in self._planned.tables:
            view, at = self._view(table), tables[table.name].at
            was = -1 if view is None else view.at
            self._bus.emit(events.TableFollowed(table.name, "skipped", at, was))

    def _write(
        self,
        frame: DataFrame,
        tables: Sequence[Table],
        offset: int,
        before: Mapping[str, TableState],
        became: str,
    ) -> dict[str, TableState]:
        """Write the rows to the tables. Spark evaluates the rows once, also for several tables."""
        found: dict[str, TableState] = {}
        cached = frame.persist() if len(tables) > 1 else frame
        try:
            for table in tables:
                started = time.monotonic()
                known = self._view_complete(table, before[table.name])
                try:
                    view = delta.write(rows_to_write(cached, table), table, self.app(table), offset)
                except EosError as error:
                    raise about(self._planned.names.pipeline, error) from error
                if view.at != offset:
                    raise table_check.fenced(self._name, table, view.at, offset)
                # Another program may have run a RESTORE between the first check and the write.
                found[table.name] = self._require_complete(table, known, view)
                if became == "written":
                    self._crash.reached("tables:after")  # once per table
                ms = (time.monotonic() - started) * 1000
                was = before[table.name].at
                self._bus.emit(events.TableFollowed(table.name, became, offset, was, ms))
        finally:
            if len(tables) > 1:
                cached.unpersist()
        return found

    def require_even(self) -> None:
        """Raise UnavailableError if a table lacks the previous micro-batch.

        Spark ends a query after a failed write. If Spark continued, the table would lose rows.
        """
        if self.is_behind:
            raise UnavailableError(
                "table_incomplete",
                f"{self._planned.names.pipeline}: a Delta table lacks the previous micro-batch",
                hint="start again: the missing rows are written first",
            )

    def _view(self, table: Table) -> delta.TableView | None:
        return self._read(partial(delta.view_table, app=self.app(table)), table)

    def _read(self, read: Callable[[SparkSession, Table], T], table: Table) -> T:
        try:
            return read(self._spark, table)
        except EosError as error:
            raise about(self._planned.names.pipeline, error) from error

    @property
    def _name(self) -> str:
        return self._planned.names.pipeline


def open_delta_sinks(
    planned: Plan, spark: SparkSession, bus: Bus, crash: CrashPlan
) -> DeltaSinks | None:
    """Return the Delta tables of a run, or None if the pipeline has none."""
    if not planned.tables:
        return None
    if delta.EXTENSION not in str(spark.conf.get("spark.sql.extensions", "")):
        raise UsageError(
            "delta_not_loaded",
            f"{planned.names.pipeline}: the sink has Delta tables, but Spark was started without "
            "Delta",
            hint="start it with `eos run` or ./spark-submit.sh, which add Delta's jars and "
            f"settings, or set spark.sql.extensions={delta.EXTENSION} and add the jars",
        )
    return DeltaSinks(planned, spark, bus, crash)


def warn_removed_tables(position: Position, bus: Bus) -> None:
    """Warn for each table in the ledger, if the pipeline file has no table any more."""
    for name, known in position.tables.items():
        bus.emit(events.Warned(_removed_table(name, known, None)))


def newest_attempt(ledger: Ledger) -> LedgerRecord | None:
    """Return the ledger's newest attempt. Records of other kinds may be newer."""
    deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
    found = (each for each in ledger.newest_first(deadline) if each.attempt is not None)
    return next(found, None)


def _removed_table(name: str, known: TableState, newest: LedgerRecord | None) -> str:
    message = f"the table {name} was removed from the sink: it ends with record {known.at}"
    if newest is not None and newest.offset > known.at:
        return f"{message}, and may lack the attempt of record {newest.offset}"
    return message
