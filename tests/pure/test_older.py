"""A checkpoint that the ledger has left behind, or that a power cut damaged, and what replaces it.

The files are as Spark writes them. `q` is their query; micro-batch 0 begins at 0, and N ends at
10 * (N + 1) in both partitions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.doubles import EventLog, plan

from eos.checkpoint.files import LocalFiles
from eos.errors import PromiseBrokenError
from eos.kafka.api import Identity, TopicPartition
from eos.ledger.record import LedgerRecord, Position
from eos.plan.names import Names
from eos.plan.plan import Plan
from eos.startup.local_checks import ChosenCheckpoint, choose

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
EMPTIES = ["", "\0" * 120, "\n"]


class Spark:
    """Its folder, with micro-batches up to `planned`, of which the last may not be committed."""

    def __init__(self, root: Path, planned: int = 3, *, is_committed: bool = True) -> None:
        self.path = root / "checkpoints" / "eos.orders" / "0001"
        for name in ("offsets", "commits", "sources/0"):
            (self.path / name).mkdir(parents=True)
        self.write("metadata", '{"id":"q"}')
        self.write("sources/0/0", "\0v1\n" + offsets(0, 0))
        for number in range(planned + 1):
            self.plan(number, 10 * (number + 1), 10 * (number + 1))
            if is_committed or number < planned:
                self.write(f"commits/{number}", "v1\n{}")

    def plan(self, number: int, *ends: int) -> None:
        self.write(f"offsets/{number}", "v1\n{}\n" + offsets(*ends))

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)


def offsets(*ends: int) -> str:
    return json.dumps({"t": {str(number): end for number, end in enumerate(ends)}})


def start(
    root: Path, a: int, b: int, *, batch_id: int = 3, query: str = "q", **planned: bool
) -> tuple[ChosenCheckpoint, list[str]]:
    made: Plan = replace(plan(), names=Names.of("eos", "orders", str(root)), **planned)
    position = Position({A: a, B: b}, {}, query_id=query, batch_id=batch_id)
    owner = {"deployment": "here", "host": "h", "process": 1}
    last = LedgerRecord("attempt", position, owner, at_ms=0, offset=0, identity=Identity(7, 3))
    told = EventLog()
    chosen = choose(made, LocalFiles(), position, last, bus=told, accepts=False)
    return chosen, [each.message for each in told.events]


def stopped(root: Path, a: int, b: int, **more: object) -> str:
    with pytest.raises(PromiseBrokenError) as caught:
        start(root, a, b, **more)  # type: ignore[arg-type]
    return caught.value.code


def resumed(root: Path, a: int, b: int, **more: object) -> str:
    chosen, told = start(root, a, b, **more)  # type: ignore[arg-type]
    name = chosen.location.rpartition("/")[2]
    assert (name == "0002") == bool(told), told
    return name


@pytest.mark.parametrize("is_committed", [True, False])
def test_one_that_is_level_is_resumed(tmp_path, is_committed):
    Spark(tmp_path, is_committed=is_committed)
    assert resumed(tmp_path, 40, 40) == "0001"


@pytest.mark.parametrize(("a", "b"), [(30, 30), (35, 30), (40, 35)])
def test_one_whose_last_micro_batch_is_done_in_part_or_not_at_all_is_resumed(tmp_path, a, b):
    Spark(tmp_path, is_committed=False)
    assert resumed(tmp_path, a, b) == "0001"


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize(("a", "b"), [(50, 50), (41, 40), (40, 900)])
def test_an_older_one_is_replaced_at_the_ledgers_ends(tmp_path, is_committed, a, b):
    Spark(tmp_path, is_committed=is_committed)
    chosen, told = start(tmp_path, a, b, batch_id=9, query="another")
    assert chosen.location.endswith("/0002")
    assert chosen.position.ends == {A: a, B: b}
    assert "/0001 is older than the ledger: the run uses a fresh one" in told[0]


def test_one_that_does_not_know_a_partition_of_the_ledgers_is_replaced(tmp_path):
    spark = Spark(tmp_path)
    for number in range(4):
        spark.plan(number, 10 * (number + 1))
    assert resumed(tmp_path, 40, 0) == "0002"


def test_one_that_committed_a_new_partition_and_did_not_note_it_is_resumed(tmp_path):
    spark = Spark(tmp_path, is_committed=False)
    spark.plan(2, 30)
    assert resumed(tmp_path, 40, 40) == "0001"


@pytest.mark.parametrize("is_committed", [True, False])
def test_one_that_is_ahead_of_the_ledger_anywhere_stops(tmp_path, is_committed):
    """Behind elsewhere, it was used by another program: what that read is not in the ledger."""
    Spark(tmp_path, is_committed=is_committed)
    assert stopped(tmp_path, 29, 29) == "hole"
    assert stopped(tmp_path, 900, 29) in {"hole", "beyond"}
    assert stopped(tmp_path, 29, 900) == "hole"


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_stateful_one_is_never_replaced(tmp_path, is_committed):
    spark = Spark(tmp_path, is_committed=is_committed)
    (spark.path / "state" / "0").mkdir(parents=True)
    assert stopped(tmp_path, 900, 900, batch_id=9, is_stateful=True) == "beyond"
    assert resumed(tmp_path, 40, 40, is_stateful=True) == "0001"


def no_offsets(spark: Spark, empty: str) -> None:
    spark.write("offsets/3", empty)


def no_commit(spark: Spark, empty: str) -> None:
    spark.write("commits/3", empty)


def seconds_lost(spark: Spark, empty: str) -> None:
    for number in (2, 3):
        spark.write(f"offsets/{number}", empty)
        spark.write(f"commits/{number}", empty)


def everything_lost(spark: Spark, empty: str) -> None:
    seconds_lost(spark, empty)
    for name in ("offsets/0", "offsets/1", "commits/0", "commits/1", "sources/0/0"):
        spark.write(name, empty)


CUTS = [no_offsets, no_commit, seconds_lost, everything_lost]


@pytest.mark.parametrize("empty", EMPTIES)
@pytest.mark.parametrize("cut", CUTS)
def test_after_a_power_cut_it_is_replaced_if_the_ledger_has_what_it_committed(
    tmp_path: Path, cut: Callable[[Spark, str], None], empty: str
) -> None:
    cut(Spark(tmp_path), empty)
    chosen, told = start(tmp_path, 40, 40)
    assert chosen.location.endswith("/0002")
    assert "has empty files, as after a power cut" in told[0]


@pytest.mark.parametrize("cut", CUTS)
def test_after_a_power_cut_it_stops_if_the_ledger_may_not_have_what_it_committed(
    tmp_path: Path, cut: Callable[[Spark, str], None]
) -> None:
    cut(Spark(tmp_path), "")
    assert stopped(tmp_path, 30, 30, batch_id=2) == "checkpoint_unreadable"
    assert stopped(tmp_path, 30, 30, batch_id=9, query="other") == "checkpoint_unreadable"


def test_a_planned_micro_batch_that_is_empty_is_none(tmp_path):
    spark = Spark(tmp_path, is_committed=False)
    spark.write("offsets/3", "")
    assert resumed(tmp_path, 30, 30, batch_id=2) == "0002"
    assert resumed(tmp_path, 30, 30, batch_id=9, query="other") == "0002"
    assert stopped(tmp_path, 29, 30, batch_id=9, query="other") == "checkpoint_unreadable"


def test_a_first_micro_batch_that_is_empty_is_none(tmp_path):
    spark = Spark(tmp_path, planned=0, is_committed=False)
    for name in ("offsets/0", "metadata", "sources/0/0"):
        spark.write(name, "")
    assert resumed(tmp_path, 5, 5, batch_id=-1, query="") == "0002"


@pytest.mark.parametrize("text", ["v1\n", "v1\n{}\n{", "\0v1"])
def test_a_file_that_is_cut_off_in_its_middle_stops(tmp_path, text):
    """It is no file that a power cut leaves: something wrote there, or restored it in part."""
    Spark(tmp_path).write("offsets/3", text)
    assert stopped(tmp_path, 40, 40) == "checkpoint_unreadable"


def test_a_stateful_one_with_empty_files_stops(tmp_path):
    spark = Spark(tmp_path)
    (spark.path / "state" / "0").mkdir(parents=True)
    spark.write("offsets/3", "")
    assert stopped(tmp_path, 40, 40, is_stateful=True) == "state_lost"
