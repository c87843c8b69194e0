"""Three brokers, and one of them is killed while pipelines are at every point of a transaction.

Each pipeline stops at a point of its own, the node dies, and all go on without it; each commits at
least once before the node comes back. It coordinates all transactions and groups; their topics lie
on all nodes, so that it leads about a third of them. One victim of three is the controller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from support.copies.scenes import PATIENCE_S, Flow
from support.doubles import At
from support.errors import in_turn
from support.kafka.proxy_rules import Do
from support.kafka.three_brokers import INTERNAL, NODES, ThreeBrokers, three_nodes

pytestmark = pytest.mark.long

PREFIX = "three-kills"
NUMBERS = 60  # of two partitions: three micro-batches
PROFILES = ("TV2", "TV1")
HOOKS = (
    "begin:after",
    "all_acked:after",
    "ledger_record:after",
    "offsets:after",
    "end_txn_sent:before",
    "end_txn_sent:after",
    "end_txn_answered:after",
)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with three_nodes(tmp_path_factory.mktemp("three")) as made:
        yield made


@pytest.fixture
def three(nodes: ThreeBrokers) -> Iterator[ThreeBrokers]:
    yield nodes
    nodes.mend()


class Caught:
    """A pipeline that waits at its point of its second micro-batch, until `let_go`."""

    def __init__(self, three: ThreeBrokers, profile: str, point: str | Do) -> None:
        self._here, self._free = threading.Event(), threading.Event()
        scene = three.scenes(PREFIX, profile).new(NUMBERS)
        crash = None
        if isinstance(point, Do):
            client = f"{scene.job.name}.writer"
            self._rule = three.proxy.rule("Produce", point, client=client, nth=4)
            threading.Thread(target=self._hold, daemon=True).start()
        else:
            crash = At(point, self._wait, nth=2)
        self.flow = three.flow(scene, crash)

    def wait(self) -> None:
        assert self._here.wait(PATIENCE_S)

    def let_go(self) -> None:
        self._free.set()

    def _hold(self) -> None:
        """A record batch of the writer's is on its way, or the answer to it is."""
        self._rule.wait_struck()
        self._wait()
        self._rule.release()

    def _wait(self) -> None:
        self._here.set()
        assert self._free.wait(PATIENCE_S)


@pytest.mark.parametrize("victim", in_turn(NODES, 1, every=3))
def test_a_node_that_dies_costs_no_record_wherever_a_transaction_is(
    three: ThreeBrokers, victim: int
) -> None:
    three.coordinate(victim)
    points = [*HOOKS, Do.HOLD_REQUEST, Do.HOLD_ANSWER]
    profiles = [PROFILES[(number + victim) % 2] for number in range(len(points))]
    caught = three.all(lambda at: Caught(three, *at), list(zip(profiles, points, strict=True)))
    for one in caught:
        one.wait()
    flows = [one.flow for one in caught]
    before = [flow.commits for flow in flows]
    three.kill(victim)
    for one in caught:
        one.let_go()
    for flow, commits in zip(flows, before, strict=True):
        flow.wait_commits(commits + 1)
    three.restart(victim)
    three.finish(flows)


def rolling_restart(three: ThreeBrokers, flows: list[Flow]) -> None:
    for number in NODES:
        three.restart(number)
        committed_again(flows)


def moved_leaders(three: ThreeBrokers, flows: list[Flow]) -> None:
    """Of all that a transaction needs, and no broker stops for it."""
    names = [name for flow in flows for name in (flow.job.source, flow.job.target, flow.job.ledger)]
    topics = (*INTERNAL, *names)
    for _ in range(2):
        before = three.leaders(*topics)
        after = three.move_leaders(*topics)
        assert all(after[at] != leader for at, leader in before.items())
        committed_again(flows)


def committed_again(flows: list[Flow]) -> None:
    """Twice: the first one may have been under way."""
    for count, flow in [(flow.commits, flow) for flow in flows]:
        flow.wait_commits(count + 2)


@pytest.mark.parametrize(
    "disturbance", [pytest.param(rolling_restart, marks=pytest.mark.nightly), moved_leaders]
)
def test_pipelines_go_on_through(
    three: ThreeBrokers, disturbance: Callable[[ThreeBrokers, list[Flow]], None]
) -> None:
    scenes = [three.scenes(PREFIX, profile).new(NUMBERS) for profile in 2 * PROFILES]
    flows = [three.flow(scene, goes_on=True) for scene in scenes]
    with three.feeding(scenes):
        committed_again(flows)
        disturbance(three, flows)
    three.finish(flows)


def test_all_replicas_have_the_same_well_formed_logs(three: ThreeBrokers) -> None:
    three.check_logs(PREFIX)
