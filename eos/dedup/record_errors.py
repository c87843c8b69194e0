"""Errors that end the run if dedup rejects a record.

The error names the record's position, producer, epoch and sequence, and the expected sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.dedup.policy import NAMES, OPTIONS, UNSTAMPED, Policy
from eos.dedup.verdict_rows import VerdictRows
from eos.errors import RecordRefusedError
from eos.kafka.api import TopicPartition
from eos.producers.id_text import id_text
from eos.producers.state import VERDICTS, ProducerState, Range, SequenceEvent, after, decide

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

    `details` is a text about the expected number. `has_window` means `scope: producer`."""
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
    state = None if rows.codes[at] == UNSTAMPED else _state(policy, rows, at, before)
    if state is not None and state.epoch == rows.epoch[at].as_py() and state.ranges:
        return f", expected {(state.ranges[-1].last + 1) % policy.rules.sequences}"
    if state is not None:
        return f", the first of its epoch, after epoch {state.epoch}"
    return ""


def expected_number(policy: Policy, rows: VerdictRows, at: int, before: pa.Table) -> int:
    """Return the number that was expected at row `at`, whose verdict is `gap`.

    The number is one above the last accepted number of the same epoch, or 0 in a new epoch.
    Accepted gaps may be frequent. So this function does not replay the producer's records one by
    one, as `expected_text` does."""
    producer, epoch = rows.producer[at], rows.epoch[at]
    own = pc.and_(
        pc.equal(rows.producer.slice(0, at), producer), pc.equal(rows.epoch.slice(0, at), epoch)
    )
    writes = [code for code, each in enumerate(VERDICTS) if policy.rules.writes(each)]
    places = np.asarray(pc.indices_nonzero(own))
    places = places[np.isin(rows.codes[places], writes)]
    if len(places):
        last = rows.sequence[int(places[-1])].as_py()
    else:
        known = before.filter(pc.equal(before.column("producer"), producer)).to_pylist()
        if not known or known[0]["epoch"] != epoch.as_py() or not known[0]["last"]:
            return 0
        last = known[0]["last"][-1]
    return int((last + 1) % policy.rules.sequences)


def producer_text(producer: bytes | None) -> str:
    return _or_none(None if producer is None else id_text(producer))


def partition_name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def _or_none(value: object) -> str:
    return "none" if value is None else str(value)


def _state(policy: Policy, rows: VerdictRows, at: int, before: pa.Table) -> ProducerState | None:
    """Return the producer's state before this row, by replaying its records of the chunk."""
    producer = rows.producer[at].as_py()
    found = before.filter(pc.equal(before.column("producer"), producer)).to_pylist()
    state = _read(found[0]) if found else None
    same = pc.equal(rows.producer.slice(0, at), producer)
    for place in pc.indices_nonzero(same).to_pylist():
        if rows.codes[place] == UNSTAMPED:
            continue
        epoch, number = rows.epoch[place].as_py(), rows.sequence[place].as_py()
        one = SequenceEvent(epoch, number, number)
        state = after(state, one, decide(state, one, policy.rules), policy.rules)
    return state


def _read(row: dict[str, Any]) -> ProducerState:
    ranges = zip(row["first"], row["last"], strict=True)
    return ProducerState(
        row["epoch"], tuple(Range(*each) for each in ranges), row["run"], row["at_ms"]
    )
