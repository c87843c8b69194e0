"""What `eos audit` says of upstream producers: from the ledger's record to its words."""

from __future__ import annotations

from eos.audit import rows
from eos.audit.dedup_summary import Producers
from eos.audit.history import summary, transactions
from eos.inspect.audit_render import AuditResult, as_json
from eos.kafka.api import Identity, TopicPartition
from eos.ledger.record import LedgerRecord, Position

TOLD = {
    "verdicts": {"appended": 5, "duplicate": 3, "gap": 1},
    "expired": 2,
    "producers": [["in", 0, "till-7", "duplicate", 3, 40, 44]],
    "producers_more": 1,
    "states": 12,
    "gaps": [["in", 1, "till-8", 2, 20, 25, 77]],
}


def record(number: int, dedup: dict, targets: int) -> LedgerRecord:
    receipts = [
        {"topic": "out", "partition": p, "digest": 0, **dict.fromkeys(rows._TARGET, 0)}
        for p in range(targets)
    ]
    attempt = {"number": 1, "starts": {"in": {"0": 0}}, "receipts": receipts, "dedup": dedup}
    position = Position({TopicPartition("in", 0): 9}, {}, "q", number)
    return LedgerRecord("attempt", position, {}, 0, number, Identity(1, number), attempt)


def test_from_the_ledger_to_words():
    again = {**TOLD, "states": 1234, "producers": [["in", 0, "till-7", "duplicate", 3, 20, 70]]}
    ledger = [record(0, TOLD, 3), record(1, again, 0), record(2, {}, 2)]
    table = rows.table(rows.rows("p", "l", "lid", ledger))
    # Once a transaction, however many targets it has.
    assert [bool(text) for text in table.column("dedup").to_pylist()].count(True) == 2
    found = table.to_pylist()
    sums = summary(transactions([*reversed(found[:3]), *found[3:]])).producers
    assert list(sums.lines()) == [
        "dedup       10 records in sequence; 6 duplicate dropped; 2 gap accepted",
        "            1,234 states of producers",
        "            4 states of idle producers expired",
        "producer    till-7, in-0: 6 duplicate, offsets 20 to 70",
        "gap         till-8, epoch 2, in-1: expected 20, got 25, offset 77",
        "gap         till-8, epoch 2, in-1: expected 20, got 25, offset 77",
        "            and 2 more (--json has those that the ledger lists)",
    ]
    (told,) = sums.as_json()["producers"]
    assert (told["producer"], told["records"], told["offsets"]) == ("till-7", 6, [20, 70])
    assert sums.as_json()["states"] == 1234
    assert sums.as_json()["gaps"][0]["expected"] == 20
    assert as_json(audited(found))["transactions"][0]["producer_states"] is None


def audited(found: list) -> AuditResult:
    shown = list(transactions([*reversed(found[:3]), *found[3:]]))
    return AuditResult("p", "l", "t", shown, summary(shown), [])


def test_of_many_gaps_the_newest_are_shown():
    sums = Producers()
    for number in range(1100):
        gaps = [["in", 0, "a", 0, number, number + 2, number]]
        sums.add({"verdicts": {"gap": 1}, "gaps": gaps})
    assert len(sums.as_json()["gaps"]) == 1000
    found = [line for line in sums.lines() if "gap  " in line]
    assert len(found) == 20
    assert found[-1].endswith("expected 1099, got 1101, offset 1099")
    assert "and 980 gaps before them (--json)" in "".join(sums.lines())


def test_dead_letters_are_not_accepted():
    sums = Producers()
    sums.add({"verdicts": {"appended": 1, "gap": 3, "late": 2}, "dead_letters": {"gap": 3}})
    (line,) = sums.lines()
    assert line.endswith("none dropped; 2 late accepted; 3 gap to the dead letters")
    assert sums.as_json()["dead_letters"] == {"gap": 3}


def test_a_pipeline_without_dedup_says_nothing():
    assert list(Producers().lines()) == []
