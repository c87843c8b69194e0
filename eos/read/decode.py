"""How do Kafka's bytes become columns, and which records are rejected?

A key or value is kept as bytes, read as text, or parsed by a schema. A record that can't be parsed,
or that fails a rule of `expect`, is rejected. The setting `on_error` decides whether it ends the
run, becomes a dead letter, or is dropped. All rejected records are counted, and an error names the
first one.

Spark counts them while it evaluates the micro-batch, and the driver reads the counts before it
commits. So the counts are exact, and no record is parsed twice. The counter has a second purpose:
Spark's optimizer does not move a transform's filter below it. Below the parser such a filter would
parse each record again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eos.config import avro
from eos.config.base import KAFKA_COLUMNS
from eos.config.rejected_records import MALFORMED, Answer
from eos.errors import AttemptFailedError, TransformError
from eos.formats.expressions import (
    Format,
    cast,
    columns_of,
    in_frame,
    literal,
    parsed,
    quoted,
    with_records,
    wrong_with,
)
from eos.formats.schema_ids import PAGE_IDS, id_in, is_unknown
from eos.read.dedup_by import Distinct
from eos.read.rejected_records import RejectedRecords, refusal
from eos.seal import of_this_process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BYTES = {"key": "__eos_key_bytes", "value": "__eos_value_bytes"}
_WRONG = "__eos_wrong"  # why a record can't be parsed; null: it can
# The number of the rule that rejects a record, 0 for malformed. Null: the record is accepted.
_CAUSE = "__eos_cause"
_METRIC = "eos.refused"
_RAISED = "refused"
# Columns of a rejected record, in addition to Kafka's: the rule's name, and the reason as text.
RULE, ERROR = "__eos_rule", "__eos_error"


@dataclass(frozen=True, slots=True)
class RecordRule:
    """An SQL condition that each record must meet. Empty: the record must be parseable."""

    name: str
    condition: str
    on_error: Answer = "fail"


@dataclass(frozen=True, slots=True)
class Decode:
    """The formats of source keys and values, and the rules that reject source records."""

    key: Format = field(default_factory=Format)
    value: Format = field(default_factory=Format)
    on_error: Answer = "fail"
    rules: tuple[RecordRule, ...] = ()
    carries: tuple[str, ...] = ()  # columns that earlier stages added, such as dedup's verdict
    # A rejected record fails the job. Stateful plans need that: they get Spark's counts too late.
    is_strict: bool = False
    distinct: Distinct | None = None

    @property
    def is_plain(self) -> bool:
        """Return whether rows pass unchanged: bytes stay bytes, and no rule can reject a row."""
        return self.key.kind == self.value.kind == "binary" and not self.rules

    @property
    def causes(self) -> tuple[RecordRule, ...]:
        """Return the reasons to reject a record: malformed, then each rule. The first one that
        applies is reported."""
        return (RecordRule(MALFORMED, "", self.on_error), *self.rules)

    def apply(self, frame: DataFrame) -> DataFrame:
        """Return the accepted rows with their parsed columns. Builds a plan and runs nothing."""
        rows = self._accepted(frame)
        if rows.isStreaming:
            rows = _shared(rows)
        return rows if self.distinct is None else self.distinct.apply(rows)

    def _accepted(self, frame: DataFrame) -> DataFrame:
        if self.is_plain:
            return frame
        from pyspark.sql import functions as f

        checked = self._with_rules(frame)
        columns = [quoted(name) for name in checked.columns if name not in (_WRONG, _CAUSE)]
        if self.is_strict:
            return checked.where(_raising()).selectExpr(*columns)
        observed = checked.observe(_METRIC, *map(f.expr, self._counted()))
        return observed.where(f"{_CAUSE} IS NULL").selectExpr(*columns)

    def dead_letters(self, frame: DataFrame) -> DataFrame:
        """Decode the source rows in `frame`, and return the rejected rows that become dead letters.

        They have Kafka's columns unchanged, and the reason in the columns RULE and ERROR. If
        `frame` has these columns already, also return the rows in which dedup has set them.
        """
        of_rows = {"key": f"{_BYTES['key']} AS key", "value": f"{_BYTES['value']} AS value"}
        numbers = [n for n, each in enumerate(self.causes) if each.on_error == "dead_letter"]
        names = [literal(each.name) for each in self.causes]
        reasons = [literal(f"not true: {each.condition}") for each in self.causes]
        kafkas = [of_rows.get(name, name) for name in KAFKA_COLUMNS if name in frame.columns]
        from pyspark.sql import functions as f

        before = [name for name in (RULE, ERROR) if name in frame.columns]
        checked = self._with_rules(frame, with_bytes=True, carries=(*self.carries, *before))
        conditions = [f"{_CAUSE} IN ({', '.join(map(str, numbers))})"] if numbers else []
        conditions += [f"{RULE} IS NOT NULL"] if before else []
        named_before = {name: f"{name}, " if before else "" for name in (RULE, ERROR)}
        return (
            # The count is unused. It keeps Spark from filtering first, and so parsing twice.
            checked.observe(f"{_METRIC}.again", f.expr("count(1) AS records"))
            .where(" OR ".join(conditions))
            .selectExpr(
                *kafkas,
                f"coalesce({named_before[RULE]}{_nth(names)}) AS {RULE}",
                f"coalesce({named_before[ERROR]}{_WRONG}, {_nth(reasons)}) AS {ERROR}",
            )
        )

    def _with_rules(
        self, frame: DataFrame, *, with_bytes: bool = False, carries: Sequence[str] | None = None
    ) -> DataFrame:
        """Return all rows with the first step's columns, and the number of the rejecting rule.

        `with_bytes` adds the key and value as bytes, which dead letters need.
        """
        formats = in_frame(frame, {"key": self.key, "value": self.value})
        parts = [cast(name, formats.get(name)) for name in KAFKA_COLUMNS if name in frame.columns]
        parts += self.carries if carries is None else carries
        for name, each in formats.items():
            parts += columns_of(name, each)
        if with_bytes:
            parts += [f"{name} AS {as_bytes}" for name, as_bytes in _BYTES.items()]
        malformed = [word for name, each in formats.items() for word in wrong_with(name, each)]
        parts.append(f"{_case(malformed)} AS {_WRONG}")
        self._require_schemas(frame)
        read = with_records(frame, formats).selectExpr(*parts)
        causes = [(f"{_WRONG} IS NOT NULL", "0")]
        for number, rule in enumerate(self.rules, 1):
            # On a line of its own, since the user's condition may end in a comment.
            causes.append((f"NOT coalesce((\n{rule.condition}\n), false)", str(number)))
        return self._with_cause(read, _case(causes))

    def _require_schemas(self, frame: DataFrame) -> None:
        """Raise TransformError for an Avro schema that Spark can't use, naming the key or value."""
        for name, each in (("key", self.key), ("value", self.value)):
            if each.kind == "avro":
                try:
                    frame.selectExpr(parsed(name, replace(each, subject="")))
                except Exception as error:
                    reason = avro.message_of(error)
                    raise TransformError(
                        "avro_schema_unsupported",
                        f"Spark can't use the Avro schema of the {name}: {reason}",
                        hint="correct the schema in the pipeline file, in its `file` or in the "
                        "schema registry",
                    ) from error

    def _with_cause(self, read: DataFrame, cause: str) -> DataFrame:
        from pyspark.errors import AnalysisException

        try:
            return read.selectExpr("*", f"{cause} AS {_CAUSE}")
        except AnalysisException:
            for rule in self.rules:  # find the invalid one: Spark's message does not name it
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
        """Return the rejected records of the micro-batch `frame`. `job` must have evaluated it."""
        if self.is_plain:
            return ()
        # The executed plan has the counts at once. Spark's Observation would wait for a listener.
        execution: Any = job._jdf.queryExecution()  # noqa: SLF001
        metrics = execution.observedMetrics()
        if not metrics.contains(_METRIC):
            if records_out:
                raise AttemptFailedError(
                    "rejected_records_uncounted",
                    "Spark returned no count of the rejected records",
                    hint="no action is needed: the micro-batch is retried. If it repeats, report "
                    "it as a bug",
                )
            # No record was written. If a stage turns out to be empty, Spark drops it together with
            # its counts. So the micro-batch is read again to count.
            again = self._with_rules(frame).selectExpr(*self._counted())
            return self._rejected(again.collect()[0], frame)
        row = metrics.apply(_METRIC)
        counted: list[Any] = []
        for number in range(len(self.causes)):
            first = row.get(2 * number + 1)
            counted += [row.getLong(2 * number), first and [first.get(at) for at in range(3)]]
        if self._registered():
            counted.append(row.getLong(len(counted)))
        return self._rejected(counted, frame)

    def _rejected(self, counted: Sequence[Any], frame: DataFrame) -> tuple[RejectedRecords, ...]:
        """Return the rejected records from Spark's counters.

        `counted` has a count and the first position for each cause. If records carry schema ids,
        the number of records with an unknown id follows.
        """
        pairs = len(self.causes) * 2
        if len(counted) > pairs and counted[pairs]:
            # The registry may have the id by now. Then the attempt is retried with its schema.
            new = self.learned(frame)
            if new:
                ids = ", ".join(new[:10])
                raise AttemptFailedError(
                    "schema_id_new",
                    f"the schema registry has new schemas: {ids}",
                    hint="the retry uses them",
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
        """Request the records' unknown schema ids from the registry, and add those that it has to
        the plan. Return a text for each added id."""
        added = []
        for name, each in self._registered():
            last, is_more = -1, True
            while is_more:  # terminates: each page begins at a higher id, and ids have 32 bits
                found = frame.where(is_unknown(name, each.written_by)).selectExpr(
                    f"{id_in(name)} AS id"
                )
                page = found.where(f"id > {last}").distinct().orderBy("id").limit(PAGE_IDS)
                ids = [row.id for row in page.collect()]
                added += [f"id {new} of the {name}" for new in each.writers.learn(ids)]
                is_more = len(ids) == PAGE_IDS
                last = ids[-1] if ids else last
        return added

    def raised(self, texts: Iterable[str]) -> RejectedRecords | None:
        """Return the record that failed the job of a strict plan. None if no text names one.

        `texts` are the messages that SQL's `raise_error` was called with.
        """
        found = of_this_process().raised(_RAISED, texts)
        if found is None:
            return None
        topic, partition, offset, number = found.split(" ")
        cause = self.causes[int(number)]
        return RejectedRecords(cause.name, cause.on_error, 1, topic, int(partition), int(offset))

    def require_none(self, refused: Sequence[RejectedRecords], pipeline: str) -> None:
        """Raise RecordRefusedError if a rule with `on_error: fail` rejected a record.

        To be called before the commit, so nothing of the micro-batch is committed then.
        """
        failing = [each for each in refused if each.answer == "fail"]
        if not failing:
            return
        first = min(failing, key=lambda each: (each.topic, each.partition, each.offset))
        subjects = [each.subject for _, each in self._registered() if self.is_strict]
        raise refusal(first, pipeline, self.distinct, subjects)


def _shared(rows: DataFrame) -> DataFrame:
    """Return the rows with each column aliased to its own name, for steps that join them with
    themselves.

    In a self-join, Spark duplicates one side's plan down to where its columns are defined. Without
    the aliases that is the source, and the plan would have two sources.
    """
    from pyspark.sql import functions as f

    return rows.select(*(f.col(quoted(name)).alias(name) for name in rows.columns))


def _require_condition(read: DataFrame, rule: RecordRule) -> None:
    """Raise TransformError if the rule is no boolean condition on the source's columns."""
    from pyspark.errors import AnalysisException

    try:
        # Next to "*" Spark rejects an aggregate. So a rule that aggregates is invalid.
        evaluated = read.selectExpr("*", f"(\n{rule.condition}\n)")
        kind = evaluated.schema.fields[-1].dataType.simpleString()
    except AnalysisException as error:
        reason = str(error).split("\n\nJVM stacktrace")[0].split(";\n")[0].split("\n\n== SQL ==")[0]
        # The opening bracket is a line of its own, so Spark's line numbers are one too high.
        reason = re.sub(r"(?<=line )\d+(?=, pos)", lambda at: str(int(at[0]) - 1), reason)
        reason = reason.strip()[:1000]
        raise TransformError(
            "rule_invalid",
            f"the rule `{rule.name}` of `expect` is invalid: {reason}",
            hint="correct the rule: it can use the source's columns, before the first step",
        ) from error
    if kind != "boolean":
        raise TransformError(
            "rule_not_boolean",
            f"the rule `{rule.name}` of `expect` has type {kind}; expected a condition",
            hint="write a condition such as `amount > 0`",
        )


def _raising() -> str:
    """Return SQL that fails the job at the first rejected record, and names that record."""
    opening = of_this_process().opening(_RAISED)
    position = f"concat('{opening}', topic, ' ', partition, ' ', offset, ' ', {_CAUSE}, ']')"
    return f"CASE WHEN {_CAUSE} IS NULL THEN true ELSE CAST(raise_error({position}) AS BOOLEAN) END"


def _nth(texts: Sequence[str]) -> str:
    """Return SQL for the text of the rule that rejects the row: one of `texts`, or null."""
    return f"element_at(array({', '.join(texts)}), {_CAUSE} + 1)"


def _case(whens: Sequence[tuple[str, str]]) -> str:
    if not whens:
        return "CAST(NULL AS STRING)"
    return f"CASE {' '.join(f'WHEN {when} THEN {then}' for when, then in whens)} END"
