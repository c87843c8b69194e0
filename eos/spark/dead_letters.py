"""Convert rejected source records into dead letters, and read a dead letter's origin back.

A dead letter has the record's key, value and headers as their original bytes. After these headers
it has headers with names that begin with `eos.`, each a UTF-8 text. They hold the record's position
in the source, and the reason for the rejection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from eos.encode.record_errors import AT
from eos.encode.sink_spec import SinkSpec
from eos.formats.expressions import literal
from eos.kafka.api import TopicPartition
from eos.read.decode import ERROR, RULE
from eos.read.rejected_records import RejectedRecords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.kafka.compression_type import Codec
    from eos.plan.plan import Plan

# The first header that the pipeline adds. The headers before it are the record's own.
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
    """Return whether some of the rejected records become dead letters."""
    return any(each.answer == "dead_letter" for each in refused)


def sink(topic: str, codec: Codec) -> SinkSpec:
    """Return the sink that writes dead letters.

    Dead letters get the attempt's time as their timestamp. With the original timestamp, a topic
    with a retention of a week would delete a record of last month at once.
    """
    return SinkSpec(topic=topic, codec=codec, partition_column=_PARTITION)


def columns(rows: DataFrame, plan: Plan, partitions: int) -> DataFrame:
    """Return the dead letters of a micro-batch, with the columns of their sink.

    `partitions` is the number of partitions of the dead letter topic. All dead letters of a source
    partition go to the same partition of it, so they keep their order.
    """
    ours = {PIPELINE: literal(plan.names.pipeline), **_ORIGIN}
    added = ", ".join(
        f"struct({literal(name)} AS key, CAST({expression} AS BINARY) AS value)"
        for name, expression in ours.items()
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
    """The source record of a dead letter, from the dead letter's headers."""

    pipeline: str
    source: TopicPartition
    offset: int
    timestamp_ms: int
    rule: str
    error: str
    headers: Headers  # the record's own


def origin(headers: Headers) -> Origin | None:
    """Return the origin of a dead letter, or None if the headers are not those of a dead letter.

    If there are several blocks of `eos.` headers, the last block counts. Earlier blocks are headers
    of the source record itself, since other applications may write such headers, too.
    """
    at = max((n for n, (name, _) in enumerate(headers) if name == PIPELINE), default=-1)
    texts = {name: (value or b"").decode(errors="replace") for name, value in headers[at:]}
    if at < 0 or not texts.keys() >= _ORIGIN.keys():
        return None
    try:
        found = Origin(
            texts[PIPELINE],
            TopicPartition(texts["eos.topic"], int(texts["eos.partition"])),
            int(texts["eos.offset"]),
            int(texts["eos.timestamp"]),
            texts["eos.rule"],
            texts["eos.error"],
            headers[:at],
        )
    except ValueError:
        return None
    # Any application may write such headers. Impossible numbers would fail each replay.
    numbers = (found.source.partition, found.offset)
    is_possible = min(numbers) >= 0 and max(*numbers, abs(found.timestamp_ms)) < 2**63
    return found if is_possible else None


def counted(refused: Sequence[RejectedRecords]) -> Mapping[str, Mapping[str, int]]:
    """Return how many records each rule rejected, by what happened to them: `dead_letter`, `drop`.

    The ledger record contains this."""
    return {each.rule: {each.answer: each.records} for each in refused}
