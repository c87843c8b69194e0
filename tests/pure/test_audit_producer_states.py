"""The replica of the leaders' producer states, replayed from ledger records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eos.audit import producer_rows
from eos.audit.producer_states import PRODUCERS_MAX, EntryKey, ProducerStates
from eos.audit.producers_projection import LedgerChunk, LedgerSource, ProducersProjection
from eos.audit.table import ProducersTable
from eos.deadline import Deadline
from eos.errors import UnavailableError
from eos.inspect.producers_live import RowStatus, compare
from eos.kafka.api import DescribedProducer, DescribedTransaction, Identity, TopicPartition
from eos.kafka.records.parser import Marker
from eos.kafka.transaction_states import TransactionPhase
from eos.ledger.receipt import AppendedBatch, Receipt
from eos.ledger.record import LedgerRecord, Position
from eos.producers.broker import BrokerVerdict
from eos.producers.state import Range

LEDGER, OUT = TopicPartition("ledger", 0), TopicPartition("out", 0)
KEY = EntryKey(OUT, 9)
DAY_MS = 86_400_000


def batches(*counts: int, offset: int = 100) -> tuple[AppendedBatch, ...]:
    """Record batches in sequence, with a marker or a stranger's record between them."""
    found, first = [], 0
    for count in counts:
        found.append(AppendedBatch(first, first + count - 1, offset, offset + count - 1, 7))
        first, offset = first + count, offset + count + 1
    return tuple(found)


def receipt(written: tuple[AppendedBatch, ...], partition: int = 0) -> Receipt:
    records = written[-1].sequence_last + 1
    offsets = written[0].offset_first, written[-1].offset_last
    return Receipt("out", partition, records, *offsets, 50, 1, written[-5:])


def attempt(epoch: int, *receipts: Receipt, producer_id: int = 9, **more: Any) -> LedgerRecord:
    fields = {"number": 1, "starts": {}, "receipts": [each.as_json() for each in receipts]}
    record = LedgerRecord(
        "attempt",
        Position({}, {}, "q", epoch),
        {},
        1_000 * epoch,
        2 * epoch,
        Identity(producer_id, epoch),
        fields,
    )
    return replace(record, **more)


def tv2(record: LedgerRecord, coordinator_epoch: int = 3) -> Marker:
    next_epoch = record.identity._replace(epoch=record.identity.epoch + 1)
    return Marker(record.offset + 1, next_epoch, True, coordinator_epoch, record.at_ms + 5)


def tv1(record: LedgerRecord) -> Marker:
    return tv2(record)._replace(identity=record.identity)


def replayed(*records: LedgerRecord, marker=tv2) -> ProducerStates:
    states = ProducerStates(LEDGER)
    for record in records:
        assert states.apply(record, marker(record)) == []
    return states


def test_a_marker_of_tv2_leaves_the_next_epoch_without_record_batches():
    written = batches(2, 3)
    entry = replayed(attempt(0, receipt(written))).entries[KEY]
    assert (entry.state.epoch, entry.state.ranges, entry.sequence_last) == (1, (), -1)
    assert (entry.batches, entry.batches_epoch) == (written, 0)
    assert (entry.state.at_ms, entry.coordinator_epoch, entry.ledger_offset) == (5, 3, 0)


def test_a_marker_of_tv1_keeps_them():
    entry = replayed(attempt(0, receipt(batches(2, 3))), marker=tv1).entries[KEY]
    assert (entry.state.epoch, entry.state.ranges) == (0, (Range(0, 1), Range(2, 4)))
    assert (entry.sequence_last, entry.state.run) == (4, 5)


@pytest.mark.parametrize("marker", [tv1, tv2])
def test_of_many_record_batches_the_last_five_are_kept(marker):
    written = batches(*[2] * 9)
    states = replayed(attempt(0, receipt(written)), marker=marker)
    assert states.entries[KEY].batches == written[-5:]
    assert states.entries[EntryKey(LEDGER, 9)].batches == (AppendedBatch(0, 0, 0, 0, 0),)


