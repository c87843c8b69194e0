"""Decide whether Python tasks can run a pipeline's SQL steps on Arrow columns, without the JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from eos.config.base import KAFKA_COLUMNS
from eos.errors import EosError
from eos.formats.expressions import Format, quoted
from eos.formats.json_text import KINDS
from eos.spark.arrow_source import COLUMNS, SPARK_SCHEMA
from eos.spark.catalyst import translated
from eos.spark.catalyst_expressions import Node, UntranslatableError
from eos.spark.fused_step import parsed
from eos.spark.python_plan import python_plan
from eos.spark.sink_columns import sink_columns
from eos.transform.arrow_expression import Expression
from eos.transform.arrow_steps import ArrowSteps, OutputColumn, Projection, ReadColumn
from eos.transform.functions import apply

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from eos.plan.outputs import Outputs
    from eos.plan.plan import Plan
    from eos.spark.json_parsers import JsonParsing

# The range of numbers that marks the source in Spark's plan. No user's plan has this one.
_MARK = 0x656F735F73746570


def described(plan: Plan, spark: SparkSession, parsing: JsonParsing) -> str:
    """Return the end of a sentence about the Arrow reader: "; Python tasks run the steps", or that
    Spark runs them, and why. It is empty if there are no steps."""
    if python_plan(plan, spark, parsed(SPARK_SCHEMA)) is not None:
        return "; Python tasks run the step" if plan.transforms else ""
    found = arrow_steps(plan, spark, parsing)
    if isinstance(found, ArrowSteps):
        return "; Python tasks run the steps"
    return f"; Spark runs the steps, since {found}"


def arrow_steps(plan: Plan, spark: SparkSession, parsing: JsonParsing) -> ArrowSteps | str:
    """Return the steps for Python tasks, or why only Spark can run them.

    The steps are built anew for each attempt, since the user's functions may return another plan
    each time."""
    reason = _only_spark(plan)
    if reason:
        return reason
    try:
        return _steps(plan, spark, parsing)
    except UntranslatableError as error:
        return str(error)
    except EosError:  # Spark's own way meets the same error, and reports it
        return "they have an error"
    except Exception as error:  # noqa: BLE001 - whatever a later Spark changes, Spark can run it
        return f"their plan has an unknown form ({error!r})"


def _only_spark(plan: Plan) -> str:
    if plan.is_stateful:
        return "a step keeps state"
    if plan.tables:
        return "a Delta table is written"
    if plan.lookups:
        return "steps join tables"
    if plan.decode.distinct is not None or (plan.dedup is not None and plan.dedup.needs_sql):
        return "dedup reads columns"
    return ""


def _steps(plan: Plan, spark: SparkSession, parsing: JsonParsing) -> ArrowSteps:
    columns = list(_decoded(plan, parsing))
    schema = ", ".join(f"{quoted(name)} {kind}" for name, kind, _ in columns)
    source = spark.range(_MARK, _MARK + 1, 1, 1).mapInArrow(_never, parsed(schema))
    rules = _rules(plan, source)
    rows = sink_columns(apply(source, plan.transforms), plan, has_structs=True)
    found = translated(rows, _is_source)
    needed = found.needed.union(*(each.columns for each in rules))
    read = {number: how for number, (_, _, how) in zip(found.source, columns, strict=True)}
    # A text that nothing reads is checked all the same: a record is malformed if it is not UTF-8.
    return ArrowSteps(
        {number: how for number, how in read.items() if number in needed or how.kind == "text"},
        parsing.parsers,
        rules,
        found.steps,
        tuple(_outputs(found.result, plan.outputs)),
    )


def _decoded(plan: Plan, parsing: JsonParsing) -> Iterator[tuple[str, str, ReadColumn]]:
    """Yield the columns of decoded records, in the order of `Decode.apply`: name, Spark type, and
    how a task reads it."""
    formats = {"key": plan.decode.key, "value": plan.decode.value}
    for name in KAFKA_COLUMNS:
        is_text = name in formats and formats[name].kind == "string"
        kind = "STRING" if is_text else COLUMNS[name]
        yield name, kind, ReadColumn("text" if is_text else "kafka", name)
    for name, each in formats.items():
        if each.kind == "json":
            yield from _parsed(name, each, parsing)
        elif each.kind not in ("binary", "string"):
            raise UntranslatableError(f"{each.kind} {name}s are parsed by Spark")


def _parsed(name: str, each: Format, parsing: JsonParsing) -> Iterator[tuple[str, str, ReadColumn]]:
    parser = next((found for found in parsing.parsers if found.source == name), None)
    if parser is None:
        raise UntranslatableError(f"JSON {name}s are parsed by Spark")
    if each.column:
        raise UntranslatableError(f"the JSON {name} becomes one column")
    for number, field in enumerate(parser.fields):
        yield field.name, field.kind, ReadColumn("json", name, number)


def _rules(plan: Plan, source: DataFrame) -> tuple[Expression, ...]:
    """Return the conditions of `expect`."""
    if not plan.decode.rules:
        return ()
    texts = [f"(\n{each.condition}\n) AS rule" for each in plan.decode.rules]
    found = translated(source.selectExpr(*texts), _is_source)
    (step,) = found.steps
    assert isinstance(step, Projection), "rules are selected"
    by_number = dict(step.computed)
    return tuple(
        by_number.get(number, Expression("column", value=number, kind=kind))
        for _, number, kind in found.result
    )


def _outputs(result: Iterable[tuple[str, int, str]], outputs: Outputs) -> Iterator[OutputColumn]:
    for name, number, kind in result:
        output = outputs.columns.get(name)
        if output is None or output.kind != "json":
            yield OutputColumn(name, number)
            continue
        others = set(kind.split(":")[1:]) - set(KINDS)
        if others:
            raise UntranslatableError(f"JSON with the type {min(others)} is written by Spark")
        yield OutputColumn(name, number, output.frame)


def _is_source(node: Node) -> bool:
    """Return whether a node of Spark's plan is the source of `_steps`."""
    if node.name != "MapInArrow":
        return False
    (tasks,) = node.inputs
    return tasks.name == "Range" and tasks.fields["start"] == _MARK


def _never(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    raise AssertionError("this plan is only translated")
