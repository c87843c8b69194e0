"""How is the state of a Delta table read, and how is a micro-batch written to it exactly once?

Only this module uses `delta`, the Python package of Delta's library for Spark; what it lacks is in
`spark/delta_snapshot.py`. A Delta commit may carry an application id and a version of that
application. The library skips a write if the table has that version, or a higher
one, already. It rejects a write that conflicts with another write of the same application. So a
micro-batch that is written twice, or by two processes at once, is in the table once. The session
needs Delta's jars and settings (`launch/spark.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.errors import EosError, PromiseBrokenError, UnavailableError
from eos.formats.expressions import quoted
from eos.plan.delta_sink import Table
from eos.seal import crossed, of_this_process
from eos.spark.delta_snapshot import newest_snapshot
from eos.spark.failure import Failure
from eos.transform.sql import message_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
TRIES_MAX = 5  # tries to write, if another writer or OPTIMIZE commits first
_PAUSE_S = 0.5
_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_FORGETS = "delta.setTransactionRetentionDuration"
# Conditions of an error that a new look at the table may fix: another writer was faster.
_CONFLICT = (
    "DELTA_CONCURRENT",
    "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
)
_CONFLICTS = {"ConcurrentAppendException", "ConcurrentTransactionException"}
# Error conditions that a restart does not fix: the rows or the table must change.
_FINAL = (
    "DELTA_VIOLATE",
    "DELTA_NOT_NULL",
    "DELTA_METADATA_MISMATCH",
    "DELTA_FAILED_TO_MERGE_FIELDS",
    "DELTA_MULTIPLE_SOURCE_ROW",
    "DELTA_SCHEMA",
    "DELTA_MERGE_UNRESOLVED",
    "UNRESOLVED_COLUMN",
    "EXCEED_CHAR_VARCHAR_LENGTH",
)
# Problems of a merge, which its job raises.
TWICE, WITHOUT_KEY = "merged-twice", "deleted-without-key"
DELETES = "__eos_deletes"  # in rows of a merge with `delete_when`: whether the row deletes


@dataclass(frozen=True, slots=True)
class TableView:
    """The state of a Delta table at its newest version.

    `at` is the offset of the ledger record that the pipeline wrote last, from the table's log; -1
    if the pipeline never wrote. `version` is Delta's version of the table.
    """

    id: str
    at: int
    version: int


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The columns and the partitioning of a Delta table at its newest version."""

    schema: StructType
    partition_by: tuple[str, ...]


def view_table(spark: SparkSession, table: Table, app: str) -> TableView | None:
    """Return the state of a Delta table; None if there is no table at its path.

    Raise PromiseBrokenError if the table is configured to forget application versions.
    """
    try:
        snapshot = newest_snapshot(spark, table.path)
        if snapshot is None:
            return None
        if snapshot.has_property(_FORGETS):
            raise PromiseBrokenError(
                "table_forgets",
                f"the table {table.name} ({table.path}) has the property {_FORGETS}: after that "
                "time the table forgets which micro-batches it has",
                hint=f"run ALTER TABLE delta.`{table.path}` UNSET TBLPROPERTIES ('{_FORGETS}')",
                table=table.name,
            )
        return TableView(snapshot.table_id, snapshot.last_write(app), snapshot.version)
    except EosError:
        raise
    except Exception as error:
        raise _error_of(table, "can't be read", error) from error


def read_layout(spark: SparkSession, table: Table) -> TableLayout:
    """Return the columns and the partitioning of a Delta table. It runs Spark jobs."""
    from delta.tables import DeltaTable

    try:
        found = DeltaTable.forPath(spark, table.path)
        (details,) = found.detail().select("partitionColumns").collect()
        return TableLayout(found.toDF().schema, tuple(details.partitionColumns))
    except Exception as error:
        raise _error_of(table, "can't be read", error) from error


def create(spark: SparkSession, table: Table, schema: StructType, app: str, version: int) -> None:
    """Commit an empty write with this application version; it creates an absent table."""
    _append(spark.createDataFrame([], schema), table, app, version)