def test_a_receipt_of_an_older_release_is_taken_as_one_record_batch():
    older = replace(receipt(batches(2, 3)), batches=())
    states = replayed(attempt(0, older), marker=tv1)
    assert states.entries[KEY].batches == (AppendedBatch(0, 4, 100, 105, 0),)
    assert states.entries[KEY].sequence_last == 4


def falsified(**more: Any) -> tuple[AppendedBatch, ...]:
    written = list(batches(2, 3, 4))
    written[1] = written[1]._replace(**more)
    return tuple(written)


@pytest.mark.parametrize(
    ("written", "cases"),
    [
        (batches(2, 3, 4), []),
        (batches(2, 3, 4)[1:], ["verdict"]),  # the first one was never sent
        (batches(2, 3, 4)[:1] + batches(2, 3, 4)[2:], ["verdict"]),
        (batches(2, 3)[:1] * 2 + batches(2, 3)[1:], ["verdict", "receipt", "receipt"]),
        (falsified(sequence_first=3), ["verdict", "receipt"]),
        (falsified(sequence_first=1), ["verdict", "receipt"]),
        (falsified(offset_first=90, offset_last=92), ["receipt"]),
        (falsified(offset_last=109), ["receipt", "receipt"]),
        (falsified(sequence_last=5), ["verdict", "receipt"]),
    ],
)
def test_a_falsified_receipt_is_found(written, cases):
    states = ProducerStates(LEDGER)
    honest = receipt(batches(2, 3, 4))
    record = attempt(0, replace(honest, batches=written))
    found = states.apply(record, tv2(record))
    assert [each.case for each in found] == cases
    assert list(states.findings) == found
    if "verdict" in cases:
        assert states.entries[KEY].verdict is not BrokerVerdict.APPENDED
        assert all(each.ledger_offset == 0 for each in found)


def test_findings_of_a_chunk_are_reported_although_the_next_chunk_could_not_be_read(tmp_path: Path):
    wrong = attempt(0, replace(receipt(batches(2, 3, 4)), batches=batches(2, 3, 4)[1:]))
    right = attempt(1, receipt(batches(2, offset=200)))
    names = "orders", LEDGER, "id", "orders", "orders/id"
    source = LedgerSource(*names, 0, 3, (DAY_MS, DAY_MS), has_rows=False)
    projection = ProducersProjection(ProducersTable(tmp_path / "producers"))
    is_down = True

    def read(first: int, _end: int, _deadline: Deadline) -> LedgerChunk:
        if first and is_down:
            raise UnavailableError("example", "no broker answers")
        record = right if first else wrong
        return LedgerChunk([record], {record.offset: tv2(record)}, bool(first))

    arguments = source, read, lambda _: None, Deadline.after_ms(60_000)
    with pytest.raises(UnavailableError):
        projection.catch_up(*arguments)
    is_down = False
    result = projection.catch_up(*arguments)
    assert (result.until, [each.case for each in result.findings]) == (2, ["verdict"])
    assert projection.catch_up(*arguments).findings == result.findings, "nobody reported them yet"
    projection.reported()
    assert projection.catch_up(*arguments).findings == []


def test_sums_that_the_record_batches_contradict_are_found():
    honest = receipt(batches(2, 3, 4))
    for wrong in ({"records": 7}, {"offset_last": 200}, {"offset_first": 99}):
        record = attempt(0, replace(honest, **wrong))
        (found,) = ProducerStates(LEDGER).apply(record, tv2(record))
        assert found.case == "receipt"


def test_an_epoch_of_a_replaced_producer_is_fenced():
    states = replayed(attempt(4, receipt(batches(2))))
    older = attempt(2, receipt(batches(3, offset=300)), offset=10)
    found = states.apply(older, tv2(older))
    assert {each.case for each in found} == {"verdict"}
    assert "is fenced by producer 9/5" in found[0].message
    assert any("invalid_epoch after epoch 5" in each.message for each in found)
    states = replayed(
        attempt(4, receipt(batches(2))), attempt(0, producer_id=11, offset=10, at_ms=9_000)
    )
    rotated = attempt(5, offset=12)
    (found,) = states.apply(rotated, tv2(rotated))
    assert "is fenced by producer 11/1" in found.message


