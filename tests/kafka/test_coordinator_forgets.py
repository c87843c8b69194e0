"""An init whose answer is lost, repeated to a coordinator that has read its log since.

It knows the new epoch, but not the one before, by which it would know the repetition for one: it
refuses it, as it would refuse a copy that was replaced. So does every cluster where brokers are
restarted in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.copies.pipeline_copy import Job
from support.copies.scenes import Outcome, ProxiedKafka, proxied_kafka, run_copy
from support.doubles import At
from support.kafka.proxy_rules import Do, Rule
from support.kafka.three_brokers import patience

RECORDS = 17  # of each partition: two micro-batches


@pytest.fixture(scope="module", params=["TV2", pytest.param("TV1", marks=pytest.mark.long)])
def profile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory, profile: str) -> Iterator[ProxiedKafka]:
    version = "3.9" if profile == "TV1" else None
    with proxied_kafka(tmp_path_factory.mktemp("forgets"), {}, version=version) as made:
        yield made


@pytest.fixture
def small(proxied: ProxiedKafka, profile: str) -> Job:
    name = "coordinator-forgets"
    patient = {"start_timeout_ms": 300_000, "transaction_timeout_ms": 600_000}
    return proxied.job(name, profile=profile, records=RECORDS, request_timeout_ms=500, **patient)


def run_beside(kafka: ProxiedKafka, small: Job, init: Rule, crash: At | None = None) -> Outcome:
    """A run whose coordinator is restarted when it has granted this init and not said so."""

    def fail_over() -> None:
        init.wait_answered()
        kafka.broker.restart(1)

    with patience(), ThreadPoolExecutor() as pool:
        restarts = pool.submit(fail_over)
        ended = run_copy(small, crash)
        restarts.result()
    return ended


@pytest.mark.long
def test_it_is_no_takeover(proxied: ProxiedKafka, small: Job, profile: str) -> None:
    """TV1 asks for each epoch by an init. TV2 only where a commit was refused, here because our
    own blank init came once more and ended the transaction."""
    blank = proxied.proxy.rule("InitProducerId", Do.NOTHING, client=small.name)
    init = proxied.proxy.rule("InitProducerId", Do.HOLD_ANSWER, client=small.name, nth=1)
    ended = run_beside(
        proxied, small, init, At("offsets:after", blank.repeat, nth=2 if profile == "TV2" else 99)
    )
    assert ended.error is None
    assert ended.committed == [0, 1]
    assert bool(ended.failed) is (profile == "TV2")
    proxied.check(small)