def write(rows: DataFrame, table: Table, app: str, version: int) -> TableView:
    """Write one micro-batch and return the table's state after that.

    Delta drops the write if the table already has `version` of the application `app`."""
    for number in range(1, TRIES_MAX + 1):
        try:
            if table.keys:
                _merge(rows, table, app, version)
            else:
                _append(rows, table, app, version)
            break
        except Exception as error:
            if number == TRIES_MAX or not _is_conflict(Failure.of(error)):
                raise _error_of(table, "could not be written", error) from error
            time.sleep(_PAUSE_S * number)  # nothing signals that the other writer is done
    view = view_table(rows.sparkSession, table, app)
    if view is None:
        raise UnavailableError(
            "table_removed",
            f"the table {table.name} ({table.path}) is missing after a write",
            hint="did another program delete it? Restore it and start again, or run `eos recover "
            f"PIPELINE --accept-table {table.name}`",
        )
    return view


def _append(rows: DataFrame, table: Table, app: str, version: int) -> None:
    writer = rows.write.format("delta").mode("append")
    writer = writer.option("txnAppId", app).option("txnVersion", str(version))
    if table.partition_by:
        writer = writer.partitionBy(*table.partition_by)
    if table.evolves:
        writer = writer.option("mergeSchema", "true")
    writer.save(table.path)


def _merge(rows: DataFrame, table: Table, app: str, version: int) -> None:
    """Merge the rows into the table by key: each row updates, inserts or deletes.

    Null keys are equal to each other: with `=`, rows with a null key would never match, and each
    merge would insert another one.
    """
    from delta.tables import DeltaTable

    spark = rows.sparkSession
    keys = {quoted(key).lower() for key in table.keys}
    columns = [quoted(name) for name in rows.columns if name != DELETES]
    values: dict[str, str | Column] = {name: f"s.{name}" for name in columns}
    rest = {name: value for name, value in values.items() if name.lower() not in keys}
    on = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in table.keys)
    merge = DeltaTable.forPath(spark, table.path).alias("t").merge(rows.alias("s"), on)
    if table.evolves:
        merge = merge.withSchemaEvolution()
    if table.delete_when:
        merge = merge.whenMatchedDelete(f"s.{DELETES}")
    if rest:
        merge = merge.whenMatchedUpdate(set=rest)
    if table.delete_when:
        merge = merge.whenNotMatchedInsert(f"NOT s.{DELETES}", values)
    else:
        merge = merge.whenNotMatchedInsert(values=values)
    spark.conf.set(_APP, app)  # the builder has no options
    spark.conf.set(_VERSION, str(version))
    try:
        merge.execute()
    finally:
        spark.conf.unset(_APP)
        spark.conf.unset(_VERSION)


def _error_of(table: Table, problem: str, error: Exception) -> EosError:
    failure = Failure.of(error)
    found = crossed(failure.text)
    if found is not None:
        return found
    name = f"the table {table.name} ({table.path}) {problem}"
    at = of_this_process().raised(TWICE, failure.raised)
    if at is not None:
        return PromiseBrokenError(
            "table_refuses",
            f"{name}: several rows that were made of one record ({at}) have the same keys",
            hint="the last one of them can't be determined: choose `keys` that differ, or keep one "
            "of these rows in a step; then start again",
            table=table.name,
        )
    at = of_this_process().raised(WITHOUT_KEY, failure.raised)
    if at is not None:
        return PromiseBrokenError(
            "table_refuses",
            f"{name}: the record {at} deletes, but all of its `keys` are null",
            hint="a tombstone has only its key: read it by the source's `key`, and return its "
            "columns from the last step; or drop such records by `where`; then start again",
            table=table.name,
        )
    if failure.condition(*_FINAL):
        return PromiseBrokenError(
            "table_refuses",
            f"{name}: {_cause(failure, error)}",
            hint="the topics have this micro-batch, and the next run writes it to the table: "
            "change the table or the steps, then start again",
            table=table.name,
        )
    return UnavailableError(
        "table_unavailable",
        f"{name}: {_cause(failure, error)}",
        hint="start again: the rows that the topics have and the table lacks are written first",
    )


def _is_conflict(failure: Failure) -> bool:
    is_named = failure.first(lambda link: link.name in _CONFLICTS) is not None
    return is_named or failure.condition(*_CONFLICT) is not None


def _cause(failure: Failure, error: Exception) -> str:
    """Return Delta's own message, or that of the outermost exception; at most 500 characters."""
    found = failure.condition("DELTA_")
    if found is None and failure.links:
        first = failure.links[0]
        return f"{first.kind}: {first.line}"[:500]
    return (found.line if found else message_of(error))[:500]
