"""How long pipelines stand still when one of three brokers fails, with Kafka's own timeouts.

Four pipelines without Spark copy small micro-batches without end; each fault strikes the same node,
which leads and coordinates about a third of what they need. The longest time without a commit of
any of them is the figure: from the last commit before the fault to the next one after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from bench.conftest import Figures
from support.copies.scenes import Flow
from support.kafka.three_brokers import INTERNAL, NODES, ThreeBrokers, three_nodes

PIPELINES = 4
# What Kafka's brokers have if nobody says: the embedded ones are told to be quicker.
DEFAULTS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.election.timeout.ms": "1000",
}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with three_nodes(tmp_path_factory.mktemp("three"), DEFAULTS) as made:
        yield made


def nothing(_three: ThreeBrokers, _flows: list[Flow]) -> None:
    """What a busy machine does to them by itself."""


def leaders_moved(three: ThreeBrokers, flows: list[Flow]) -> None:
    names = [name for flow in flows for name in (flow.job.source, flow.job.target, flow.job.ledger)]
    three.move_leaders(*INTERNAL, *names)


def rolling_restart(three: ThreeBrokers, _flows: list[Flow]) -> None:
    for number in NODES:
        three.restart(number)


def killed_and_started(three: ThreeBrokers, _flows: list[Flow]) -> None:
    three.kill(1)
    three.restart(1)


def killed(three: ThreeBrokers, flows: list[Flow]) -> None:
    three.kill(2)
    go_on(flows)
    three.restart(2)


def unreachable(three: ThreeBrokers, flows: list[Flow]) -> None:
    """As a machine that is cut off: nothing is refused, nothing answers."""
    three.pause(3)
    go_on(flows)
    three.wake(3)
    three.wait_whole()


def go_on(flows: list[Flow]) -> None:
    for count, flow in [(flow.commits, flow) for flow in flows]:
        flow.wait_commits(count + 2)


FAULTS = (nothing, leaders_moved, rolling_restart, killed_and_started, killed, unreachable)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS)
def test_longest_stall(
    three: ThreeBrokers, fault: Callable[[ThreeBrokers, list[Flow]], None], figures: Figures
) -> None:
    scenes = [three.scenes("three-bench").new(20) for _ in range(PIPELINES)]
    flows = [three.flow(scene, goes_on=True) for scene in scenes]
    with three.feeding(scenes):
        go_on(flows)
        began = time.monotonic()
        fault(three, flows)
        go_on(flows)
    for flow in flows:
        assert flow.finish() is None
        flow.scene.check()
    stalls = [flow.stall_s(began) for flow in flows]
    attempts = sum(len(flow.failed) for flow in flows)
    name = fault.__name__.replace("_", " ")
    figures.keep(f"three_brokers_{fault.__name__}_s", stalls)
    figures.add(f"three brokers, {name}: longest stall", f"{max(stalls):.1f} s, {attempts} redone")
