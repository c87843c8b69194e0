"""The checker of histories finds each anomaly in a broken history, and nothing in a sound one."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from history import checker, events, ledger
from history.checker import check
from history.events import Event

IN, OUT = "in", "out"
MODULES = (checker, events, ledger)


def write(outcome: str, *records: tuple[int, str]) -> Event:
    written = [[IN, partition, value] for partition, value in records]
    return {"op": "write", "producer": "p", "outcome": outcome, "records": written}


def read(topic: str, partition: int, *records: tuple[int, str], consumer: str = "c") -> Event:
    got = [list(each) for each in records]
    return {
        "op": "read",
        "consumer": consumer,
        "topic": topic,
        "partition": partition,
        "records": got,
    }


def everything(topic: str, partition: int, *records: tuple[int, str]) -> Event:
    got = [list(each) for each in records]
    return {"op": "all", "topic": topic, "partition": partition, "records": got}


SOUND: list[Event] = [
    {"op": "copy", "source": IN, "target": OUT},
    write("ok", (0, "a"), (1, "b"), (0, "c")),
    write("fail", (0, "x")),
    write("info", (0, "y"), (1, "z")),
    write("ok", (0, "d")),
    read(OUT, 0, (0, "a"), (2, "c")),
    read(OUT, 0, (5, "d")),
    read(OUT, 1, (0, "b")),
    everything(IN, 0, (0, "a"), (1, "c"), (6, "d")),
    everything(IN, 1, (0, "b")),
    everything(OUT, 0, (0, "a"), (2, "c"), (5, "d")),
    everything(OUT, 1, (0, "b")),
]


def record(
    epoch: int, ends: tuple[int, int], starts: tuple[int, int] | None = None, **receipts: Any
) -> str:
    """The text of a ledger record: the start of a run, or with `starts` a micro-batch. `receipts`
    has records, first and last offset of a target partition: `p0=(2, 0, 2)`."""
    body: dict[str, Any] = {"kind": "start", "producer_id": 7, "epoch": epoch}
    body["ends"] = {IN: dict(zip("01", ends, strict=True))}
    if starts is not None:
        names = ("records", "offset_first", "offset_last")
        acked = [
            {"partition": int(place[1:]), **dict(zip(names, each, strict=True))}
            for place, each in receipts.items()
        ]
        starting = {IN: dict(zip("01", starts, strict=True))}
        body |= {"kind": "attempt", "attempt": {"starts": starting, "receipts": acked}}
    return json.dumps(body)


def in_ledger(*texts: str) -> Event:
    records = [[2 * number, text] for number, text in enumerate(texts)]
    return {"op": "ledger", "pipeline": "p", "source": IN, "target": OUT, "records": records}


def report(outcome: str, epoch: int) -> Event:
    return {"op": "report", "pipeline": "p", "outcome": outcome, "identity": [7, epoch]}


def with_last(event: Event) -> list[Event]:
    """In place of the last one of its kind and partition."""
    key = ("op", "topic", "partition")
    same = [
        number
        for number, each in enumerate(SOUND)
        if [each.get(name) for name in key] == [event.get(name) for name in key]
    ]
    return [*SOUND[: same[-1]], event, *SOUND[same[-1] + 1 :]]


BEGUN = record(0, (0, 0))
FIRST = record(1, (2, 3), (0, 0), p0=(2, 0, 2), p1=(1, 0, 0))
LAST = record(4, (7, 3), (2, 3), p0=(1, 5, 5))
REPORTS = [report("ok", 1), report("fail", 3), report("ok", 4)]


def test_a_sound_history_has_no_anomaly() -> None:
    assert check(SOUND) == []
    assert check([*SOUND, in_ledger(BEGUN, FIRST, LAST), *REPORTS]) == []


def test_a_producer_id_may_be_replaced_by_another_once() -> None:
    rotated = LAST.replace('"producer_id": 7', '"producer_id": 3')
    assert check([*SOUND, in_ledger(BEGUN, FIRST, rotated)]) == []
    again = record(5, (7, 3))
    kinds = [each.kind for each in check([*SOUND, in_ledger(BEGUN, FIRST, rotated, again)])]
    assert kinds == ["zombie commit"]


def test_a_transaction_with_an_unknown_end_is_there_or_not() -> None:
    there = [
        *with_last(everything(IN, 1, (0, "b"), (2, "z"))),
        everything(IN, 0, (0, "a"), (1, "c"), (4, "y"), (6, "d")),
        everything(OUT, 0, (0, "a"), (2, "c"), (3, "y"), (5, "d")),
        everything(OUT, 1, (0, "b"), (1, "z")),
    ]
    kinds = {anomaly.kind for anomaly in check(there)}
    assert kinds == {"unseen"}  # the consumer of SOUND did not see y
    assert check([event for event in there if event["op"] != "read"]) == []


BROKEN = {
    "aborted read": with_last(read(OUT, 1, (0, "b"), (4, "x"))),
    "phantom": with_last(read(OUT, 1, (0, "b"), (4, "nobody's"))),
    "lost write": with_last(everything(IN, 0, (0, "a"), (1, "c"))),
    "not copied": with_last(everything(OUT, 0, (0, "a"), (5, "d"))),
    "duplicate": with_last(everything(OUT, 1, (0, "b"), (1, "b"))),
    "torn transaction": with_last(everything(IN, 1, (0, "b"), (3, "z"))),
    "reordered": with_last(everything(OUT, 0, (0, "c"), (2, "a"), (5, "d"))),
    "inconsistent offset": with_last(read(OUT, 1, (0, "d"))),
    "unseen": [*SOUND, read(OUT, 0, (0, "a"), (5, "d"), consumer="hasty")],
    "backwards": [*SOUND, read(OUT, 0, (5, "d")), read(OUT, 0, (2, "c"))],
    "zombie commit": [*SOUND, in_ledger(BEGUN, FIRST, record(1, (7, 3), (2, 3), p0=(1, 5, 5)))],
    "ledger gap": [*SOUND, in_ledger(BEGUN, FIRST, record(4, (7, 3), (6, 3), p0=(1, 5, 5)))],
    "miscounted": [*SOUND, in_ledger(BEGUN, FIRST, record(4, (7, 3), (2, 3), p0=(2, 5, 5)))],
    "false report": [*SOUND, in_ledger(BEGUN, FIRST, LAST), *REPORTS, report("ok", 5)],
}
OTHERS = [
    [*SOUND, in_ledger(BEGUN, FIRST, record(4, (7, 3), (2, 3), p0=(1, 2, 2)))],  # another record
    [*SOUND, in_ledger(BEGUN, FIRST, record(4, (7, 3), (2, 3)))],  # no receipt
    [*SOUND, in_ledger(BEGUN, FIRST, LAST), report("fail", 4)],
]


@pytest.mark.parametrize("kind", BROKEN)
def test_each_anomaly_is_found_with_a_witness(kind: str) -> None:
    found = [anomaly for anomaly in check(BROKEN[kind]) if anomaly.kind == kind]
    assert found
    smallest = found[0]
    assert sum(len(event.get("records", ())) for event in smallest.witness) <= 4
    assert kind in str(smallest)


@pytest.mark.parametrize("history", OTHERS)
def test_other_ledgers_that_disagree_with_the_topics_or_the_reports(history: list[Event]) -> None:
    assert {anomaly.kind for anomaly in check(history)} <= {"miscounted", "false report"}
    assert check(history)


def test_each_kind_that_the_checker_knows_has_a_broken_history() -> None:
    kinds = {
        node.args[0].value
        for module in MODULES
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "Anomaly"
        and isinstance(node.args[0], ast.Constant)
    }
    assert kinds == set(BROKEN)


def test_the_smallest_witness_is_first_and_is_all_that_is_needed() -> None:
    large = [*BROKEN["torn transaction"], read(OUT, 1, (7, "nobody's"), consumer="other")]
    found = check(large)
    assert [anomaly.size for anomaly in found] == sorted(anomaly.size for anomaly in found)
    assert found[0].kind == "phantom"
    assert found[0].witness == (read(OUT, 1, (7, "nobody's"), consumer="other"),)


def test_the_checker_shares_no_code_with_eos() -> None:
    imported = {
        str(name).split(".")[0]
        for module in MODULES
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text()))
        for name in (
            [node.module]
            if isinstance(node, ast.ImportFrom)
            else [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert not imported & {"eos", "support", "kafka"}


def test_the_program_prints_the_witness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in BROKEN["duplicate"]))
    assert checker.main(str(path)) == 1
    assert capsys.readouterr().out.startswith("duplicate: the last read of out-1: 'b' is at 0")
    path.write_text("".join(json.dumps(event) + "\n" for event in SOUND))
    assert checker.main(str(path)) == 0
