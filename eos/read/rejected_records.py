"""Records that the source's formats or rules reject, and the error that ends the run at one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eos.config.rejected_records import MALFORMED, Answer
from eos.errors import RecordRefusedError
from eos.read.dedup_by import NO_NULL, Distinct

_OTHERWISE = "set `on_error` to drop or dead_letter"


@dataclass(frozen=True, slots=True)
class RejectedRecords:
    """The number of records that one rule rejects in a micro-batch, and the position of the first:
    the lowest by topic, partition and offset."""

    rule: str
    answer: Answer
    records: int
    topic: str = ""
    partition: int = -1
    offset: int = -1


def refusal(
    first: RejectedRecords,
    pipeline: str,
    distinct: Distinct | None,
    subjects: Sequence[str] = (),
) -> RecordRefusedError:
    """Return the error that ends the run at a rejected record.

    `distinct` has the settings of dedup by columns. `subjects` are the subjects of the
    schema registry whose new schemas a running pipeline does not read: the next startup does.
    """
    record = f"{pipeline}: the record {first.topic}-{first.partition} at offset {first.offset}"
    others = f", and {first.records - 1} more in this micro-batch" if first.records > 1 else ""
    fields: dict[str, Any] = {
        "source_topic": first.topic,
        "source_partition": first.partition,
        "source_offset": first.offset,
        "records": first.records,
        "rule": first.rule,
    }
    if first.rule == NO_NULL and distinct is not None:
        condition = distinct.condition
        return RecordRefusedError(
            "dedup_column_null",
            f"{record} has a null in a column of `dedup` (not true: {condition}); nothing of "
            "the micro-batch is committed",
            hint="fill the column upstream, or reject such records in a stateless pipeline "
            "before this one",
            **fields,
        )
    if first.rule == MALFORMED:
        names = " and ".join(map(repr, subjects))
        return RecordRefusedError(
            "record_malformed",
            f"{record} can't be decoded by the source's `key` and `value`{others}; nothing of "
            "the micro-batch is committed",
            hint=f"correct the schema in the pipeline file, or {_OTHERWISE} in the source"
            if not names
            else f"if the schema is new, start again: a startup reads the schemas of {names}. If "
            "it is of another subject, register it there, too: it keeps its id. Otherwise reject "
            "such records in a stateless pipeline before this one",
            **fields,
        )
    return RecordRefusedError(
        "record_rule_failed",
        f"{record} does not meet the rule `{first.rule}`{others}; nothing of the micro-batch "
        "is committed",
        hint=f"correct the rule in the pipeline file, or {_OTHERWISE} in the rule",
        **fields,
    )
