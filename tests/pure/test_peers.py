"""The comparison with other systems: what must come out, what counts, and the regression gate."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from bench import gate
from bench.gate import Measured
from bench.peers import page
from bench.peers.fetch import LOCK_FILE
from bench.peers.peers import PEERS
from bench.peers.program import FailedError, Program
from bench.peers.programs import turns
from bench.peers.summary import Range, latencies, summaries
from bench.peers.workloads import EVERYONE, WORKLOADS, Workload

from eos.local.jars import read_lock
from eos.local.relock import settings


def run(peer: str, number: int, seconds: float, **more: Any) -> dict[str, Any]:
    figures = {"records": 1_000_000, "seconds": seconds, "cpu_seconds": 2 * seconds}
    return {"peer": peer, "round": number, **figures, "broker_cpu_seconds": 1, "wrong": "", **more}


# --- what must come out -----------------------------------------------------------------------


def test_expected_contents_repeat_the_rows_and_fan_out_to_each_topic() -> None:
    rows = ([b"a", b"b", b"c"], [b"1", b"2", b"3"])
    copy = Workload("w", "")
    once, twice = copy.expected(rows, 3), copy.expected(rows, 6)
    assert (twice.records, twice.checksum) == (6, 2 * once.checksum)
    assert copy.expected(rows, 7).checksum - twice.checksum == copy.expected(rows, 1).checksum
    fan_out = Workload("w", "", "fan_out")
    assert fan_out.targets("t") == ["t.a", "t.b", "t.c"]
    assert fan_out.expected(rows, 7).checksum == 3 * copy.expected(rows, 7).checksum


def test_a_lost_record_next_to_a_repeated_one_is_seen() -> None:
    copy = Workload("w", "")
    whole = copy.expected(([b"a", b"b"], [b"1", b"2"]), 2)
    wrong = copy.expected(([b"a", b"a"], [b"1", b"1"]), 2)
    assert whole.records == wrong.records
    assert whole != wrong


def test_orders_are_filtered_and_taxed() -> None:
    paid = b'{"order_id": 1, "customer": "c", "amount": 10.0, "status": "paid"}'
    other = paid.replace(b"10.0", b"10.1")
    orders = Workload("w", "", "json")
    rows = ([b"k"] * 2, [paid, paid.replace(b"paid", b"open")])
    assert orders.expected(rows, 5).records == 3
    assert orders.expected(([b"k"], [paid]), 1) != orders.expected(([b"k"], [other]), 1)


def test_a_smaller_run_has_as_many_micro_batches() -> None:
    workload = Workload("w", "", records=1_000, batch=250)
    assert workload.scaled(100) == replace(workload, records=100, batch=25)
    assert workload.scaled(5_000) == workload.scaled(0) == workload
    assert workload.scaled(2).batch == 1


def test_every_workload_has_peers_that_can_do_it() -> None:
    for workload in WORKLOADS:
        assert "eos" in workload.peers
        for name in workload.peers:
            assert workload.kind in PEERS[name].kinds, f"{workload.name}: {name}"
    assert sorted(EVERYONE) == sorted(PEERS)


def test_the_lock_is_what_pyproject_asks_for() -> None:
    """If this fails: `PYTHONPATH=tests python -m bench.peers.relock`."""
    locked: dict[str, list[str]] = {}
    for jar in read_lock(LOCK_FILE):
        locked.setdefault(jar.purpose, []).append(jar.coordinate)
    assert locked == settings()["peers"]["jars"]


# --- a peer's process -------------------------------------------------------------------------

PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(turns.__file__).parent)!r})
from turns import serve

def run(turn):
    if turn.kind == "die":
        sys.exit("it died of " + turn.source)
    if turn.is_endless:
        turn.wait_for_end()

serve(int(sys.argv[1]), run)
"""


def started(folder: Path) -> Program:
    return Program("peer", [sys.executable, "-c", PROGRAM, "PORT"], {}, folder, [])


def test_turns_follow_one_another_and_an_endless_one_ends_when_asked(tmp_path: Path) -> None:
    with started(tmp_path) as program:
        assert program.turn("copy", "a", "b", 1, 1).seconds >= 0
        program.begin("copy", "a", "b")
        program.end_turn()
        assert program.turn("copy", "a", "b", 1, 1).cpu_seconds >= 0


def test_a_peer_that_dies_reports_its_last_words(tmp_path: Path) -> None:
    with started(tmp_path) as program, pytest.raises(FailedError, match="it died of hunger"):
        program.turn("die", "hunger", "b", 1, 1)


def test_a_peer_that_does_not_start_reports_why(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "raise SystemExit('no such module')", "PORT"]
    with pytest.raises(FailedError, match="did not start\nno such module"):
        Program("peer", words, {}, tmp_path, [])


# --- what counts ------------------------------------------------------------------------------


