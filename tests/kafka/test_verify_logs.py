"""`eos verify` on logs that were changed by hand while their broker was down.

One broker for all cases: each has a finished run of its own, all are edited while it is down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.copies.audit import CopyingPipeline
from support.kafka.brokers import SegmentBatch, batch_at, edit_log

from eos.inspect import cluster_view
from eos.local.embedded_kafka import EmbeddedKafka

RECORD_BYTES = 16  # of each record here, with its lengths
HEADER_BYTES = 61
STRANGER = 424_242

pytestmark = pytest.mark.long  # without a broker: tests/fuzz/test_verify_*.py


def begin(one: CopyingPipeline, number: int, partition: int) -> int:
    return one.attempts()[number]["receipts"][partition]["offset_first"]


def next_offset(found: list[SegmentBatch]) -> int:
    return found[-1].get("base") + found[-1].get("delta") + 1


def lose_a_batch(found: list[SegmentBatch], at: int) -> None:
    del found[batch_at(found, at + 5)]


def lose_a_record(found: list[SegmentBatch], at: int) -> None:
    batch = found[batch_at(found, at)]
    del batch[-RECORD_BYTES:]
    batch.set(size=batch.get("size") - RECORD_BYTES, count=4)


def repeat(found: list[SegmentBatch], at: int) -> None:
    repeat_and_leave_open(found, at)
    marker = SegmentBatch(next(each for each in reversed(found) if each.is_control))
    found.append(marker.set(base=next_offset(found)))


def repeat_and_leave_open(found: list[SegmentBatch], at: int) -> None:
    again = SegmentBatch(found[batch_at(found, at)])
    found.append(again.set(base=next_offset(found)))


def flip_a_bit(found: list[SegmentBatch], at: int) -> None:
    found[batch_at(found, at + 5)][HEADER_BYTES + 12] ^= 4


def flip_a_bit_and_the_checksum(found: list[SegmentBatch], at: int) -> None:
    batch = found[batch_at(found, at + 5)]
    batch[HEADER_BYTES + 12] ^= 4
    batch.set()


def swap_two_batches(found: list[SegmentBatch], at: int) -> None:
    first, second = batch_at(found, at), batch_at(found, at + 5)
    found[first], found[second] = found[second].set(base=at), found[first].set(base=at + 5)


def swap_two_records(found: list[SegmentBatch], at: int) -> None:
    batch = found[batch_at(found, at)]
    values = [slice(place, place + 6) for place in (HEADER_BYTES + 9, HEADER_BYTES + 25)]
    batch[values[0]], batch[values[1]] = batch[values[1]], batch[values[0]]
    batch.set()


def cut_the_end(found: list[SegmentBatch], at: int) -> None:
    del found[batch_at(found, at) :]


def leave_a_transaction_open(found: list[SegmentBatch], at: int) -> None:
    stranger = SegmentBatch(found[batch_at(found, at)])
    end = next_offset(found)
    found.append(stranger.set(base=end, producer=STRANGER, epoch=0, sequence=0))


def forget_what_was_aborted(one: CopyingPipeline, data: Path) -> None:
    for path in data.glob(f"{one.target}-0/*.txnindex"):
        path.unlink()


def source_hole(found: list[SegmentBatch], _at: int) -> None:
    del found[0]


@dataclass(frozen=True)
class Case:
    """`change` gets the log's record batches and where the second attempt's records begin.
    `offset`: of the witness, from there; of the end if it is None. `attempt`: its micro-batch."""

    change: Callable[..., None]
    finding: str
    offset: int | None = 0
    attempt: int | None = 1
    topic: str = "out"
    config: tuple[tuple[str, str], ...] = ()
    kind: str = "disagreement"


CASES = {
    "a lost record batch": Case(lose_a_batch, "lost", 5),
    "a lost record": Case(lose_a_record, "lost"),
    "a duplicate": Case(repeat, "duplicate", None, None),
    "one bit": Case(flip_a_bit, "changed", 5),
    "one bit and its checksum": Case(flip_a_bit_and_the_checksum, "changed"),
    "swapped record batches": Case(swap_two_batches, "order", 5),
    "swapped records": Case(swap_two_records, "changed"),
    "a truncated target": Case(cut_the_end, "truncated"),
    "a hanging transaction": Case(leave_a_transaction_open, "hanging", None, None),
    "one of our own that hangs": Case(repeat_and_leave_open, "hanging", None, None),
    "what compaction removed": Case(
        lose_a_batch,
        "compaction",
        0,
        None,
        config=(("cleanup_policy", "compact"),),
        kind="out of reach",
    ),
    "a hole in the source": Case(source_hole, "source_hole", topic="in", attempt=None),
}


@dataclass(frozen=True)
class Damaged:
    of: CopyingPipeline
    offset: int | None


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """All cases, and a run whose aborted records become visible; one that nobody touches."""
    root = tmp_path_factory.mktemp("logs")
    made: dict[str, CopyingPipeline] = {}
    with EmbeddedKafka(root / "broker") as broker:
        for number, name in enumerate((*CASES, "aborted", "untouched")):
            one = made[name] = CopyingPipeline(root / f"p{number}", broker.bootstrap, f"d-{number}")
            (root / f"p{number}").mkdir(exist_ok=True)
            case = CASES.get(name)
            if case is not None and case.config:
                one.set_topic(one.target, **dict(case.config))
            with one.running() as run:
                for count in (10, 15):
                    one.fill(count)
                    run.fails = int(name == "aborted" and count == 15)
                    run.step()
                run.stop()
            one.audited()
        starts = {name: begin(one, 1, 0) for name, one in made.items()}
        data = broker.nodes[0].data
    ends = {}
    for name, case in CASES.items():
        one = made[name]

        def change(found: list[SegmentBatch], name=name, case=case) -> None:
            ends[name] = next_offset(found)
            case.change(found, starts[name])

        edit_log(data, f"{one.name}.{case.topic}", 0, change)
    forget_what_was_aborted(made["aborted"], data)
    with EmbeddedKafka(root / "broker") as broker:
        found = {}
        for name, one in made.items():
            one.close()
            one.bootstrap = broker.bootstrap
            one.declare()
            case = CASES.get(name)
            where = None
            if case is not None:
                where = ends[name] if case.offset is None else starts[name] + case.offset
                where = 0 if case.topic == "in" else where
            found[name] = Damaged(one, where)
        yield found


@pytest.mark.parametrize("name", CASES)
def test_what_was_changed_is_found(damaged, name, monkeypatch):
    monkeypatch.setattr(cluster_view, "_MARKER_MS", 300)  # for a marker that will never come
    case, one = CASES[name], damaged[name]
    told = one.of.found()
    smallest = told["smallest"]
    assert (smallest["case"], smallest["kind"]) == (case.finding, case.kind), told["findings"]
    where = one.of.name + "." + case.topic
    assert (smallest["topic"], smallest["partition"]) == (where, 0)
    assert smallest["offset"] == one.offset
    attempt = smallest["attempt"] and smallest["attempt"]["batch_id"]
    assert attempt == case.attempt
    assert len(told["findings"]) == 1, told["findings"]


def test_the_same_in_words(damaged):
    one = damaged["a lost record"]
    said = one.of.verify()
    assert said.code == 1
    last = said.out.splitlines()[-1]
    begins = f"smallest witness: lost, topic {one.of.target}, partition 0, offset {one.offset}, "
    assert last.startswith(begins + "micro-batch 1 (ledger offset ")


def test_what_was_aborted_and_is_visible_all_the_same(damaged):
    told = damaged["aborted"].of.found()
    assert told["smallest"]["case"] == "visible"
    assert "are visible without a committed transaction" in told["smallest"]["message"]
    assert any("marker in the log is ABORT" in each["message"] for each in told["findings"])


def test_what_nobody_touched(damaged):
    assert damaged["untouched"].of.verify().code == 0
