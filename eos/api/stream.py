"""The records of Kafka topics, and the steps that they pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from eos.api.formats import AnyFormat, declared
from eos.api.kafka import Kafka
from eos.api.steps import Step, checked
from eos.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Answer = Literal["fail", "dead_letter", "drop"]
Start = str | Mapping[str, Any]


def read_kafka(
    spark: SparkSession,
    topic: str | None = None,
    *,
    kafka: Kafka,
    topics: Sequence[str] = (),
    pattern: str | None = None,
    start: Start = "earliest",
    key: AnyFormat = "binary",
    value: AnyFormat = "binary",
    on_error: Answer = "fail",
    max_records: int | None = None,
    max_bytes: str | int | None = None,
    min_records: int | None = None,
    max_delay: str | None = None,
    min_partitions: int | None = None,
    reader: Literal["auto", "arrow", "spark"] = "auto",
) -> Stream:
    """Return the records of one topic, several topics, or all topics whose names match a pattern.

    The arguments are the keys of `source` in a pipeline file (docs/reference.md). Nothing is read
    before the job starts. `start` is for its first run only: later ones resume where the last
    committed transaction ends.
    """
    of_kafka: dict[str, Any] = {"start": start if isinstance(start, str) else dict(start)}
    if topic is not None:
        of_kafka["topic"] = topic
    if topics:
        of_kafka["topics"] = list(topics)
    given = {
        "pattern": pattern,
        "max_records": max_records,
        "max_bytes": max_bytes,
        "min_records": min_records,
        "max_delay": max_delay,
        "min_partitions": min_partitions,
    }
    of_kafka |= {name: each for name, each in given.items() if each is not None}
    source = {
        "kafka": of_kafka,
        "key": declared(key),
        "value": declared(value),
        "on_error": on_error,
        "reader": reader,
    }
    return Stream(spark, kafka, source)


@dataclass(frozen=True)
class Frame:
    """A DataFrame of the user's own as the source of a job. It has its own steps already."""

    frame: DataFrame
    kafka: Kafka  # the target
    steps: tuple[Step, ...] = ()

    @property
    def spark(self) -> SparkSession:
        return self.frame.sparkSession

    def declared(self) -> dict[str, Any]:
        return {"source": {"dataframe": True}}


@dataclass(frozen=True)
class Stream:
    """The records of Kafka topics, and steps that transform them. Each method returns a new one.

    `read_kafka` creates it. It is no DataFrame: each micro-batch is a DataFrame, with which the
    steps are called. So a step may run again for the same records, and the records may be read by
    the Arrow reader instead of Spark's Kafka source.
    """

    spark: SparkSession
    kafka: Kafka
    source: Mapping[str, Any]
    steps: tuple[Step, ...] = ()
    rules: tuple[Mapping[str, Any], ...] = ()
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dedup: Mapping[str, Any] | None = None

    def transform(
        self, function: Callable[..., Any], *, tables: Sequence[str] = (), **arguments: Any
    ) -> Stream:
        """Add a step: a function that gets a DataFrame and returns one.

        `arguments` are passed to it by name. So are the lookup tables that `tables` names.
        """
        step = Step("python", checked(function), arguments=arguments, tables=tuple(tables))
        return self._with_step(step)

    def sql(self, query: str) -> Stream:
        """Add a step: a query that reads `input`, the rows of the previous step."""
        return self._with_step(Step("sql", query=query))

    def map_pandas(self, function: Callable[..., Any], returns: str, **arguments: Any) -> Stream:
        """Add a step: a function of a pandas DataFrame, which gets some of the rows at a time.

        `returns` has the columns that it returns, such as `"*, score DOUBLE"`.
        """
        kept = Step("pandas", checked(function), arguments=arguments, returns=returns)
        return self._with_step(kept)

    def map_arrow(self, function: Callable[..., Any], returns: str, **arguments: Any) -> Stream:
        """Add a step: a function of an Arrow table, which has some of the rows at a time.

        `returns` has the columns that it returns, such as `"*, score DOUBLE"`.
        """
        kept = Step("arrow", checked(function), arguments=arguments, returns=returns)
        return self._with_step(kept)

    def named(self, name: str) -> Stream:
        """Name the last step. SQL steps after it can read its rows as a table of this name."""
        if not self.steps:
            raise UsageError(
                "step_missing",
                f"`.named({name!r})` names the last step, but the stream has no step yet",
                hint="call it after `.transform(...)` or `.sql(...)`",
            )
        return replace(self, steps=(*self.steps[:-1], replace(self.steps[-1], name=name)))

    def expect(self, name: str, rule: str, *, on_error: Answer = "fail") -> Stream:
        """Add a rule, an SQL condition that each source record must meet before the first step."""
        added = {"name": name, "rule": rule, "on_error": on_error}
        return replace(self, rules=(*self.rules, added))

    def lookup(
        self,
        name: str,
        *,
        columns: str,
        delta: str | None = None,
        parquet: str | None = None,
        csv: str | None = None,
        header: bool | None = None,
    ) -> Stream:
        """Add a table that steps may join under this name: a Delta table, or files."""
        given = {"delta": delta, "parquet": parquet, "csv": csv, "header": header}
        table = {key: each for key, each in given.items() if each is not None}
        return replace(self, tables={**self.tables, name: {**table, "columns": columns}})

    def drop_duplicates(self, by: Sequence[str], *, within: str, watermark: str) -> Stream:
        """Drop records that agree in the columns `by` with an earlier one, whose time in the
        column `watermark` is less than `within` away, such as `"1 hour"`."""
        return self._with_dedup({"by": list(by), "within": within, "watermark": watermark})

    def drop_resent(self, *, id: str, epoch: str, sequence: str, **settings: Any) -> Stream:  # noqa: A002 - the key's name
        """Drop records that an upstream producer sent twice, by its id, epoch and sequence number.

        `settings` are the other keys of `dedup` in a pipeline file, such as `scope` and `on_gap`.
        """
        wraps = {"wraps_at": settings.pop("wraps_at")} if "wraps_at" in settings else {}
        producer = {"id": id, "epoch": epoch, "sequence": sequence, **wraps}
        return self._with_dedup({"producer": producer, **settings})

    def _with_step(self, step: Step) -> Stream:
        return replace(self, steps=(*self.steps, step))

    def _with_dedup(self, dedup: Mapping[str, Any]) -> Stream:
        if self.dedup is not None:
            raise UsageError(
                "dedup_repeated",
                "the stream drops duplicates already, and can do that once",
                hint="keep one of `.drop_duplicates(...)` and `.drop_resent(...)`",
            )
        return replace(self, dedup=dedup)

    def declared(self) -> dict[str, Any]:
        """Return the keys of a pipeline file for the source and the steps."""
        found: dict[str, Any] = {"source": dict(self.source)}
        found |= {"dedup": dict(self.dedup)} if self.dedup else {}
        if self.tables:
            found["tables"] = {name: dict(table) for name, table in self.tables.items()}
        if self.rules:
            found["expect"] = [dict(rule) for rule in self.rules]
        if self.steps:
            found["transform"] = [step.as_declared() for step in self.steps]
        return found