def test_a_marker_of_an_older_coordinator_is_fenced():
    states = replayed(attempt(0))
    record = attempt(1)
    (found,) = states.apply(record, tv2(record, coordinator_epoch=2))
    assert "coordinator epoch 2, but is fenced by coordinator epoch 3" in found.message


def test_after_an_aborted_attempt_entries_are_unknown_until_a_later_epoch_writes():
    other = EntryKey(TopicPartition("out", 1), 9)
    states = replayed(attempt(0, receipt(batches(2)), receipt(batches(4), 1)))
    assert states.is_known(KEY)
    assert states.is_known(other)
    failed = ({"producer_id": 9, "epoch": 1},)
    record = attempt(2, receipt(batches(2, offset=200)), failed=failed)
    assert states.apply(record, tv2(record)) == []
    assert states.is_known(KEY)
    assert not states.is_known(other)
    record = attempt(3, receipt(batches(4, offset=300), 1))
    assert states.apply(record, tv2(record)) == []
    assert states.is_known(other)


@pytest.mark.parametrize(
    ("marker", "kind", "epoch", "is_known"),
    [
        (tv2, "attempt", 1, True),
        (tv2, "attempt", 2, False),  # an abort that no record lists
        (tv2, "start", 2, True),  # the init of a startup
        (tv2, "start", 3, False),  # which ended an open transaction
        (tv1, "attempt", 1, True),
        (tv1, "start", 1, True),
        (tv1, "attempt", 2, False),
    ],
)
def test_epochs_that_nobody_reports_may_have_been_aborted(marker, kind, epoch, is_known):
    states = replayed(attempt(0, receipt(batches(2))), marker=marker)
    record = attempt(epoch, kind=kind, attempt=None)
    assert states.apply(record, marker(record)) == []
    assert states.is_known(KEY) is is_known


def test_an_idle_producer_is_forgotten_and_so_is_the_transactional_id():
    states = replayed(attempt(0, receipt(batches(2))))
    entry = states.entries[KEY]
    record = attempt(1, receipt(batches(2, offset=200), 1), at_ms=3 * DAY_MS)
    states.apply(record, tv2(record))
    states.expire()
    assert KEY not in states.entries
    assert EntryKey(TopicPartition("out", 1), 9) in states.entries
    assert entry.state.at_ms == 5
    found = states.coordinator
    assert found.phase_at(4 * DAY_MS, 7 * DAY_MS) is TransactionPhase.COMPLETE_COMMIT
    assert found.phase_at(10 * DAY_MS + 10, 7 * DAY_MS) is TransactionPhase.DEAD


def test_the_number_of_producer_ids_is_bounded():
    states = ProducerStates(LEDGER)
    for number in range(PRODUCERS_MAX + 9):
        record = attempt(0, producer_id=number, offset=2 * number, at_ms=number)
        states.apply(record, tv2(record))
        states.expire()
    ids = {key.producer_id for key in states.entries}
    assert ids == set(range(9, PRODUCERS_MAX + 9))


def test_rows_have_all_of_the_state():
    states = replayed(attempt(2, receipt(batches(*[3] * 7)), receipt(batches(4), 1)))
    aborted = attempt(4, receipt(batches(1, offset=400)), failed=({"producer_id": 9, "epoch": 3},))
    wrong = replace(receipt(batches(2, 3, offset=600)), batches=batches(2, 3, offset=600)[1:])
    for record in (aborted, attempt(5, wrong)):
        states.apply(record, tv1(record))
    states.ledger_from, states.producer_idle_ms = 2, 99
    table = producer_rows.table("p", "tx", "lid", states)
    assert producer_rows.states_of(table.to_pylist(), LEDGER, "lid") == states
    assert states.findings_count == 1
    rows = {(row["topic"], row["partition"]): row for row in table.to_pylist()}
    assert rows["out", 0]["first"] == [2]
    assert rows["out", 1]["state"] == "unknown"
    assert rows[None, None]["state"] == "CompleteCommit"
    assert rows[None, None]["transactional_id"] == "tx"
    assert not producer_rows.states_of(table.to_pylist(), LEDGER, "another").entries


