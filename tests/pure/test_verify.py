"""What `eos verify` compares beside the logs: table, group, checkpoint, coordinator; its point."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.doubles import plan
from support.errors import raises

from eos.audit import rows as made
from eos.checkpoint.offset_log import CheckpointState
from eos.cli.verify import ProgressBar, _write_dropped
from eos.dedup.stamp_columns import StampRules
from eos.errors import UnavailableError
from eos.finding import FindingKind
from eos.folder import LocalFolder
from eos.inspect.cluster_view import OpenTransaction
from eos.kafka.api import DescribedProducer, Identity, TopicPartition
from eos.kafka.api import DescribedTransaction as Coordinated
from eos.ledger.receipt import Receipt
from eos.ledger.record import LedgerRecord, Position, nested
from eos.verify.audit_table import compare_rows
from eos.verify.chain import Owners
from eos.verify.cross_checks import (
    check_checkpoint,
    check_coordinator,
    check_group,
    check_open,
    newest_checkpoint,
)
from eos.verify.progress import Point, load

A, B = TopicPartition("in", 0), TopicPartition("in", 1)
LEDGER = TopicPartition("l", 0)


def record(number: int) -> LedgerRecord:
    attempt = {
        "number": 1,
        "begun_ms": 1000,
        "starts": nested({A: number * 10}),
        "receipts": [Receipt("out", p, 9, 7, 15, 100, 3).as_json() for p in (0, 1)],
    }
    position = Position({A: number * 10 + 10}, {}, "q", number)
    owner = {"deployment": "d", "host": "h", "process": 1}
    return LedgerRecord("attempt", position, owner, 2000, 2 * number, Identity(5, number), attempt)


def rows(*numbers: int) -> list[dict]:
    every = [record(number) for number in numbers]
    return made.table(made.rows("p", "l", "id", every)).to_pylist()


def differing(found) -> list[str]:
    return [each.message.rpartition(": ")[2] for each in compare_rows("l", rows(1, 2), found)]


def test_a_table_that_says_the_same():
    assert differing(rows(1, 2)[::-1]) == []
    # An aborted attempt that the ledger does not tell of is a run's last word.
    last = {**rows(2)[0], "outcome": "CompleteAbort", "epoch": 77}
    assert differing([*rows(1, 2), last]) == []
    # Of an older release, which did not know the column.
    older = [{**row, "schema_version": 0, "digest": None} for row in rows(1, 2)]
    assert differing(older) == []


@pytest.mark.parametrize("column", [name for name in made.NAMES if name != "schema_version"])
def test_an_edit_of_any_column_is_found(column):
    table = rows(1, 2)
    value = table[2][column]
    others = {int: 12345, bool: True, str: "other", type(None): "something"}
    table[2][column] = others.get(type(value))
    found = list(compare_rows("l", rows(1, 2), table))
    assert found, column
    assert {(each.case, each.at, each.witness.ledger_offset) for each in found} <= {
        ("audit_row", LEDGER, 4),
        ("audit_row", LEDGER, 12345),
    }


def test_rows_that_are_missing_doubled_or_of_nobody():
    table = rows(1, 2)
    assert differing(table[1:]) == ["missing in the table"]
    assert differing([*table, table[0]]) == ["2 times in the table"]
    assert differing([*table, *rows(3)[:1]]) == ["the ledger has no such transaction"]


def level(number: int, ends: dict, query: str = "q", **changes: bool) -> LedgerRecord:
    position = Position(ends, {}, query, number, **changes)
    return LedgerRecord("attempt", position, {}, 0, 2 * number, Identity(5, number), {"number": 1})


LOW = level(4, {A: 10, B: 20})
HIGH = level(5, {A: 12, B: 20})


def group(low: LedgerRecord, high: LedgerRecord, **offsets: int) -> list[tuple]:
    found = {TopicPartition("in", int(p[1:])): o for p, o in offsets.items()}
    return [(each.case, each.at, each.offset) for each in check_group(found, "g", low, high)]


def test_the_group_lies_between_two_looks_at_the_ledger():
    assert group(LOW, LOW, p0=10, p1=20) == []
    assert group(LOW, LOW, p0=11, p1=20) == [("group", A, 11)]
    assert group(LOW, LOW, p0=10) == [("group", B, 0)]
    assert group(LOW, HIGH, p0=12, p1=20) == group(LOW, HIGH, p0=10, p1=20) == []
    assert group(LOW, HIGH, p0=13, p1=20) == [("group", A, 13)]
    (hidden,) = check_group(None, "g", LOW, LOW)
    assert hidden.kind is FindingKind.GONE


def checkpoint(
    low: LedgerRecord, high: LedgerRecord, planned: int, committed: int | None, ends: dict
) -> list:
    found = CheckpointState("c/0001", "q", planned, committed, ends)
    return [each.case for each in check_checkpoint(found, low, high)]


def test_the_checkpoint_is_one_behind_at_most():
    same = {4: {A: 10, B: 20}}
    assert checkpoint(LOW, LOW, 4, 4, same) == []
    assert checkpoint(LOW, LOW, 4, 3, same) == []
    assert checkpoint(LOW, LOW, 5, 4, same) == []
    assert checkpoint(LOW, LOW, 4, 2, same) == ["checkpoint"]
    assert checkpoint(LOW, LOW, 3, 3, {}) == ["checkpoint"]
    assert checkpoint(LOW, LOW, 5, 5, same) == ["checkpoint"]
    assert checkpoint(LOW, HIGH, 5, 5, {5: {A: 12, B: 20}}) == []
    assert checkpoint(LOW, HIGH, 5, 5, {5: {A: 13, B: 20}}) == ["checkpoint"]
    assert checkpoint(LOW, LOW, 4, 4, {4: {A: 10, B: 19}}) == ["checkpoint"]


def test_a_checkpoint_of_another_query():
    other = level(4, {A: 10, B: 20}, query="r")
    assert checkpoint(other, other, 4, 4, {}) == ["checkpoint"]
    assert checkpoint(other, other, 0, None, {}) == []  # a fresh one that has done nothing yet
    # A run began another checkpoint between this read and the second look at the ledger.
    assert checkpoint(LOW, other, 4, 4, {}) == []
    # A run began this checkpoint between the first look at the ledger and this read.
    begun, newer = level(500, {A: 10}, query="r"), level(0, {A: 12})
    assert checkpoint(begun, newer, 1, 0, {0: {A: 12}, 500: {A: 9}}) == []
    assert checkpoint(begun, newer, 1, 0, {0: {A: 13}}) == ["checkpoint"]
    assert checkpoint(begun, newer, 1, 1, {}) == ["checkpoint"]
    moved = level(4, {A: 1, B: 2}, is_reset=True)
    assert checkpoint(moved, moved, 4, 4, {4: {A: 10, B: 20}}) == []
    (unread,) = check_checkpoint(newest_checkpoint(None, "s3a://b/c"), LOW, LOW)
    assert (unread.case, unread.kind) == ("checkpoint_unread", FindingKind.GONE)


@pytest.mark.parametrize(
    ("mine", "newest", "cases"),
    [
        (Identity(5, 5), Identity(5, 4), []),
        (Identity(5, 4), Identity(5, 4), []),
        (Identity(5, 3), Identity(5, 4), ["forged"]),
        (Identity(5, 3), Identity(6, 0), ["forged"]),
        (Identity(7, 0), Identity(5, 4), ["coordinator_unread"]),  # it has written nothing yet
        (Identity(6, 0), Identity(5, 32766), []),  # its epochs ran out
        (None, Identity(5, 4), ["coordinator_unread"]),
    ],
)
def test_whose_the_newest_record_is(mine, newest, cases):
    state = mine and Coordinated("CompleteCommit", mine, 60_000)
    last = replace(LOW.witness, identity=newest)
    owners = Owners()
    owners.know(5)
    owners.know(6)
    found = list(check_coordinator(state, LEDGER, last, last, owners))
    assert [each.case for each in found] == cases
    kinds = {"forged": FindingKind.WRONG, "coordinator_unread": FindingKind.GONE}
    assert [each.kind for each in found] == [kinds[case] for case in cases]


@pytest.mark.parametrize(
    ("owner", "hangs", "case"),
    [
        ("me", False, []),
        ("me", True, ["hanging"]),
        ("", True, ["hanging"]),
        ("", False, ["foreign"]),
        ("somebody", False, ["foreign"]),
    ],
)
def test_what_is_open(owner, hangs, case):
    one = OpenTransaction(A, DescribedProducer(Identity(8, 0), 3, 41), owner, "", hangs)
    found = list(check_open([one], "me"))
    assert [each.case for each in found] == case
    assert {(each.at, each.offset) for each in found} <= {(A, 41)}


def test_a_list_of_dropped_records_on_a_full_disk_is_incomplete():
    """The buffer is written at the end."""
    planned = replace(plan(), dedup=StampRules.__new__(StampRules))
    drop = SimpleNamespace(as_json=dict)
    with (
        raises("dropped_file_cut_short", UnavailableError),
        _write_dropped(Path("/dev/full"), planned) as write,
    ):
        write(drop, LOW.witness)


def test_a_point_comes_back_as_it_was(tmp_path):
    path = tmp_path / "verified" / "eos.p.json"
    file = LocalFolder(path.parent), path.name
    assert load(*file, "p", "id") == (None, "")
    point = Point("p", "id", 8, "now", {A: 10}, {B: 3}, Identity(5, 4), [4, 5], ["2 foreign"])
    point.save(*file)
    assert load(*file, "p", "id") == (point, "")
    changed = replace(point, forgotten=("in",), is_cut=True)
    changed.save(*file)
    assert load(*file, "p", "id") == (changed, "")
    body = json.loads(path.read_text())
    del body["forgotten"], body["is_cut"]  # as older releases write it
    path.write_text(json.dumps(body))
    assert load(*file, "p", "id") == (point, "")
    assert [each.name for each in path.parent.iterdir()] == ["eos.p.json"]
    for of, why in ((("q", "id"), "for pipeline 'p'"), (("p", "other"), "recreated")):
        found, words = load(*file, *of)
        assert found is None
        assert why in words
    for text in ("", "[]", '{"format": 1, "pipeline": "p"}', '{"format": 2, "pipeline": "p"}'):
        path.write_text(text)
        found, words = load(*file, "p", "id")
        assert found is None
        assert str(path) in words, text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("somebody_looks", "wanted"), [(True, True), (True, False), (False, True)])
def test_a_bar_with_an_estimate_where_somebody_looks(monkeypatch, somebody_looks, wanted):
    for name in ("NO_COLOR", "TERM", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    said = Terminal() if somebody_looks else io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    with ProgressBar(is_wanted=wanted) as shown:
        shown.expects(40)
        shown.expects(-1)
        shown.moved(10)
    assert ("10/40" in said.getvalue()) is (somebody_looks and wanted)
    assert ("offsets, left" in said.getvalue()) is (somebody_looks and wanted)
