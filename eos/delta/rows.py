"""Rows and columns of a pipeline's last step that a Delta table gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.config.base import KAFKA_COLUMNS
from eos.delta.table import DELETES, TWICE, WITHOUT_KEY, TableLayout
from eos.errors import TransformError, UsageError
from eos.formats.expressions import quoted
from eos.plan.delta_sink import Table
from eos.seal import of_this_process
from eos.transform.sql import message_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_COORDINATES = {"topic": "string", "partition": "int", "offset": "bigint"}
_RANK, _SAME, _WANTED = "__eos_rank", "__eos_same", "__eos_wanted"


def rows_to_write(rows: DataFrame, table: Table) -> DataFrame:
    """Return the rows and columns that a table gets from the last step's rows.

    This only builds a plan. With `delete_when`, the column DELETES is added: it is true for rows
    that delete. If `rows` is a stream, only the schema of the result is valid.
    """
    columns = [quoted(name) for name in _columns(rows, table)]
    if table.delete_when:
        rows = _evaluated(rows, table, "delete_when", table.delete_when, DELETES)
        columns.append(f"coalesce({DELETES}, false) AS {DELETES}")
    if table.where:
        rows = _evaluated(rows, table, "where", table.where, _WANTED)
        # If `where` compares columns of the value, it is null for a tombstone, which has none.
        rows = rows.where(f"coalesce({_WANTED}, {DELETES})" if table.delete_when else _WANTED)
    if table.keys:
        rows = _last_of_each_key(rows, table)
    return rows.selectExpr(*columns)


def written_schema(rows: DataFrame, table: Table) -> StructType:
    """Return the schema of what is written. `rows` may be a stream."""
    return rows_to_write(rows, table).drop(DELETES).schema


def _evaluated(rows: DataFrame, table: Table, key: str, condition: str, name: str) -> DataFrame:
    """Return the rows with the result of a condition as the column `name`. `key` declares it."""
    from pyspark.errors import AnalysisException

    try:
        # On a line of its own, since it may end in a comment.
        found = rows.selectExpr("*", f"(\n{condition}\n) AS {name}")
        found.where(name)  # raises if the column is no boolean
        return found
    except AnalysisException as error:
        reason = message_of(error)
        raise TransformError(
            "sink_expression_invalid",
            f"the table {table.name}: {key}: {reason}",
            hint=f"`{key}` of a table is a condition on the columns of the last step",
        ) from error


def _columns(rows: DataFrame, table: Table) -> list[str]:
    present = {name.lower(): name for name in rows.columns}
    kafkas = {name.lower() for name in KAFKA_COLUMNS}
    found = [present[name] for name in present if name not in kafkas]
    if table.columns:
        found = [present.get(name.lower(), name) for name in table.columns]
    for name in (*found, *table.keys, *table.partition_by):
        if name.lower() not in present:
            raise TransformError(
                "sink_column_not_returned",
                f"the table {table.name} needs column `{name}`, which the last transform does not "
                f"return (it has {', '.join(rows.columns)})",
                hint="return it from the last step, or name other columns in the sink's "
                "`columns`, `keys` and `partition_by`",
            )
    listed = {name.lower() for name in found}
    for name in (*table.keys, *table.partition_by):
        if name.lower() not in listed:
            raise TransformError(
                "table_key_not_written",
                f"the table {table.name} has the key or partition `{name}`, but this column is "
                "from Kafka and is not written",
                hint="add it to `columns` of the table",
            )
    if not found:
        raise TransformError(
            "sink_columns_empty",
            f"the table {table.name}: the last transform returns only Kafka's columns",
            hint="read the source's value as json, or list `columns`",
        )
    return found


def _last_of_each_key(rows: DataFrame, table: Table) -> DataFrame:
    """Return one row for each key, as MERGE needs: the row of the last record.

    The order is by topic, partition and offset. Within a source partition that is the order in
    which the records were written. The job fails if the last record made several rows of one key,
    or deletes without a key.
    """
    kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    lacking = [name for name, kind in _COORDINATES.items() if kinds.get(name) != kind]
    if lacking:
        column = lacking[0]
        raise TransformError(
            "table_merge_unordered",
            f"the table {table.name} is merged by key, but the last transform does not return the "
            f"column `{column}` unchanged: the newest row of a key can't be determined",
            hint="return topic, partition and offset, too (`SELECT *` keeps them); they are "
            "written only if `columns` lists them",
        )
    if rows.isStreaming:  # streams allow no window functions, and only the schema is needed
        return rows
    keys = ", ".join(map(quoted, table.keys))
    order = ", ".join(f"{name} DESC" for name in _COORDINATES)
    within = f"PARTITION BY {keys}"
    ranked = rows.selectExpr(
        "*",
        f"rank() OVER ({within} ORDER BY {order}) AS {_RANK}",
        f"count(1) OVER ({within}, {', '.join(_COORDINATES)}) AS {_SAME}",
    )
    checks = [f"WHEN {_SAME} > 1 THEN {_raising(TWICE)}"]
    if table.delete_when:
        all_null = " AND ".join(f"{quoted(key)} IS NULL" for key in table.keys)
        checks.append(f"WHEN {DELETES} AND {all_null} THEN {_raising(WITHOUT_KEY)}")
    return ranked.where(f"{_RANK} = 1").where(f"CASE {' '.join(checks)} ELSE true END")


def _raising(problem: str) -> str:
    """Return SQL that fails the job at a row, and names the row's record."""
    opening = of_this_process().opening(problem)
    record = f"concat('{opening}', topic, '-', partition, ' at offset ', offset, ']')"
    return f"CAST(raise_error({record}) AS BOOLEAN)"


def require_fits(table: Table, schema: StructType, layout: TableLayout) -> None:
    """Raise UsageError if the rows' columns or the partitioning don't fit the table.

    A column of the table that the rows lack is no error; it becomes null."""
    known = {field.name.lower(): field.dataType.simpleString() for field in layout.schema.fields}
    where = f"the table {table.name} ({table.path})"
    required = tuple(name.lower() for name in table.partition_by)
    has = tuple(name.lower() for name in layout.partition_by)
    if required and required != has:
        present = ", ".join(layout.partition_by) or "nothing"
        declared = ", ".join(table.partition_by)
        raise UsageError(
            "table_partitioning",
            f"{where} is partitioned by {present}, but the pipeline file declares {declared}",
            hint="the partitions of a table can't change: correct `partition_by`, or write to "
            "another table",
        )
    for field in schema.fields:
        column, kind = field.name, field.dataType.simpleString()
        there = known.get(column.lower())
        if there is None and not table.evolves:
            raise UsageError(
                "table_column_missing",
                f"{where} has no column `{column}`, but the rows have it as {kind}",
                hint="set `evolve: true` to add it, or list the other columns in `columns`",
            )
        if there is not None and there != kind:
            raise UsageError(
                "table_column_type",
                f"{where} has column `{column}` as {there}, but the rows have it as {kind}",
                hint="cast it in the last step: the types of a table's columns never change",
            )
