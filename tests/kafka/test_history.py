"""Pipelines, producers and consumers side by side under faults: their history has no anomaly."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from history.pipelines import FENCED, Supervised
from history.workload import Workload
from support.copies.scenes import ProxiedKafka
from support.kafka.proxy_rules import ALWAYS, Do

pytestmark = pytest.mark.long

LOAD_S = 8
SEEDS = (1, pytest.param(2, marks=pytest.mark.nightly))


@pytest.fixture
def workload(proxied: ProxiedKafka, tmp_path: Path, seed: int) -> Iterator[Workload]:
    name = f"history-{uuid.uuid4().hex[:8]}"
    made = Workload(proxied.broker.bootstrap, proxied.bootstrap, name, tmp_path, seed)
    yield made
    made.close()


def lost_answers(proxied: ProxiedKafka, _pipeline: Supervised) -> None:
    """Of one request in fifty: the answer is lost, the connection closes, or it takes a while."""
    apis = ("Produce", "EndTxn", "TxnOffsetCommit", "InitProducerId", "Fetch")
    rare = {"chance": 0.02, "times": ALWAYS}
    rules = [proxied.proxy.rule(api, Do.LOSE_ANSWER, **rare) for api in apis]
    rules.append(proxied.proxy.rule("Produce", Do.CLOSE_BEFORE, **rare))
    rules.append(proxied.proxy.rule("Produce", Do.DELAY_ANSWER, delay_s=0.3, **rare))
    time.sleep(LOAD_S)
    proxied.proxy.clear_rules()
    assert sum(len(rule.struck) for rule in rules) > 0


def kill(_proxied: ProxiedKafka, pipeline: Supervised) -> None:
    for _ in range(2):
        pipeline.kill()
        time.sleep(LOAD_S / 2)


def zombie(_proxied: ProxiedKafka, pipeline: Supervised) -> None:
    assert pipeline.replace_by_force(lambda: time.sleep(LOAD_S)) == FENCED


FAULTS: tuple[Callable[[ProxiedKafka, Supervised], None], ...] = (lost_answers, kill, zombie)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_history_under_faults_has_an_anomaly(
    proxied: ProxiedKafka, workload: Workload, seed: int
) -> None:
    chosen = random.Random(seed)
    for fault in chosen.sample(FAULTS, len(FAULTS)):
        workload.resume()
        fault(proxied, chosen.choice(workload.pipelines))
        found = workload.rest()
        assert not found, f"{len(found)} anomalies; the smallest is\n{found[0]}"
    found = workload.rest_of_all()
    assert not found, f"{len(found)} anomalies; the smallest is\n{found[0]}"
    assert workload.checked > 100
