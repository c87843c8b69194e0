"""Kafka's bytes as columns: text, or records by a schema; and which records are taken.

A record that can't be read, or does not meet a rule, ends the run that names the first such record,
or goes to the dead letters, or is left out; all are counted. That comes from one look: Spark counts
while it evaluates the micro-batch, and the driver asks before it commits. So the numbers are exact,
and no record is parsed twice: the counting also keeps the optimizer from moving a transform's
filter below the parser, where it would parse again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eos.config import avro
from eos.config.base import KAFKA_COLUMNS
from eos.config.rejected_records import MALFORMED, Answer
from eos.errors import AttemptFailedError, RecordRefusedError, TransformError
from eos.formats.expressions import (
    Format,
    columns_of,
    kept,
    literal,
    parsed,
    quoted,
    with_records,
    wrong_with,
)
from eos.formats.schema_ids import PAGE_IDS, id_in, is_unknown
from eos.read.dedup_by import NO_NULL, Distinct
from eos.seal import of_this_process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BYTES = {"key": "__eos_key_bytes", "value": "__eos_value_bytes"}
_WRONG = "__eos_wrong"  # why a record can't be read; null: it can
_CAUSE = "__eos_cause"  # the number of what refuses a record, 0 for malformed; null: it is taken
_METRIC = "eos.refused"
_RAISED = "refused"
# Of a refused record, beside Kafka's own columns: by what, and in words.
RULE, ERROR = "__eos_rule", "__eos_error"


@dataclass(frozen=True, slots=True)
class RecordRule:
    """An SQL condition that a record has to meet. Empty: that it can be read."""

    name: str
    condition: str
    on_error: Answer = "fail"


@dataclass(frozen=True, slots=True)
class RejectedRecords:
    """Records of a micro-batch that one rule refuses, and the first by topic, partition, offset."""

    rule: str
    answer: Answer
    records: int
    topic: str = ""
    partition: int = -1
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Decode:
    key: Format = field(default_factory=Format)
    value: Format = field(default_factory=Format)
    on_error: Answer = "fail"
    rules: tuple[RecordRule, ...] = ()
    carries: tuple[str, ...] = ()  # columns that the rows have before they are read
    is_strict: bool = False  # the plan itself fails: Spark's counts come too late for it
    distinct: Distinct | None = None

    @property
    def is_plain(self) -> bool:
        """Every record is taken, and its bytes stay bytes: the rows are not touched at all."""
        return self.key.kind == self.value.kind == "binary" and not self.rules

    @property
    def causes(self) -> tuple[RecordRule, ...]:
        """What may refuse a record. The first that does is the one that is told."""
        return (RecordRule(MALFORMED, "", self.on_error), *self.rules)

    def apply(self, frame: DataFrame) -> DataFrame:
        """The rows that are taken, with their columns. Builds a plan and runs nothing."""
        rows = self._taken(frame)
        if rows.isStreaming:
            rows = _shared(rows)
        return rows if self.distinct is None else self.distinct.apply(rows)

    def _taken(self, frame: DataFrame) -> DataFrame:
        if self.is_plain:
            return frame
        from pyspark.sql import functions as f

        judged = self._judged(frame)
        kept = [quoted(name) for name in judged.columns if name not in (_WRONG, _CAUSE)]
        if self.is_strict:
            return judged.where(_raising()).selectExpr(*kept)
        seen = judged.observe(_METRIC, *map(f.expr, self._counted()))
        return seen.where(f"{_CAUSE} IS NULL").selectExpr(*kept)

    def dead_letters(self, frame: DataFrame) -> DataFrame:
        """The rows that are refused and not dropped: Kafka's columns as they came, and why. Where
        the rows have the columns RULE and ERROR, those in which they are not null were refused
        before."""
        of_rows = {"key": f"{_BYTES['key']} AS key", "value": f"{_BYTES['value']} AS value"}
        numbers = [n for n, each in enumerate(self.causes) if each.on_error == "dead_letter"]
        named = [literal(each.name) for each in self.causes]
        told = [literal(f"not true: {each.condition}") for each in self.causes]
        kafkas = [of_rows.get(name, name) for name in KAFKA_COLUMNS if name in frame.columns]
        from pyspark.sql import functions as f

        before = [name for name in (RULE, ERROR) if name in frame.columns]
        judged = self._judged(frame, with_bytes=True, carries=(*self.carries, *before))
        wanted = [f"{_CAUSE} IN ({', '.join(map(str, numbers))})"] if numbers else []
        wanted += [f"{RULE} IS NOT NULL"] if before else []
        named_before = {name: f"{name}, " if before else "" for name in (RULE, ERROR)}
        return (
            # Nobody asks for this count. It keeps the filter above the parser, as in `apply`.
            judged.observe(f"{_METRIC}.again", f.expr("count(1) AS records"))
            .where(" OR ".join(wanted))
            .selectExpr(
                *kafkas,
                f"coalesce({named_before[RULE]}{_nth(named)}) AS {RULE}",
                f"coalesce({named_before[ERROR]}{_WRONG}, {_nth(told)}) AS {ERROR}",
            )
        )

    def _judged(
        self, frame: DataFrame, *, with_bytes: bool = False, carries: Sequence[str] | None = None
    ) -> DataFrame:
        """All rows with the columns that the first step sees, and what refuses a row."""
        formats = {"key": self.key, "value": self.value}
        named = [kept(name, formats.get(name)) for name in KAFKA_COLUMNS if name in frame.columns]
        named += self.carries if carries is None else carries
        for name, each in formats.items():
            named += columns_of(name, each)
        if with_bytes:
            named += [f"{name} AS {as_bytes}" for name, as_bytes in _BYTES.items()]
        wrong = [word for name, each in formats.items() for word in wrong_with(name, each)]
        named.append(f"{_case(wrong)} AS {_WRONG}")
        self._require_schemas(frame)
        read = with_records(frame, formats).selectExpr(*named)
        causes = [(f"{_WRONG} IS NOT NULL", "0")]
        for number, rule in enumerate(self.rules, 1):
            # In lines of its own: it may end in a comment.
            causes.append((f"NOT coalesce((\n{rule.condition}\n), false)", str(number)))
        return self._with_cause(read, _case(causes))

    def _require_schemas(self, frame: DataFrame) -> None:
        """Avro's parser raises what is no error of Spark's, and does not say whose schema it is."""
        for name, each in (("key", self.key), ("value", self.value)):
            if each.kind == "avro":
                try:
                    frame.selectExpr(parsed(name, replace(each, subject="")))
                except Exception as error:
                    words = avro.words_of(error)
                    raise TransformError(
                        f"the Avro schema of the {name}: {words}",
                        hint="the schema is not what Spark's Avro reader takes: correct it where "
                        "the pipeline file, its `file` or the registry has it",
                    ) from error

    def _with_cause(self, read: DataFrame, cause: str) -> DataFrame:
        from pyspark.errors import AnalysisException

        try:
            return read.selectExpr("*", f"{cause} AS {_CAUSE}")
        except AnalysisException:
            for rule in self.rules:  # one by one: Spark's words name no rule
                _require_condition(read, rule)
            raise

    def _counted(self) -> Iterator[str]:
        coordinates = "struct(topic, partition, offset)"
        for number in range(len(self.causes)):
            yield f"count_if({_CAUSE} = {number}) AS records_{number}"
            yield f"min(CASE WHEN {_CAUSE} = {number} THEN {coordinates} END) AS first_{number}"
        unknown = [is_unknown(name, each.written_by) for name, each in self._registered()]
        if unknown:
            yield f"count_if({' OR '.join(unknown)}) AS unknown_ids"

    def _registered(self) -> list[tuple[str, Format]]:
        return [pair for pair in (("key", self.key), ("value", self.value)) if pair[1].subject]

    def found(
        self, job: DataFrame, records_out: int, frame: DataFrame
    ) -> tuple[RejectedRecords, ...]:
        """What was refused of the micro-batch `frame` that was just evaluated by `job`."""
        if self.is_plain:
            return ()
        # The plan that ran knows at once. An Observation would wait for a listener.
        execution: Any = job._jdf.queryExecution()  # noqa: SLF001
        metrics = execution.observedMetrics()
        if not metrics.contains(_METRIC):
            if records_out:
                raise AttemptFailedError("Spark did not count the records that can't be taken")
            # No row came out. Spark throws away a stage that counted as soon as it sees that it
            # is empty, and its numbers with it: then the micro-batch is read again, to count.
            again = self._judged(frame).selectExpr(*self._counted())
            return self._told(again.collect()[0], frame)
        row = metrics.apply(_METRIC)
        counted: list[Any] = []
        for number in range(len(self.causes)):
            first = row.get(2 * number + 1)
            counted += [row.getLong(2 * number), first and [first.get(at) for at in range(3)]]
        if self._registered():
            counted.append(row.getLong(len(counted)))
        return self._told(counted, frame)

    def _told(self, counted: Sequence[Any], frame: DataFrame) -> tuple[RejectedRecords, ...]:
        """Of counts and firsts, one after the other for each cause; and behind them how many
        records have the id of a schema that is not known, where they have ids."""
        pairs = len(self.causes) * 2
        if len(counted) > pairs and counted[pairs]:
            # Is one of them in the registry meanwhile? Then the attempt is redone with it.
            new = self.learned(frame)
            if new:
                raise AttemptFailedError(
                    f"the registry has schemas that are new: {', '.join(new[:10])}",
                    hint="they are known from now on",
                )
        return tuple(
            RejectedRecords(
                cause.name,
                cause.on_error,
                int(records),
                str(first[0]),
                int(first[1]),
                int(first[2]),
            )
            for cause, records, first in zip(
                self.causes, counted[:pairs:2], counted[1:pairs:2], strict=True
            )
            if records
        )

    def learned(self, frame: DataFrame) -> list[str]:
        """Ask the registry for these records' unknown ids. Return, in words, those that have a
        schema: from now on the plan knows them."""
        told = []
        for name, each in self._registered():
            last, is_more = -1, True
            while is_more:  # each page begins at a higher id, and ids have 32 bits
                found = frame.where(is_unknown(name, each.written_by)).selectExpr(
                    f"{id_in(name)} AS id"
                )
                page = found.where(f"id > {last}").distinct().orderBy("id").limit(PAGE_IDS)
                ids = [row.id for row in page.collect()]
                told += [f"id {new} of the {name}" for new in each.writers.learn(ids)]
                is_more = len(ids) == PAGE_IDS
                last = ids[-1] if ids else last
        return told

    def raised(self, texts: Iterable[str]) -> RejectedRecords | None:
        """Return the record that a strict plan failed on, if one of the texts that SQL raised
        names it."""
        found = of_this_process().raised(_RAISED, texts)
        if found is None:
            return None
        topic, partition, offset, number = found.split(" ")
        cause = self.causes[int(number)]
        return RejectedRecords(cause.name, cause.on_error, 1, topic, int(partition), int(offset))

    def require_none(self, refused: Sequence[RejectedRecords], pipeline: str) -> None:
        """With `on_error: fail`, stops before anything of the micro-batch is committed."""
        failing = [each for each in refused if each.answer == "fail"]
        if not failing:
            return
        first = min(failing, key=lambda each: (each.topic, each.partition, each.offset))
        where = f"{first.topic}-{first.partition} at offset {first.offset}"
        more, is_rule = first.records - 1, first.rule != MALFORMED
        others = f", and {more} more of this micro-batch can't either" if more else ""
        told = f"can't be read as the source's key and value say{others}"
        hint = "correct the schema in the pipeline file; or say `on_error: drop` in the source, "
        if is_rule:
            others = f", and {more} more of this micro-batch" if more else ""
            told = f"does not meet the rule `{first.rule}`{others}"
            hint = "correct the rule in the pipeline file; or say `on_error: drop` beside it, "
        hint += "which leaves such records out and counts them, or `dead_letter`, which keeps them "
        hint += "in a topic of their own"
        if first.rule == NO_NULL and self.distinct is not None:
            told, hint = self.distinct.told_of_null, self.distinct.hint_of_null
        raise RecordRefusedError(
            f"{pipeline}: the record {where} {told}; nothing of the micro-batch is committed",
            hint=hint,
            source_topic=first.topic,
            source_partition=first.partition,
            source_offset=first.offset,
            records=first.records,
            rule=first.rule,
        )


def _shared(rows: DataFrame) -> DataFrame:
    """With a name of its own for each column, so that a step may join the rows with themselves.
    Where two sides of a join have the same columns, Spark makes them anew at the place that they
    come from: without these names in the source itself, which then would be two sources."""
    from pyspark.sql import functions as f

    return rows.select(*(f.col(quoted(name)).alias(name) for name in rows.columns))


def _require_condition(read: DataFrame, rule: RecordRule) -> None:
    from pyspark.errors import AnalysisException

    try:
        asked = read.selectExpr("*", f"(\n{rule.condition}\n)")  # beside columns: no aggregate
        kind = asked.schema.fields[-1].dataType.simpleString()
    except AnalysisException as error:
        words = str(error).split("\n\nJVM stacktrace")[0].split(";\n")[0].split("\n\n== SQL ==")[0]
        # It counts the line of our bracket, too.
        words = re.sub(r"(?<=line )\d+(?=, pos)", lambda at: str(int(at[0]) - 1), words)
        words = words.strip()[:1000]
        raise TransformError(
            f"the rule `{rule.name}` of `expect`: {words}",
            hint="a rule is asked of the source's columns, before the first step",
        ) from error
    if kind != "boolean":
        raise TransformError(
            f"the rule `{rule.name}` of `expect` is of type {kind}; expected a condition",
            hint="such as `amount > 0`",
        )


def _raising() -> str:
    """The condition that ends a strict plan at the first record that is refused."""
    opening = of_this_process().opening(_RAISED)
    said = f"concat('{opening}', topic, ' ', partition, ' ', offset, ' ', {_CAUSE}, ']')"
    return f"CASE WHEN {_CAUSE} IS NULL THEN true ELSE CAST(raise_error({said}) AS BOOLEAN) END"


def _nth(texts: Sequence[str]) -> str:
    return f"element_at(array({', '.join(texts)}), {_CAUSE} + 1)"


def _case(whens: Sequence[tuple[str, str]]) -> str:
    if not whens:
        return "CAST(NULL AS STRING)"
    return f"CASE {' '.join(f'WHEN {when} THEN {then}' for when, then in whens)} END"
