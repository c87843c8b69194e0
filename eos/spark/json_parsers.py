"""Decide whether the tasks that read Kafka parse its JSON, or Spark's `from_json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.formats.json_columns import JsonParser
from eos.formats.json_schema import json_fields
from eos.spark.fused_step import parsed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eos.formats.expressions import Format
    from eos.plan.plan import Plan

_TIME_RULES = "spark.sql.legacy.timeParserPolicy"
_PRESENT_RULES = "CORRECTED"


@dataclass(frozen=True, slots=True)
class JsonParsing:
    """The parsers of a plan's JSON keys and values, and why Spark has to parse others."""

    parsers: tuple[JsonParser, ...] = ()
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the end of a sentence about the Arrow reader: what it parses, too."""
        found = [f" and parses their JSON {each.source}s" for each in self.parsers]
        return "".join([*found, *(f"; {reason}" for reason in self.reasons)])


def json_parsing(plan: Plan, spark: SparkSession) -> JsonParsing:
    """Return which JSON of the source the Arrow reader parses, and why not the rest."""
    parsers, reasons = [], []
    for source, each in (("key", plan.decode.key), ("value", plan.decode.value)):
        if each.kind != "json":
            continue
        found = _parser(source, each, plan, spark)
        if isinstance(found, JsonParser):
            parsers.append(found)
        else:
            reasons.append(f"Spark parses the JSON {source}s, since {found}")
    return JsonParsing(tuple(parsers), tuple(reasons))


def _parser(source: str, each: Format, plan: Plan, spark: SparkSession) -> JsonParser | str:
    if plan.dedup is not None and plan.dedup.needs_sql:
        return "dedup validates the records first, in SQL"
    if each.subject:
        return "a schema id is before each of them"
    if each.is_event:
        return "they are change events"
    has_old_times = str(spark.conf.get(_TIME_RULES, _PRESENT_RULES)).upper() != _PRESENT_RULES
    schema = parsed(each.schema)
    fields = json_fields(schema.fields, each.required, has_old_times=has_old_times)
    if isinstance(fields, str):
        return fields
    if tuple(field.name for field in fields) != each.columns:
        return "Spark reads other columns in their schema"
    return JsonParser(source, fields)
