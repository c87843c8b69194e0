"""An older broker: whoever dies at whatever step, and what only such a broker does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.copies.owners import Forked
from support.copies.pipeline_copy import Copy
from support.copies.scenes import Scenes, run_to_end
from support.doubles import At
from support.errors import in_turn

from eos.deadline import Deadline
from eos.faults import MOMENTS, POINTS
from eos.kafka.api import NO_IDENTITY, CommittedOffset, Identity, TopicPartition, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.local.embedded_kafka import EmbeddedKafka
from eos.observe import events

pytestmark = pytest.mark.long

STEPS = [f"{point}:{moment}" for point in POINTS for moment in MOMENTS]
RECORDS = 40  # two micro-batches


def soon() -> Deadline:
    return Deadline.after_ms(120_000)


@pytest.fixture(scope="module")
def scenes(older_broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    return Scenes(older_broker, tmp_path_factory.mktemp("older"), "older", profile="TV1")


def died(scenes: Scenes, point: str) -> None:
    scene = scenes.new(RECORDS)
    with Forked(scene.job, EOS_CRASH_AT=f"{point}:python") as dead:
        assert dead.wait() < 0
    with Copy(scene.job) as newer:
        assert run_to_end(newer) is None
    scene.check()


@pytest.mark.parametrize("point", in_turn(STEPS))
def test_whoever_dies_when_everything_comes_through_once(side_by_side, point):
    side_by_side(died, point)


@pytest.fixture
def tv1(clients: Callable[..., KafkaClient], older_broker: EmbeddedKafka) -> KafkaClient:
    return clients(TransactionProfile.TV1, older_broker.bootstrap)


def test_a_refused_offset_commit_takes_pending_ones_with_it(
    tv1: KafkaClient, name: str, settled: Callable[[Callable[[], object]], object]
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


def test_a_group_that_lost_its_offsets_so_is_told_and_put_right(
    scenes: Scenes, tv1: KafkaClient
) -> None:
    scene = scenes.new(RECORDS)
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
    assert "the next commit corrects them" in told.message
    scene.check()


def test_the_logs_of_all_of_them_are_well_formed(scenes: Scenes) -> None:
    """One marker an epoch, no record after it, no sequence missing or twice."""
    markers = scenes.check_logs()
    assert markers["COMMIT"] > 0
    assert markers["ABORT"] > 0
