"""Source records that were refused, as records of the dead-letter topic; and back again.

Key, value and headers are the bytes that came. Behind the record's own headers stand ours, each a
UTF-8 text: where it came from, and why it was refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from eos.encode.record_errors import AT
from eos.encode.stage import SinkSpec
from eos.kafka.api import TopicPartition
from eos.read.decode import ERROR, RULE, RejectedRecords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.kafka.compression_type import Codec
    from eos.plan.plan import Plan

# The first of ours: what stands before it is the record's own.
PIPELINE = "eos.pipeline"
_PARTITION = "__partition_wanted"
_ORIGIN = {
    "eos.topic": "topic",
    "eos.partition": "CAST(partition AS STRING)",
    "eos.offset": "CAST(offset AS STRING)",
    "eos.timestamp": "CAST(unix_millis(timestamp) AS STRING)",
    "eos.rule": RULE,
    "eos.error": ERROR,
}
Headers = tuple[tuple[str, "bytes | None"], ...]


def are_among(refused: Sequence[RejectedRecords]) -> bool:
    return any(each.answer == "dead_letter" for each in refused)


def sink(topic: str, codec: Codec) -> SinkSpec:
    """Written now, whatever time the record says: a topic that keeps a week would not keep one
    that is older."""
    return SinkSpec(topic=topic, codec=codec, partition_column=_PARTITION)


def columns(rows: DataFrame, plan: Plan, partitions: int) -> DataFrame:
    """The dead letters of a micro-batch. Those of a source partition keep their order: they all go
    to one partition, with a key or without."""
    ours = {PIPELINE: _text(plan.names.pipeline), **_ORIGIN}
    added = ", ".join(
        f"struct({_text(name)} AS key, CAST({what} AS BINARY) AS value)"
        for name, what in ours.items()
    )
    own = "coalesce(headers, CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>))"
    return plan.decode.dead_letters(rows).selectExpr(
        "key",
        "value",
        f"concat({own}, array({added})) AS headers",
        f"pmod(partition, {partitions}) AS {_PARTITION}",
        "topic AS __topic",
        f"{AT} AS __at",
    )


class Origin(NamedTuple):
    """What a dead letter's headers say of the record that it was."""

    pipeline: str
    source: TopicPartition
    offset: int
    timestamp_ms: int
    rule: str
    error: str
    headers: Headers  # the record's own


def origin(headers: Headers) -> Origin | None:
    """None: no dead letter of ours. The last of our blocks counts: a record that was put back and
    refused again has lost the one before, but nobody keeps others from writing such names."""
    at = max((n for n, (name, _) in enumerate(headers) if name == PIPELINE), default=-1)
    told = {name: (value or b"").decode(errors="replace") for name, value in headers[at:]}
    if at < 0 or not told.keys() >= _ORIGIN.keys():
        return None
    try:
        found = Origin(
            told[PIPELINE],
            TopicPartition(told["eos.topic"], int(told["eos.partition"])),
            int(told["eos.offset"]),
            int(told["eos.timestamp"]),
            told["eos.rule"],
            told["eos.error"],
            headers[:at],
        )
    except ValueError:
        return None
    # Whoever may write to the topic may write these: what no record has would end each replay.
    numbers = (found.source.partition, found.offset)
    is_possible = min(numbers) >= 0 and max(*numbers, abs(found.timestamp_ms)) < 2**63
    return found if is_possible else None


def counted(refused: Sequence[RejectedRecords]) -> Mapping[str, Mapping[str, int]]:
    """What the ledger says of an attempt: rule, answer, records."""
    return {each.rule: {each.answer: each.records} for each in refused}


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
