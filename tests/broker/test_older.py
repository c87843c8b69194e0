"""Several owners on an older broker: dead, paused and woken, replaced; and what only it does.

As `test_zombies.py` and `test_crashes.py` have it, without Spark and under TV1, where the broker
tells an owner that was replaced from one whose transaction it ended itself only if it is asked.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.copy import Copy
from support.forked import Forked
from support.played import At
from support.scenes import Scene, Scenes, ended

from eos.deadline import Deadline
from eos.errors import Recovery
from eos.faults import MOMENTS, POINTS
from eos.launch.embedded import EmbeddedKafka
from eos.observe import events
from eos.transaction.port import NO_IDENTITY, CommittedOffset, Identity, Profile, TopicPartition
from eos.transaction.wire import Wire

STEPS = [f"{point}:{moment}" for point in POINTS for moment in MOMENTS]
INSIDE = ("first_produce:after", "all_acked:before", "ledger_record:after", "offsets:after")
RECORDS, MORE = 40, 8  # two micro-batches, and one more


def soon() -> Deadline:
    return Deadline.after_ms(20_000)


@pytest.fixture(scope="module")
def scenes(older_broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    return Scenes(older_broker, tmp_path_factory.mktemp("older"), "older")


def died(scenes: Scenes, point: str) -> None:
    scene = scenes.new(RECORDS, profile="TV1")
    with Forked(scene.job, EOS_CRASH_AT=f"{point}:python") as dead:
        assert dead.wait() < 0
    with Copy(scene.job) as newer:
        assert ended(newer) is None
    scene.check()


@pytest.mark.parametrize("point", STEPS)
def test_whoever_dies_when_everything_comes_through_once(side_by_side, point):
    side_by_side(died, point)


def woken(older: Forked) -> None:
    older.wake()
    assert older.wait() == Recovery.FENCED.value
    assert "took over" in older.said()[-1]["message"]


def paused(scene: Scene, point: str) -> Forked:
    older = Forked(scene.job, EOS_CRASH_AT=f"{point}:python", EOS_CRASH_SIGNAL="STOP")
    older.wait_paused()
    return older


def overtaken(scenes: Scenes, point: str) -> None:
    """Woken when the newer one has done all that there was to do, on the same checkpoint."""
    scene = scenes.new(RECORDS, profile="TV1")
    with paused(scene, point) as older, Copy(scene.job) as newer:
        newer.start()
        newer.drain()
        woken(older)
        scene.feed(MORE)
        newer.drain()
        newer.stop()
    assert not newer.told.of(events.AttemptFailed)
    assert not newer.told.of(events.Warned)
    scene.check()


@pytest.mark.parametrize("point", STEPS[1::2])
def test_woken_it_is_fenced_and_the_newer_one_notices_nothing(side_by_side, point):
    side_by_side(overtaken, point)


def disturbed(scenes: Scenes, points: str) -> None:
    """Woken while the newer one's transaction is open: the init that is refused to the older one
    ends it, under an epoch that is nobody's. The newer one disputes that, and is right."""
    point, inside = points.split(" inside ")
    scene = scenes.new(RECORDS, profile="TV1")
    with (
        paused(scene, point) as older,
        Copy(scene.job, At(inside, lambda: woken(older))) as newer,
    ):
        scene.feed(MORE)
        newer.start()
        newer.drain()
        newer.stop()
    assert [event.will_redo for event in newer.told.of(events.AttemptFailed)] == [True]
    scene.check()


@pytest.mark.parametrize(
    "points", [f"{at} inside {inside}" for at, inside in zip(STEPS[::4], INSIDE, strict=True)]
)
def test_woken_inside_a_transaction_it_costs_the_newer_one_an_attempt(side_by_side, points):
    side_by_side(disturbed, points)


@pytest.fixture
def tv1(wires: Callable[..., Wire], older_broker: EmbeddedKafka) -> Wire:
    return wires(Profile.TV1, older_broker.bootstrap)


def test_a_refused_offset_commit_takes_pending_ones_with_it(
    tv1: Wire, name: str, settled: Callable[[Callable[[], object]], object]
) -> None:
    """Before 4.0 the group's coordinator keeps them by producer id alone: EndTxn succeeds, and the
    group has no offsets. That is why the ledger is the truth."""
    tv1.create_topic(name, 1, 1, {}, soon())
    at = TopicPartition(name, 0)

    def begins() -> Identity:
        blank = lambda: tv1.init_producer_id(name, 60_000, NO_IDENTITY, soon())  # noqa: E731
        return settled(blank).identity

    def commits(identity: Identity, offset: int) -> int:
        offsets = {at: CommittedOffset(offset)}
        return settled(lambda: tv1.commit_offsets(name, identity, name, offsets, soon()))[at].error

    stale, current = begins(), begins()
    assert settled(lambda: tv1.add_offsets(name, current, name, soon())).error == 0
    assert commits(current, 2) == 0
    assert commits(stale, 1) == 47
    assert settled(lambda: tv1.end_txn(name, current, True, soon())).error == 0
    assert tv1.committed_offsets(name, soon()) == {}


def test_a_group_that_lost_its_offsets_so_is_told_and_put_right(scenes: Scenes, tv1: Wire) -> None:
    scene = scenes.new(RECORDS, profile="TV1")
    at = TopicPartition(scene.job.source, 0)

    def straggler() -> None:
        now = copy.coordinator.identity
        stale = Identity(now.producer_id, now.epoch - 1)
        name, offsets = scene.job.name, {at: CommittedOffset(1)}
        assert tv1.commit_offsets(name, stale, name, offsets, soon())[at].error == 47

    with Copy(scene.job, At("offsets:after", straggler)) as copy:
        copy.start()
        copy.drain()
        copy.stop()
    (told,) = copy.told.of(events.Warned)
    assert "the group's offsets differ from the ledger" in told.message
    assert "the next commit puts them right" in told.message
    scene.check()


def test_the_logs_of_all_of_them_are_well_formed(scenes: Scenes) -> None:
    """One marker an epoch, no record after it, no sequence missing or twice."""
    markers = scenes.check_logs()
    assert markers["COMMIT"] > 0
    assert markers["ABORT"] > 0
