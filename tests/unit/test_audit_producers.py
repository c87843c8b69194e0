"""What `eos audit` says of upstream producers: from the ledger's record to its words."""

from __future__ import annotations

from eos.audit import rows
from eos.audit.history import summary, transactions
from eos.audit.producers import Producers
from eos.transaction.ledger_record import Position, Record
from eos.transaction.port import Identity, TopicPartition

TOLD = {
    "verdicts": {"appended": 5, "duplicate": 3, "gap": 1},
    "expired": 2,
    "producers": [["in", 0, "till-7", "duplicate", 3, 40, 44]],
    "producers_more": 1,
}


def record(number: int, dedup: dict, targets: int) -> Record:
    receipts = [
        {"topic": "out", "partition": p, "digest": 0, **dict.fromkeys(rows._TARGET, 0)}
        for p in range(targets)
    ]
    attempt = {"number": 1, "starts": {"in": {"0": 0}}, "receipts": receipts, "dedup": dedup}
    position = Position({TopicPartition("in", 0): 9}, {}, "q", number)
    return Record("attempt", position, {}, 0, number, Identity(1, number), attempt)


def test_from_the_ledger_to_words():
    again = {**TOLD, "producers": [["in", 0, "till-7", "duplicate", 3, 20, 70]]}
    ledger = [record(0, TOLD, 3), record(1, again, 0), record(2, {}, 2)]
    table = rows.table(rows.rows("p", "l", "lid", ledger))
    # Once a transaction, however many targets it has.
    assert [bool(text) for text in table.column("dedup").to_pylist()].count(True) == 2
    found = table.to_pylist()
    sums = summary(transactions([*reversed(found[:3]), *found[3:]])).producers
    assert list(sums.lines()) == [
        "dedup       10 records were next; 6 duplicate dropped; 2 gap accepted",
        "            4 producers forgotten, which sent nothing for long",
        "producer    till-7, in-0: 6 duplicate, offsets 20 to 70",
        "            and 2 more (--json has those that the ledger names)",
    ]
    (told,) = sums.as_json()["producers"]
    assert (told["producer"], told["records"], told["offsets"]) == ("till-7", 6, [20, 70])


def test_dead_letters_are_not_accepted():
    sums = Producers()
    sums.add({"verdicts": {"appended": 1, "gap": 3, "late": 2}, "dead_letters": {"gap": 3}})
    (line,) = sums.lines()
    assert line.endswith("none dropped; 2 late accepted; 3 gap to the dead letters")
    assert sums.as_json()["dead_letters"] == {"gap": 3}


def test_a_pipeline_without_dedup_says_nothing():
    assert list(Producers().lines()) == []
