"""Three brokers of which too few are there: what waits, for how long, and with which words it ends.

Whoever is patient goes on where it was, in the same attempt, once the brokers are back. Whoever is
not ends with exit code 5 and says what is missing; its next start loses and repeats nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.copies.scenes import PATIENCE_S, Flow, Scene
from support.doubles import At
from support.kafka.proxy_rules import Do
from support.kafka.three_brokers import NODES, ThreeBrokers, three_nodes

from eos.errors import EosError, Recovery

pytestmark = pytest.mark.long

PREFIX = "three-outages"
NUMBERS = 40  # of two partitions: two micro-batches
PATIENT = {"request_timeout_ms": 1_000}
HURRIED = {
    "transaction_timeout_ms": 8_000,
    "start_timeout_ms": 8_000,
    "request_timeout_ms": 1_000,
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with three_nodes(tmp_path_factory.mktemp("three"), {"quota.window.num": "3"}) as made:
        yield made


@pytest.fixture
def three(nodes: ThreeBrokers) -> Iterator[ThreeBrokers]:
    yield nodes
    nodes.mend()


class Gate:
    """Where pipelines wait in their second micro-batch, until it opens."""

    def __init__(self, point: str) -> None:
        self._opened = threading.Event()
        self._reached = threading.Event()
        self.crash = At(point, self._wait, nth=2)

    def _wait(self) -> None:
        self._reached.set()
        assert self._opened.wait(PATIENCE_S)

    def wait_reached(self) -> None:
        assert self._reached.wait(PATIENCE_S)

    def open(self) -> None:
        self._opened.set()


def ended_for_now(error: EosError | None) -> EosError:
    assert error is not None
    assert error.recovery is Recovery.RESTART, error
    assert error.hint
    return error


def loses_patience(flow: Flow) -> None:
    """From here on: before, it is no part of the test how long brokers take."""
    assert flow.copy is not None
    flow.copy.job = replace(flow.job, start_timeout_ms=HURRIED["start_timeout_ms"])


def again(three: ThreeBrokers, scene: Scene) -> Flow:
    """Another start, with the usual patience."""
    usual = {"transaction_timeout_ms": 300_000, "start_timeout_ms": 300_000}
    scene.job = replace(scene.job, **usual)
    return three.flow(scene)


def test_too_few_replicas_in_sync(three: ThreeBrokers) -> None:
    """A target that wants all three: with one of them dead its leader answers 19."""
    patient = three.scenes(PREFIX, **PATIENT).new(NUMBERS)
    hurried = three.scenes(PREFIX, transaction_timeout_ms=8_000).new(NUMBERS)
    gates = [Gate("begin:after") for _ in (patient, hurried)]
    flows = [
        three.flow(scene, gate.crash) for scene, gate in zip((patient, hurried), gates, strict=True)
    ]
    for scene, gate in zip((patient, hurried), gates, strict=True):
        gate.wait_reached()
        three.configure(scene.job.target, min_insync_replicas="3")
    produced = three.proxy.rule("Produce", Do.NOTHING, client=f"{patient.job.name}.writer", times=9)
    leaders = three.leaders(hurried.job.target).values()
    victim = next(node for node in NODES if node not in leaders)
    three.kill(victim)
    gates[0].open()
    three.wait_missed(hurried.job.target)
    gates[1].open()
    error = ended_for_now(flows[1].finish())
    assert "NOT_ENOUGH_REPLICAS (19) to Produce" in error.message
    assert f"{hurried.job.target}-" in error.message
    assert "min.insync.replicas" in error.hint
    produced.wait_struck(4)
    assert flows[0].commits == 1
    three.restart(victim)
    three.finish(flows[:1])
    three.finish([again(three, hurried)])


@pytest.mark.nightly
def test_two_nodes_of_three_are_down(three: ThreeBrokers) -> None:
    """Nobody confirms a record, and the cluster has no controller either."""
    points = ("begin:after", "ledger_record:before", "offsets:before", "end_txn_sent:before")
    gates = [Gate(point) for point in (*points, "begin:after")]
    patient = [three.scenes(PREFIX, **PATIENT).new(NUMBERS) for _ in points]
    hurried = three.scenes(PREFIX, **{**HURRIED, "start_timeout_ms": 60_000}).new(NUMBERS)
    new = three.scenes(PREFIX, **HURRIED).new(NUMBERS)
    flows = [
        three.flow(scene, gate.crash)
        for scene, gate in zip((*patient, hurried), gates, strict=True)
    ]
    for gate in gates:
        gate.wait_reached()
    loses_patience(flows[-1])
    three.kill(1, 2)
    for gate in gates:
        gate.open()
    ended_for_now(three.flow(new).finish())
    assert [flow.commits for flow in flows] == [1] * len(flows)
    three.restart(1, 2)
    *others, last = flows
    three.finish(others)
    gave_up = last.finish()
    if gave_up is not None:  # or the brokers were back before it did
        ended_for_now(gave_up)
    three.finish([again(three, scene) for scene in (hurried, new)])


def test_a_black_hole_before_one_node(three: ThreeBrokers) -> None:
    """The cluster is whole, but a pipeline gets no answer from one of its nodes, until it does."""
    roles = (
        lambda job: three.leader(job.target),
        lambda job: three.leader(job.ledger),
        three.coordinator,
        three.group_coordinator,
    )
    gates = [Gate("begin:after") for _ in roles]
    scenes = [three.scenes(PREFIX, **PATIENT).new(NUMBERS) for _ in roles]
    flows = [three.flow(s, gate.crash) for s, gate in zip(scenes, gates, strict=True)]
    holes = []
    for flow, gate, node_of in zip(flows, gates, roles, strict=True):
        gate.wait_reached()
        holes.append(three.black_hole(flow.job, node_of(flow.job)))
        gate.open()
    for hole in holes:
        hole.wait_struck(4)
    assert [flow.commits for flow in flows] == [1] * len(flows)
    three.proxy.clear_rules()
    three.finish(flows)


@pytest.mark.nightly
def test_a_node_that_answers_nobody(three: ThreeBrokers) -> None:
    """Its connections stay, so that only time tells. Then it wakes, and takes itself for leader."""
    scenes = [three.scenes(PREFIX, request_timeout_ms=2_000).new(NUMBERS) for _ in range(4)]
    gates = [Gate("begin:after") for _ in scenes]
    flows = [three.flow(s, gate.crash) for s, gate in zip(scenes, gates, strict=True)]
    for gate in gates:
        gate.wait_reached()
    three.pause(3)
    for gate in gates:
        gate.open()
    for flow in flows:
        flow.wait_commits(2)
    three.wake(3)
    assert [flow.finish() for flow in flows] == [None] * len(flows)
    three.wait_heard(3)  # before that a reader that asks it for the ends is told old ones
    three.finish(flows)


def test_quotas_slow_a_pipeline_down_and_no_more(three: ThreeBrokers) -> None:
    """Throttled by the leader of its targets: its requests wait, and none is given up. The quota is
    far below what a busy machine gets through."""
    scene = three.scenes(PREFIX, records=100, request_timeout_ms=2_000).new(600)
    three.lead(1, scene.job.target)
    client = f"{scene.job.name}.writer"
    three.limit(client, 2_000)
    produced = three.proxy.rule("Produce", Do.NOTHING, client=client, times=10_000)
    three.finish([three.flow(scene)])
    assert any(throttled_ms(answer) for answer in produced.answers)


def throttled_ms(answer: bytes) -> int:
    """As a Produce answer ends: the time, and no tagged fields."""
    return int.from_bytes(answer[-5:-1], "big")


def test_all_replicas_have_the_same_well_formed_logs(three: ThreeBrokers) -> None:
    three.check_logs(PREFIX)
