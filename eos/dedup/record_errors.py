"""Which error ends the run for a record: its producer, its stamp, and the expected number?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.dedup.policy import NAMES, OPTIONS, UNSTAMPED, Policy
from eos.dedup.verdict_rows import VerdictRows
from eos.errors import RecordRefusedError
from eos.kafka.api import TopicPartition
from eos.producers.state import VERDICTS, ProducerState, Range, SequenceEvent, after, decide

_CAUSES = {
    "gap": "records before it never came here: did the upstream drop some, or another partition "
    "get them (`scope: producer`)? If they will come no more, `eos recover PIPELINE --accept-gap` "
    "goes on once without them",
    "gap in a window": "records before it never came: did the upstream drop some, or is a "
    "partition read further behind than `window`? If they will come no more, `eos recover PIPELINE "
    "--accept-gap` goes on once without them",
    "late": "it begins below what is next, and that all of it was here before is not proven: did "
    "the upstream reorder what it sends?",
    "unknown_producer": "its first records were here before dedup was, or its state was forgotten",
    "unstamped": "does every upstream stamp its records? Epoch and sequence are whole numbers, 0 "
    "to 2^62 - 1, below `wraps_at` where they wrap; docs/dedup.md shows how",
}


def refusal(
    pipeline: str, rows: VerdictRows, at: int, says_more: str, *, has_window: bool = False
) -> RecordRefusedError:
    """Return the error for the row `at`.

    `says_more` names the expected number. `has_window` means `scope: producer`."""
    name = NAMES[rows.codes[at]]
    tp = TopicPartition(rows.topic[at].as_py(), rows.partition[at].as_py())
    offset, epoch = rows.offset[at].as_py(), rows.epoch[at].as_py()
    producer, sequence = told(rows.producer[at].as_py()), rows.sequence[at].as_py()
    says = f"producer {producer}, epoch {_or_none(epoch)}, sequence {_or_none(sequence)}"
    words = {"unknown_producer": "from a producer that is not known"}.get(name, f"a verdict {name}")
    if name == "unstamped":
        words = "without a stamp that can be meant"
    cause = _CAUSES["gap in a window" if name == "gap" and has_window else name]
    keeps = "" if name == "unknown_producer" else ", `dead_letter` keeps them in a topic"
    return RecordRefusedError(
        "producer_refused",
        f"{pipeline}: the record {named(tp)} at offset {offset} is {words} ({says}{says_more}); "
        "nothing of the micro-batch is committed",
        hint=f"{cause.replace('PIPELINE', pipeline)}. `{OPTIONS[name]}: accept` under "
        f"`dedup` takes all such records{keeps}",
        verdict=name,
        source_topic=tp.topic,
        source_partition=tp.partition,
        source_offset=offset,
        producer=producer,
    )


def expected(policy: Policy, rows: VerdictRows, at: int, before: pa.Table) -> str:
    """Return the text about the expected number, for a producer with one sequence per partition.

    `before` has the producers' states at the beginning of the chunk."""
    state = None if rows.codes[at] == UNSTAMPED else _state(policy, rows, at, before)
    if state is not None and state.epoch == rows.epoch[at].as_py() and state.ranges:
        return f", where {(state.ranges[-1].last + 1) % policy.rules.sequences} is next"
    if state is not None:
        return f", the first of its epoch: the one before was {state.epoch}"
    return ""


def awaited(policy: Policy, rows: VerdictRows, at: int, before: pa.Table) -> int:
    """Return the number that was expected at the row `at`, which is a gap.

    It is one after the last accepted number of the same epoch. Unlike `expected`, this does not
    replay the records one by one. A gap that does not end the run may occur often."""
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


def told(producer: bytes | None) -> str:
    return _or_none(None if producer is None else producer.decode(errors="backslashreplace"))


def named(tp: TopicPartition) -> str:
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