def leader(states: ProducerStates, key: EntryKey, **more: Any) -> DescribedProducer:
    entry = states.entries[key]
    identity = Identity(key.producer_id, more.pop("epoch", entry.state.epoch))
    own = {"coordinator_epoch": entry.coordinator_epoch, "last_ms": 0}
    last = more.pop("sequence_last", entry.sequence_last)
    return DescribedProducer(identity, last, more.pop("start", -1), **{**own, **more})


AT_REST = DescribedTransaction("CompleteCommit", Identity(9, 6), 1)
OPEN = DescribedTransaction("Ongoing", Identity(9, 6), 1)
LATER = DescribedTransaction("CompleteAbort", Identity(9, 8), 1)
ROTATED = DescribedTransaction("Ongoing", Identity(11, 0), 1)


@pytest.mark.parametrize(
    ("more", "coordinator", "status", "words"),
    [
        ({}, AT_REST, RowStatus.SAME, ""),
        ({"epoch": 7}, AT_REST, RowStatus.DIFFERS, "epoch is 6 in the table, 7 at the leader"),
        ({"epoch": 5}, AT_REST, RowStatus.DIFFERS, "epoch is 6 in the table, 5 at the leader"),
        ({"sequence_last": 4}, AT_REST, RowStatus.DIFFERS, "last sequence is -1"),
        ({"start": 70}, AT_REST, RowStatus.DIFFERS, "open transaction is -1 in the table, 70"),
        ({"coordinator_epoch": 4}, AT_REST, RowStatus.DIFFERS, "coordinator epoch is 3"),
        ({"start": 70, "sequence_last": 2}, OPEN, RowStatus.NEWER, ""),
        ({"start": 70, "epoch": 8}, OPEN, RowStatus.DIFFERS, "epoch is 6"),
        ({"epoch": 8}, LATER, RowStatus.NEWER, ""),
        ({"epoch": 7}, ROTATED, RowStatus.NEWER, ""),
        ({"epoch": 7}, None, RowStatus.DIFFERS, "epoch is 6"),
    ],
)
def test_a_row_beside_its_leader(more, coordinator, status, words):
    states = replayed(*(attempt(epoch, receipt(batches(2))) for epoch in (4, 5)))
    own = EntryKey(LEDGER, 9)
    producers = {OUT: [leader(states, KEY, **more)], LEDGER: [leader(states, own)]}
    found = compare(states, producers, coordinator, 6_000)
    (compared,) = (each for each in found.entries if each.key == KEY)
    assert compared.status is status
    assert bool(found.findings) == (status is RowStatus.DIFFERS)
    assert words in "".join(each.message for each in found.findings)


def test_entries_that_only_one_side_has():
    states = replayed(attempt(0, receipt(batches(2))))
    own = EntryKey(LEDGER, 9)
    at_rest = AT_REST._replace(identity=Identity(9, 1))
    found = compare(states, {LEDGER: [leader(states, own)]}, at_rest, 6_000)
    assert [each.status for each in found.entries] == [RowStatus.SAME, RowStatus.DIFFERS]
    assert "the leader does not know it" in found.findings[0].message
    late = compare(states, {}, at_rest, 2 * DAY_MS)
    assert {each.status for each in late.entries} == {RowStatus.EXPIRED}
    second = TopicPartition("out", 1)
    producers = {
        LEDGER: [leader(states, own)],
        OUT: [leader(states, KEY), DescribedProducer(Identity(77, 3), 5, -1)],  # a stranger
        second: [DescribedProducer(Identity(9, 1), -1, -1)],
    }
    found = compare(states, producers, at_rest, 6_000)
    assert [each.status.value for each in found.entries] == ["same", "same", "differs"]
    assert "the table has no row" in found.findings[0].message
    states.aborted[9] = 0
    found = compare(states, producers, at_rest, 6_000)
    assert [each.status.value for each in found.entries] == ["same", "same", "unknown"]


def test_a_coordinator_that_is_older_than_the_table_is_found():
    states = replayed(attempt(3))
    older = AT_REST._replace(identity=Identity(9, 2))
    producers = {LEDGER: [leader(states, EntryKey(LEDGER, 9))]}
    (found,) = compare(states, producers, older, 6_000).findings
    assert "the coordinator has producer 9/2, and the table the newer 9/4" in found.message
