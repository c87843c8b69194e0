"""Kafka's bytes as columns: text, or JSON by a schema.

What can't be read is either an end of the run that names the first such record, or left out and
counted. Both come from one look: Spark counts while it evaluates the micro-batch, and the driver
asks before it commits. So the numbers are exact, and no record is parsed twice: the counting also
keeps the optimizer from moving a transform's filter below the parser, where it would parse again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from eos.config.base import KAFKA_COLUMNS
from eos.errors import AttemptFailedError, RecordRefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PARSED = {"key": "__eos_key", "value": "__eos_value"}
_RAW = "__eos_raw"  # in a parsed struct: the text, if something of it could not be read
_IS_MALFORMED = "__eos_malformed"
_METRIC = "eos.malformed"
_FIRST = f"min(CASE WHEN {_IS_MALFORMED} THEN struct(topic, partition, offset) END)"
_COUNTED = (f"count_if({_IS_MALFORMED}) AS records", f"{_FIRST} AS first")


@dataclass(frozen=True, slots=True)
class Format:
    """How a key or a value is read. `columns` and `required` are those of a JSON schema."""

    kind: Literal["binary", "string", "json"] = "binary"
    schema: str = ""
    columns: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    column: str = ""  # holds all of them as a struct; empty: they stand beside Kafka's columns


@dataclass(frozen=True, slots=True)
class Malformed:
    """Records of a micro-batch that can't be read, and the first by topic, partition, offset."""

    records: int
    topic: str = ""
    partition: int = -1
    offset: int = -1


NONE = Malformed(0)


@dataclass(frozen=True, slots=True)
class Decode:
    key: Format = Format()
    value: Format = Format()
    on_error: Literal["fail", "drop"] = "fail"

    @property
    def is_plain(self) -> bool:
        """Bytes stay bytes: the rows are not touched at all."""
        return self.key.kind == self.value.kind == "binary"

    def apply(self, frame: DataFrame) -> DataFrame:
        """The rows that can be read, with their columns. Builds a plan and runs nothing."""
        if self.is_plain:
            return frame
        from pyspark.sql import functions as f

        formats = {"key": self.key, "value": self.value}
        seen = self._parsed(frame).observe(_METRIC, *map(f.expr, _COUNTED))
        named = [_kept(name, formats.get(name)) for name in KAFKA_COLUMNS if name in frame.columns]
        for name, each in formats.items():
            named += _columns(name, each)
        return seen.where(f"NOT {_IS_MALFORMED}").selectExpr(*named)

    def _parsed(self, frame: DataFrame) -> DataFrame:
        formats = {"key": self.key, "value": self.value}
        parsed = [_parse(name, each) for name, each in formats.items() if each.kind == "json"]
        wrong = " OR ".join(_wrong(name, each) for name, each in formats.items() if _may_fail(each))
        return frame.selectExpr("*", *parsed).selectExpr("*", f"{wrong} AS {_IS_MALFORMED}")

    def found(self, job: DataFrame, records_out: int, frame: DataFrame) -> Malformed:
        """What was left out of the micro-batch `frame` that was just evaluated by `job`."""
        if self.is_plain:
            return NONE
        # The plan that ran knows at once. An Observation would wait for a listener.
        execution: Any = job._jdf.queryExecution()  # noqa: SLF001
        metrics = execution.observedMetrics()
        if not metrics.contains(_METRIC):
            if records_out:
                raise AttemptFailedError("Spark did not count the records that can't be read")
            # No row came out. Spark throws away a stage that counted as soon as it sees that it
            # is empty, and its numbers with it: then the micro-batch is read again, to count.
            return _malformed(*self._parsed(frame).selectExpr(*_COUNTED).collect()[0])
        row = metrics.apply(_METRIC)
        first = row.get(1)
        return _malformed(int(row.getLong(0)), first and [first.get(at) for at in range(3)])

    def require_none(self, malformed: Malformed, pipeline: str) -> None:
        """With `on_error: fail`, stops before anything of the micro-batch is committed."""
        if self.on_error == "drop" or not malformed.records:
            return
        where = f"{malformed.topic}-{malformed.partition} at offset {malformed.offset}"
        more = malformed.records - 1
        others = f", and {more} more of this micro-batch can't either" if more else ""
        raise RecordRefusedError(
            f"{pipeline}: the record {where} can't be read as the source's key and value "
            f"say{others}; nothing of the micro-batch is committed",
            hint="correct the schema in the pipeline file; or say `on_error: drop` in the source, "
            "which leaves such records out and counts them",
            source_topic=malformed.topic,
            source_partition=malformed.partition,
            source_offset=malformed.offset,
            records=malformed.records,
        )


def _malformed(records: int, first: Sequence[Any] | None) -> Malformed:
    return Malformed(records, str(first[0]), int(first[1]), int(first[2])) if first else NONE


def _may_fail(each: Format) -> bool:
    return each.kind != "binary"


def _parse(name: str, each: Format) -> str:
    # A time without a zone is UTC's, on every machine. FAILFAST would not say which record it was.
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_RAW}', 'timeZone', 'UTC')"
    schema = _text(f"{each.schema}, {_RAW} STRING")
    return f"from_json(CAST({name} AS STRING), {schema}, {options}) AS {_PARSED[name]}"


def _wrong(name: str, each: Format) -> str:
    """Whether bytes that are there can't be read. A null stays one: it may be a tombstone."""
    told = [f"NOT is_valid_utf8(CAST({name} AS STRING))"]
    if each.kind == "json":
        parsed = _PARSED[name]
        told += [f"{parsed} IS NULL", f"{parsed}.{_RAW} IS NOT NULL"]
        told += [f"{parsed}.{_quoted(column)} IS NULL" for column in each.required]
    return f"({name} IS NOT NULL AND ({' OR '.join(told)}))"


def _kept(name: str, each: Format | None) -> str:
    is_text = each is not None and each.kind == "string"
    return f"CAST({name} AS STRING) AS {name}" if is_text else name


def _columns(name: str, each: Format) -> list[str]:
    parsed = _PARSED[name]
    found = [f"{parsed}.{_quoted(column)} AS {_quoted(column)}" for column in each.columns]
    if each.column:
        whole = f"IF({name} IS NULL, NULL, struct({', '.join(found)}))"
        return [f"{whole} AS {_quoted(each.column)}"]
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