def test_ratios_are_of_the_same_round_and_for_as_many_records() -> None:
    runs = [run("eos", 1, 10.0), run("eos", 2, 20.0)]
    runs += [run("flink", 1, 15.0), run("flink", 2, 20.0)]
    runs += [run("quix", 1, 10.0, records=100_000), run("quix", 2, 40.0, records=100_000)]
    found = summaries(runs)
    assert list(found) == ["eos", "flink", "quix"]
    assert found["eos"].seconds == Range(15.0, 10.0, 20.0)
    assert found["flink"].times_eos == Range(1.25, 1.0, 1.5)
    assert found["quix"].times_eos == Range(15.0, 10.0, 20.0)
    assert found["flink"].problem == ""


def test_a_wrong_output_and_a_failed_round_are_told() -> None:
    runs = [run("eos", 1, 1.0), run("spark", 1, 1.0, wrong="7 of 8")]
    runs += [run("flink", 1, 1.0), {"peer": "flink", "round": 2, "failed": "flink ended\nwhy"}]
    found = summaries(runs)
    assert found["spark"].problem == "wrong output: 7 of 8"
    assert found["flink"].problem == "flink ended"


def test_latencies_are_medians_of_rounds() -> None:
    runs = [
        {
            "peer": "eos",
            "round": at,
            "median_ms": ms,
            "p99_ms": 9 * ms,
            "cpu_seconds": 1,
            "wrong": "",
        }
        for at, ms in enumerate((10.0, 30.0, 20.0), 1)
    ]
    assert latencies(runs)["eos"].median_ms == Range(20.0, 10.0, 30.0)
    assert latencies([*runs, {**runs[0], "wrong": "1 of 2"}])["eos"].problem


def test_the_page_gets_a_table_and_a_picture_and_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "WORKLOADS_PAGE", tmp_path / "workloads.md")
    monkeypatch.setattr(page, "PICTURE", tmp_path / "charts" / "peers.svg")
    monkeypatch.setattr(page, "RAW", tmp_path / "charts" / "peers.json")
    page.PICTURE.parent.mkdir()
    page.PAGE.write_text(f"# Before\n\n{page.BEGIN}\nold\n{page.END}\n\nAfter.\n")
    page.WORKLOADS_PAGE.write_text(f"{page.BEGIN}\n{page.END}\n")
    runs = [run("eos", 1, 2.0), run("flink", 1, 3.0), run("spark", 1, 1.0, wrong="7 of 8")]
    kept = {"peers_pass_through": {"runs": runs, "left_out": {"quix": "no pip"}, "records": 5_000}}
    measured = tmp_path / "measured"
    measured.mkdir()
    content = {"machine": "2 cores", "measurements": {"other": 1, **kept}}
    (measured / "1.json").write_text(json.dumps(content))
    found = page.newest([measured])
    assert found == {"peers_pass_through": {**kept["peers_pass_through"], "machine": "2 cores"}}
    page.write(found)
    assert page.newest([]) == found
    assert "| pass-through | 500,000 | 1.5 (1.5 to 1.5) |" in page.WORKLOADS_PAGE.read_text()
    text = page.PAGE.read_text()
    assert text.startswith("# Before\n")
    assert text.endswith("\n\nAfter.\n")
    assert "old" not in text
    assert "| Flink SQL | 333,333 | 1.5 (1.5 to 1.5) |" in text
    assert "| Spark's sink, default | wrong output: 7 of 8 |" in text
    assert "Quix Streams was left out: no pip." in text
    assert "5,000 records. The machine had 2 cores." in text
    drawn = [each.text for each in ET.parse(page.PICTURE).iter() if each.tag.endswith("}text")]
    assert {"eos", "Flink SQL", "0.33", "0.50"} <= set(drawn)
    assert "Spark's sink, default" not in drawn
    page.write({"peers_json": found["peers_pass_through"]})
    assert page.PAGE.read_text() == text, "it is about pass_through alone"
    assert (
        "| JSON in, filter and projection, JSON out | 500,000 |" in page.WORKLOADS_PAGE.read_text()
    )


# --- the regression gate ----------------------------------------------------------------------


def in_turn(*ratios: float) -> Callable[[], Measured]:
    left = [Measured([ratio, 9.0, ratio], [1.0, 9.0 / ratio, 1.0]) for ratio in ratios]
    return lambda: left.pop(0)


@pytest.mark.parametrize(("ratios", "code"), [((1.29,), 0), ((1.31, 1.29), 0), ((1.31, 1.4), 1)])
def test_the_gate_fails_after_a_second_slow_run(ratios: tuple[float, ...], code: int) -> None:
    assert gate.check(in_turn(*ratios), 1.0) == code


def test_the_median_round_counts() -> None:
    assert Measured([1.0, 9.0, 1.2], [1.0, 1.0, 1.0]).ratio == 1.2


def test_the_gate_fails_at_once_if_an_output_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate.check(lambda: Measured((), (), "7 of 8"), 1.0) == 1
    assert "7 of 8" in capsys.readouterr().out


def test_a_ratio_is_recorded_and_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "RECORD", tmp_path / "gate.json")
    monkeypatch.setattr(gate, "measure", in_turn(0.5, 0.64, 0.66, 0.66))
    assert gate.main([]) == 2  # nothing is recorded
    assert gate.main(["--record"]) == 0
    assert gate.main([]) == 0
    assert gate.main([]) == 1
