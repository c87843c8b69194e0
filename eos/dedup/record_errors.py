"""Errors that end the run if dedup rejects a record.

The error names the record's position, producer, epoch and sequence, and the expected sequence.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.dedup.policy import NAMES, OPTIONS, UNSTAMPED, Policy
from eos.dedup.verdict_rows import VerdictRows
from eos.errors import RecordRefusedError
from eos.kafka.api import TopicPartition
from eos.producers.id_text import id_text
from eos.producers.state import VERDICTS

_CAUSES = {
    "gap": "earlier records of this producer never arrived: did the upstream drop some, or send "
    "them to another partition (`scope: producer`)? If they will never arrive, run `eos recover "
    "PIPELINE --accept-gap` to continue once without them",
    "gap in a window": "earlier records of this producer never arrived: did the upstream drop "
    "some, or does one partition lag by more than `window`? If they will never arrive, run `eos "
    "recover PIPELINE --accept-gap` to continue once without them",
    "late": "its number is below the expected one, and it is not proven to be a duplicate: did the "
    "upstream reorder its records?",
    "unknown_producer": "the producer sent its first records before dedup was enabled, or dedup's "
    "state of the producer expired",
    "unstamped": "does every upstream stamp its records? Epoch and sequence are whole numbers, 0 "
    "to 2^62 - 1, below `wraps_at` where they wrap; docs/dedup.md shows how",
}


def refusal(
    pipeline: str, rows: VerdictRows, at: int, details: str, *, has_window: bool = False
) -> RecordRefusedError:
    """Return the error that ends the run because of the record in row `at`.

    `details` is a text about the expected number. `has_window` is for `scope: producer`:
    the hint about a gap then names `window`."""
    name = NAMES[rows.codes[at]]
    tp = TopicPartition(rows.topic[at].as_py(), rows.partition[at].as_py())
    offset, producer = rows.offset[at].as_py(), producer_text(rows.producer[at].as_py())
    epoch, sequence = _or_none(rows.epoch[at].as_py()), _or_none(rows.sequence[at].as_py())
    partition = partition_name(tp)
    cause = _CAUSES["gap in a window" if name == "gap" and has_window else name]
    keeps = "" if name == "unknown_producer" else ", `dead_letter` writes them to a topic"
    cause, option = cause.replace("PIPELINE", pipeline), OPTIONS[name]
    return RecordRefusedError(
        "producer_refused",
        f"{pipeline}: dedup rejected the record of {partition} at offset {offset}, with verdict "
        f"{name}, and `{option}` is fail (producer {producer}, epoch {epoch}, sequence {sequence}"
        f"{details}); nothing of the micro-batch is committed",
        hint=f"{cause}. `{option}: accept` under `dedup` accepts all such records{keeps}",
        verdict=name,
        source_topic=tp.topic,
        source_partition=tp.partition,
        source_offset=offset,
        producer=producer,
    )


def expected_text(policy: Policy, rows: VerdictRows, at: int, before: pa.Table) -> str:
    """Return a text about the number that was expected at row `at`, with `scope: partition`.

    It is empty if the producer was unknown or the record has no stamp. `before` has the producers'
    states before these rows."""
    newest = None if rows.codes[at] == UNSTAMPED else _newest(policy, rows, at, before)
    if newest is None:
        return ""
    epoch, last = newest
    if epoch == rows.epoch[at].as_py():
        return f", expected {(last + 1) % policy.rules.sequences}"
    return f", the first of its epoch, after epoch {epoch}"


def expected_number(policy: Policy, rows: VerdictRows, at: int, before: pa.Table) -> int:
    """Return the number that was expected at row `at`, whose verdict is `gap`.

    The number is one above the last accepted number of the same epoch, or 0 in a new epoch."""
    newest = _newest(policy, rows, at, before)
    if newest is None or newest[0] != rows.epoch[at].as_py():
        return 0
    return int((newest[1] + 1) % policy.rules.sequences)


def _newest(policy: Policy, rows: VerdictRows, at: int, before: pa.Table) -> tuple[int, int] | None:
    """Return the newest epoch of the row's producer, and its last accepted number, before row `at`.

    None if the producer was unknown."""
    producer = rows.producer[at]
    writes = [code for code, each in enumerate(VERDICTS) if policy.rules.writes(each)]
    own = np.asarray(pc.indices_nonzero(pc.equal(rows.producer.slice(0, at), producer)))
    own = own[np.isin(rows.codes[own], writes)]
    if len(own):
        row = int(own[-1])
        return rows.epoch[row].as_py(), rows.sequence[row].as_py()
    known = before.filter(pc.equal(before.column("producer"), producer)).to_pylist()
    return (known[0]["epoch"], known[0]["last"][-1]) if known and known[0]["last"] else None


def producer_text(producer: bytes | None) -> str:
    return _or_none(None if producer is None else id_text(producer))


def partition_name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def _or_none(value: object) -> str:
    return "none" if value is None else str(value)
