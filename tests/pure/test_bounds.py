"""`run --until`: its time, the cut of what Spark plans, and what the ledger says of it."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doubles import Work, plan
from support.errors import raises
from support.simulated_broker.runs import SOURCE, FewTries, World

from eos.checkpoint.offset_log import Ranges
from eos.config.literals import instant_ms
from eos.errors import UsageError
from eos.kafka.api import TopicPartition
from eos.launch.options import instant_before_now, parse
from eos.ledger.ranges import PlannedBatch, decide
from eos.ledger.record import Position
from eos.micro_batch.bounds import Bounds, BoundsReachedError, require_cuttable
from eos.transaction import micro_batch

A, B, NEW = (TopicPartition("in", number) for number in range(3))
UNTIL = "2026-11-21T10:00:00Z"


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.touch()
    return path


# --- the time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--until", UNTIL], [f"--until={UNTIL}"]])
def test_a_run_until_a_time_ends_by_itself(pipeline: Path, words: list[str]) -> None:
    found = parse([str(pipeline), *words])
    assert (found.until, found.ends) == (UNTIL, "available_now")
    assert parse([str(pipeline), *words, "--once"]).ends == "once"
    assert instant_before_now(found.until) == instant_ms(UNTIL)
    assert (parse([str(pipeline)]).until, instant_before_now(None)) == (None, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-11-21", "expected a time such as"),
        ("yesterday", "expected a time such as"),
        ("2026-11-21T10:00:00", "expected a time with its zone, such as"),
        ("2026-13-21T10:00:00Z", "expected a valid time"),
    ],
)
def test_a_malformed_time_is_refused(pipeline: Path, text: str, reason: str) -> None:
    with raises("until_invalid", UsageError) as caught:
        parse([str(pipeline), "--until", text])
    assert caught.value.message.startswith(f"--until {text!r} is not a time: {reason}")
    assert f"`--until {UNTIL}`" in caught.value.hint


def test_a_time_in_the_future_and_a_missing_one_are_refused(pipeline: Path) -> None:
    later = datetime.fromtimestamp(time.time() + 3600, timezone.utc).isoformat(timespec="seconds")
    with raises("until_in_future", UsageError) as caught:
        parse([str(pipeline), "--until", later])
    assert f"--until {later!r} is after the present time" in caught.value.message
    with raises("option_value_missing", UsageError) as missing:
        parse([str(pipeline), "--until"])
    assert missing.value.hint == "write `--until TIME`"


def test_a_pipeline_with_state_is_refused() -> None:
    require_cuttable(plan(), 1)
    stateful = replace(plan(), is_stateful=True)
    require_cuttable(stateful, None)
    with raises("until_with_state", UsageError):
        require_cuttable(stateful, 1)


# --- the cut --------------------------------------------------------------------------------------


def test_a_plan_within_the_bounds_is_not_changed() -> None:
    planned = Ranges({A: 0, B: 5}, {A: 10, B: 20})
    assert Bounds({A: 10, B: 30}, {}).cut(planned) == planned


def test_a_plan_is_cut_and_so_are_the_ones_after_it() -> None:
    bounds = Bounds({A: 7, B: 30}, {A: 0, B: 5})
    assert bounds.cut(Ranges({A: 0, B: 5}, {A: 10, B: 20})) == Ranges({A: 0, B: 5}, {A: 7, B: 20})
    later = bounds.cut(Ranges({A: 10, B: 20}, {A: 15, B: 40}))
    assert later == Ranges({A: 7, B: 20}, {A: 7, B: 30})
    bounds.require_more(later, {A: 7, B: 20})
    with pytest.raises(BoundsReachedError):
        bounds.require_more(later, {A: 7, B: 30})


def test_a_partition_that_is_past_its_bound_is_read_no_further() -> None:
    bounds = Bounds({A: 3}, {A: 8})
    assert bounds.cut(Ranges({A: 8}, {A: 9})) == Ranges({A: 8}, {A: 8})


def test_a_partition_that_is_created_during_the_run_is_left_to_the_next_run() -> None:
    bounds = Bounds({A: 5}, {A: 0})
    assert bounds.cut(Ranges({A: 0}, {A: 5, NEW: 4})) == Ranges({A: 0}, {A: 5, NEW: 0})
    assert bounds.cut(Ranges({A: 5, NEW: 4}, {A: 5, NEW: 9})) == Ranges(
        {A: 5, NEW: 0}, {A: 5, NEW: 0}
    )


@given(
    bounds=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    known=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    steps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12),
)
def test_what_is_cut_joins_the_ledger_and_ends_at_the_bounds(
    bounds: tuple[int, int], known: tuple[int, int], steps: list[tuple[int, int]]
) -> None:
    """Each micro-batch begins where the ledger ends, whatever Spark plans."""
    ends = dict(zip((A, B), bounds, strict=True))
    at = dict(zip((A, B), known, strict=True))
    position, made = Position(at, {}), Bounds(ends, at)
    for number, sizes in enumerate(steps):
        starts, at = at, {tp: at[tp] + size for tp, size in zip((A, B), sizes, strict=True)}
        cut = made.cut(Ranges(starts, at))
        decision = decide("p", position, PlannedBatch("q", number, cut.starts, cut.ends), {})
        assert (decision.starts, decision.floors) == (position.ends, {}) or decision.is_done
        position = replace(position, ends=cut.ends)
    assert position.ends == {
        tp: min(at[tp], max(ends[tp], first)) for tp, first in zip((A, B), known, strict=True)
    }


def test_the_ledger_says_that_a_cut_plan_has_no_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the record of the micro-batch itself: a crash after it changes nothing."""
    monkeypatch.setattr(micro_batch, "Deadline", FewTries)
    world = World()
    cut = PlannedBatch("q", 0, {SOURCE: 0}, {SOURCE: 4}, is_cut=True)
    world.batches.run(cut, Work(world.writes(0)))
    assert world.ledger_body()["is_reset"] is True
    world.start()
    assert world.batches.position.is_reset
    world.batches.run(PlannedBatch("r", 0, {SOURCE: 4}, {SOURCE: 9}), Work(world.writes(1)))
    assert "is_reset" not in world.ledger_body()
