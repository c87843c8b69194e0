"""Which checkpoint folder a start takes, where a store's rename is not one step and where it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.doubles import EventLog, plan

from eos.checkpoint.files import LocalFiles
from eos.errors import PromiseBrokenError
from eos.kafka.api import Identity
from eos.ledger.record import Kind, LedgerRecord, Position
from eos.plan.names import Names
from eos.plan.plan import Plan
from eos.startup.checkpoint_dir import KEPT, choose_checkpoint, remove_old
from eos.startup.stateful_pipeline import without_state

NEXT = Identity(31, 4)
FRESH = "0004-31-4"


class Far(LocalFiles):
    """A store whose rename is a look, a copy and a delete."""

    is_local = False


@pytest.fixture
def a_plan(tmp_path: Path) -> Plan:
    made = replace(plan(), names=Names.of("eos", "orders", str(tmp_path)))
    for name, is_planned in (("0001-7-0", True), ("0002-7-3", True), ("0003-7-9", False)):
        folder = Path(made.names.checkpoints) / name
        (folder / "offsets").mkdir(parents=True)
        (folder / "sources").mkdir()
        (folder / "metadata").write_text('{"id":"q"}')
        if is_planned:
            (folder / "offsets" / "5").write_text('v1\n{}\n{"t":{"0":9}}')
            (folder / "offsets" / "6").write_text('v1\n{}\n{"t":{"0":12}}')
    return made


def last(kind: Kind, checkpoint: str = "0002-7-3", by: str = "here") -> LedgerRecord:
    position = Position({}, {}, checkpoint=checkpoint)
    owner = {"deployment": by, "host": "h", "process": 1}
    return LedgerRecord(kind, position, owner, at_ms=0, offset=0, identity=Identity(7, 3))


def chosen(made: Plan, record: LedgerRecord | None, *, is_reset: bool = False) -> str:
    position = record.position if record else Position({}, {})
    position = replace(position, is_reset=is_reset)
    return choose_checkpoint(made, Far(), position, record, NEXT).rpartition("/")[2]


@pytest.mark.parametrize("kind", ["start", "attempt", "refresh", "recovery"])
def test_after_any_end_but_a_clean_one_it_takes_a_folder_that_nobody_before_it_knows(a_plan, kind):
    assert chosen(a_plan, last(kind)) == FRESH


def test_a_folder_that_is_at_rest_is_gone_on_with_and_not_the_newest(a_plan):
    assert chosen(a_plan, last("stop")) == "0002-7-3"


@pytest.mark.parametrize(
    "record",
    [
        last("stop", checkpoint=""),  # its query was interrupted
        last("stop", by="there"),
        last("stop", checkpoint="0003-7-9"),  # nothing was planned in it
        last("stop", checkpoint="0002-7-4"),  # it is gone
    ],
)
def test_a_clean_end_that_vouches_for_no_folder_of_ours(a_plan, record):
    assert chosen(a_plan, record) == FRESH


def test_a_position_that_was_moved_takes_a_fresh_one(a_plan):
    assert chosen(a_plan, last("stop"), is_reset=True) == FRESH


@pytest.mark.parametrize("half_copy", [False, True])
@pytest.mark.parametrize("query_id", ["q", "another"])
def test_a_stop_that_interrupted_spark_loses_no_state(a_plan, query_id, half_copy):
    """The ledger names no folder then. The newest one has the state, if it is of the same query and
    not the copy of a startup that died between two plans."""
    record = last("stop", checkpoint="")
    position = replace(record.position, query_id=query_id, batch_id=6, keeps_state=True)
    if half_copy:
        plans = Path(a_plan.names.checkpoints) / "0003-7-9" / "offsets"
        (plans / "6").write_text('v1\n{}\n{"t":{"0":12}}')
    found = choose_checkpoint(a_plan, Far(), position, record, NEXT).rpartition("/")[2]
    assert found == ("0002-7-3" if query_id == "q" else FRESH)


def test_its_number_is_above_the_ledgers_even_if_that_folder_has_nothing_yet(a_plan):
    assert chosen(a_plan, last("start", checkpoint="0041-9-0")) == "0042-31-4"


def test_an_empty_ledger_beside_committed_micro_batches_stops(a_plan):
    assert chosen(a_plan, None) == FRESH
    commits = Path(a_plan.names.checkpoints) / "0002-7-3" / "commits"
    commits.mkdir()
    (commits / "5").touch()
    with pytest.raises(PromiseBrokenError) as caught:
        chosen(a_plan, None)
    assert caught.value.code == "ledger_empty"


@pytest.mark.parametrize("kind", ["start", "stop"])
def test_on_local_disks_the_newest_with_a_plan_is_gone_on_with(a_plan, kind):
    record = last(kind, checkpoint="0001-7-0")
    found = choose_checkpoint(a_plan, LocalFiles(), record.position, record, NEXT)
    assert found.endswith("/0002-7-3")
    moved = replace(record.position, is_reset=True)
    assert choose_checkpoint(a_plan, LocalFiles(), moved, record, NEXT).endswith("/0004")


@pytest.mark.parametrize("by", ["the plan", "the ledger"])
def test_a_damaged_checkpoint_of_a_stateful_pipeline_is_one_stop_that_names_both_verbs(a_plan, by):
    """The ledger says so where the transforms are not known: in `eos recover`."""
    location = f"{a_plan.names.checkpoints}/0002-7-3"
    (Path(location) / "offsets" / "6").write_text("v1\n")
    record = last("attempt")
    position = replace(record.position, batch_id=5, query_id="q", keeps_state=by == "the ledger")
    made = replace(a_plan, is_stateful=by == "the plan")
    with pytest.raises(PromiseBrokenError) as caught:
        choose_checkpoint(made, LocalFiles(), position, record, NEXT)
    told = caught.value
    assert (told.code, told.fields["checkpoint"]) == ("state_lost", location)
    assert "offsets/6" in told.message
    assert "The state of the transforms up to micro-batch 5 of query q is in" in told.message
    for words in ("--accept-state-loss", "--set-checkpoint-aside", "every total restarts"):
        assert words in told.hint
    lost = without_state(position)
    assert choose_checkpoint(made, LocalFiles(), lost, record, NEXT).endswith("/0004")
    plain = replace(position, keeps_state=False)
    with pytest.raises(PromiseBrokenError) as caught:
        choose_checkpoint(a_plan, LocalFiles(), plain, record, NEXT)
    assert caught.value.code == "checkpoint_unreadable"


def test_old_folders_are_removed_but_never_a_newer_ones(a_plan):
    root = Path(a_plan.names.checkpoints)
    for name in ("0009-8-1", "aside", "0004-31-4"):
        (root / name).mkdir()
    told = EventLog()
    remove_old(LocalFiles(), f"{root}/{FRESH}", told)
    assert len(list(root.iterdir())) == 6
    remove_old(Far(), f"{root}/{FRESH}", told)
    assert KEPT == 2
    left = {"0002-7-3", "0003-7-9", FRESH, "0009-8-1", "aside"}
    assert {each.name for each in root.iterdir()} == left
    assert not told.events


def test_a_store_that_removes_nothing_is_told_and_no_obstacle(a_plan):
    class Refusing(Far):
        def remove(self, path: str) -> None:
            raise PermissionError(f"403 for {path}")

    told = EventLog()
    remove_old(Refusing(), f"{a_plan.names.checkpoints}/{FRESH}", told)
    assert "can't be deleted; the next run retries: 403 for " in told.events[0].message
