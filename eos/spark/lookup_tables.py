"""Open the lookup tables that steps join, with each Delta table at one version per attempt.

An attempt looks up the newest version of each Delta table once, uses that version throughout, and
records it in the ledger. A pipeline with state does so once for each run. After a crash, a Delta
sink may have to write a committed micro-batch again. It then joins the same versions as the topics
did. Parquet and CSV files have no versions: a micro-batch joins the content that they have when it
is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from eos.errors import UnavailableError, UsageError
from eos.formats.expressions import literal, quoted
from eos.spark.delta_snapshot import newest_snapshot
from eos.transform.sql import message_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eos.plan.lookup import LookupTable
    from eos.plan.plan import Plan


def opened(plan: Plan, spark: SparkSession) -> dict[str, DataFrame]:
    """Return a DataFrame of each lookup table, with the declared columns. Reads no rows yet."""
    return {each.name: _open(each, spark) for each in plan.lookups}


def _open(each: LookupTable, spark: SparkSession) -> DataFrame:
    if each.kind == "delta":
        reader = spark.read.format("delta")
        if each.version is not None:
            reader = reader.option("versionAsOf", str(each.version))
        return reader.load(each.path).selectExpr(*map(quoted, _columns(each, spark)))
    if each.kind == "rows":
        kind = literal(f"ARRAY<STRUCT<{each.columns}>>")
        return spark.sql(f"SELECT inline(from_json({literal(each.rows)}, {kind}))")
    reader = spark.read.schema(each.columns)
    if each.kind == "parquet":
        return reader.parquet(each.path)
    # A line that does not fit the columns, or a header with other names, fails the micro-batch.
    reader = reader.option("mode", "FAILFAST").option("enforceSchema", "false")
    return reader.option("header", str(each.header).lower()).csv(each.path)


def pinned(plan: Plan, spark: SparkSession) -> Plan:
    """Return the plan with each Delta lookup table fixed at the version that is now the newest."""
    if not any(each.kind == "delta" for each in plan.lookups):
        return plan
    return at_versions(plan, {e.name: _newest(e, spark) for e in plan.lookups if e.kind == "delta"})


def versions(plan: Plan) -> Mapping[str, int]:
    """Return the version at which each Delta lookup table is read, for the ledger record."""
    return {each.name: each.version for each in plan.lookups if each.version is not None}


def at_versions(plan: Plan, versions: Mapping[str, int]) -> Plan:
    found = tuple(replace(each, version=versions.get(each.name)) for each in plan.lookups)
    return replace(plan, lookups=found)


def _newest(each: LookupTable, spark: SparkSession) -> int:
    try:
        found = newest_snapshot(spark, each.path)
    except Exception as error:
        reason = message_of(error)[:500]
        raise UnavailableError(
            "lookup_version_unreadable",
            f"the table {each.name} ({each.path}) can't be read: {reason}",
            hint="check that its storage is reachable and that this user may read it, then start "
            "again",
        ) from error
    if found is None:
        raise UsageError(
            "lookup_not_delta",
            f"the table {each.name} ({each.path}) is not a Delta table",
            hint="correct its path, which starts at the folder that contains pipelines/; declare "
            "files under `parquet` or `csv`",
        )
    return found.version


def require(plan: Plan, spark: SparkSession) -> None:
    """Raise UsageError if a lookup table lacks a declared column, or has it with another type.

    Call this before older instances of the pipeline are fenced. Without this check, a column that a
    Parquet file lacks would be null without an error.
    """
    for each in plan.lookups:
        label = f"the table {each.name} ({each.path})"
        try:
            plain = _open(each, spark) if each.kind == "csv" else _plain(each, spark)
            has = {field.name.lower(): field.dataType.simpleString() for field in plain.schema}
            required = _columns(each, spark)
        except Exception as error:
            reason = message_of(error)[:500]
            raise UsageError(
                "lookup_table_unreadable",
                f"{label} can't be read as {each.kind}: {reason}",
                hint="correct the path; a relative one starts at the folder that contains "
                "pipelines/",
            ) from error
        for name, kind in required.items():
            actual = has.get(name.lower())
            if actual is None:
                raise UsageError(
                    "lookup_column_missing",
                    f"{label} has no column `{name}`, but `columns` declares it as {kind}",
                    hint="correct `columns` of this table in the pipeline file, or the table",
                )
            if actual != kind:
                raise UsageError(
                    "lookup_column_type",
                    f"{label} has column `{name}` as {actual}, but `columns` declares it as {kind}",
                    hint="correct `columns` of this table in the pipeline file, or the table",
                )


def _plain(each: LookupTable, spark: SparkSession) -> DataFrame:
    return spark.read.format(each.kind).load(each.path)


def _columns(each: LookupTable, spark: SparkSession) -> dict[str, str]:
    schema = spark.createDataFrame([], each.columns).schema
    return {field.name: field.dataType.simpleString() for field in schema.fields}
