"""A pipeline needs exactly the rights that docs/security.md lists, and each that is missing is
named: who lacks it, on what, and how it is granted.

Played by a pipeline without Spark. What Spark's source needs is in `tests/pipeline`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.copies.pipeline_copy import Copy, Job
from support.errors import in_turn
from support.kafka import kafka_io
from support.security import USER, Right, SecuredKafka, documented, secured_kafka

from eos.config.security import Security
from eos.deadline import Deadline
from eos.errors import EosError, KafkaRefusedError, UnsupportedBrokerError
from eos.inspect.topic_check import _rights, _transactional_id
from eos.kafka.api import TopicPartition, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.features import _require_verification
from eos.kafka.settings import KafkaSettings
from eos.plan.security import naming_principal

pytestmark = pytest.mark.long

WHO = Security.model_construct(protocol="SASL_SSL", user=USER)
WORDS = {"DescribeConfigs": "DESCRIBE_CONFIGS"}
KINDS = {"--topic": "Topic", "--transactional-id": "TransactionalId", "--group": "Group"}
RECORDS = 20
RIGHTS = documented()


@dataclass(frozen=True)
class SecuredJob(Job):
    security: tuple[tuple[str, str], ...] = ()
    reader: str = ""  # an address where nobody asks who reads

    def client(self, role: str = "") -> KafkaClient:
        if role == ".source" and self.reader:
            return KafkaClient(KafkaSettings((self.reader,)), TransactionProfile[self.profile])
        settings = KafkaSettings((self.bootstrap,), self.name + role, self.security)
        return KafkaClient(settings, TransactionProfile[self.profile])


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("rights")) as made:
        yield made


@pytest.fixture
def job(secured: SecuredKafka, tmp_path: Path) -> SecuredJob:
    name = f"r{uuid.uuid4().hex[:8]}"
    source, target = f"{name}.in", f"{name}.out"
    kafka_io.create_topics(secured.broker.bootstrap, 2, source, target)
    kafka_io.fill(secured.broker.bootstrap, source, range(RECORDS))
    return SecuredJob(secured.login, name, source, target, tmp_path, security=secured.security())


def names(job: Job) -> Mapping[str, str]:
    """Of the example in the docs, and what they are here."""
    return {
        "orders": job.source,
        "orders.enriched": job.target,
        "eos.ledger.orders_enriched": job.ledger,
        "eos.orders_enriched": job.name,
    }


def play(job: Job, meanwhile: Callable[[Copy], None] = lambda _: None) -> None:
    """Two runs, with all that a pipeline does: the second reads what the first one noted."""
    with naming_principal(WHO):
        with Copy(job) as copy:
            copy.start()
            deadline = Deadline.after_ms(300_000)
            assert copy.client.topic_config(job.target, "max.message.bytes", deadline)
            copy.step()
            meanwhile(copy)
            copy.drain()
            copy.stop()
            assert copy.batches.ledger.trim(1, deadline)
        with Copy(job) as again:
            again.start()
            again.drain()
            again.stop()


def values_of(secured: SecuredKafka, topic: str) -> list[bytes]:
    return sorted(row.value or b"" for row in kafka_io.read(secured.broker.bootstrap, topic))


def check(secured: SecuredKafka, job: Job) -> None:
    values = values_of(secured, job.target)
    assert values == values_of(secured, job.source)
    assert len(values) == RECORDS


def expect(error: EosError, right: Right) -> None:
    operation = WORDS.get(right.operation, right.operation.upper())
    assert f"User:{USER} lacks {operation} on {KINDS[right.flag]} '{right.name}'." in error.message
    line = f"--allow-principal User:{USER} --operation {right.operation} {right.flag} {right.name}"
    assert line in error.hint
    assert error.recovery.value in {2, 4}, "a supervisor would start it again"


@pytest.mark.parametrize("profile", ["TV2", pytest.param("TV1", marks=pytest.mark.long)])
def test_what_the_docs_list_is_enough(secured: SecuredKafka, job: SecuredJob, profile: str) -> None:
    assert len(RIGHTS) == 11
    secured.grant(right.of(names(job)) for right in RIGHTS)
    play(replace(job, profile=profile))
    check(secured, job)


def test_record_batches_larger_than_any_buffer_come_through(
    secured: SecuredKafka, job: SecuredJob
) -> None:
    """A TLS record holds 16 KB, a socket takes some of a request at a time."""
    producer = kafka_io.producer(secured.broker.bootstrap)
    for number in range(20):
        producer.produce(job.source, value=os.urandom(150_000), partition=number % 2)
    assert producer.flush(300) == 0
    secured.grant(right.of(names(job)) for right in RIGHTS)
    play(job)
    assert values_of(secured, job.target) == values_of(secured, job.source)


@pytest.mark.parametrize(
    "missing", in_turn(zip(RIGHTS), 1), ids=lambda right: f"{right.operation} {right.name}"
)
def test_each_right_that_is_missing_is_named(
    secured: SecuredKafka, job: SecuredJob, missing: Right
) -> None:
    secured.grant(right.of(names(job)) for right in RIGHTS if right != missing)
    with pytest.raises(EosError) as caught:
        play(job)
    expect(caught.value, missing.of(names(job)))


@pytest.mark.parametrize("flag", KINDS)
def test_who_may_only_look_is_told_what_is_missing(
    secured: SecuredKafka, job: SecuredJob, flag: str
) -> None:
    """DESCRIBE lets the start through to the request itself: the first commit of offsets, or the
    fence. (The source is read by somebody else here.)"""
    missing = next(
        right
        for right in RIGHTS
        if right.flag == flag and right.name in ("orders", "eos.orders_enriched")
    )
    rights = [right.of(names(job)) for right in RIGHTS if right != missing]
    secured.grant([*rights, missing.of(names(job))._replace(operation="Describe")])
    job = replace(job, reader=secured.broker.bootstrap)
    with pytest.raises(KafkaRefusedError) as caught:
        play(job)
    expect(caught.value, missing.of(names(job)))
    request = "InitProducerId" if flag == "--transactional-id" else "TxnOffsetCommit"
    assert f" to {request} for " in caught.value.message


def test_a_ledger_that_is_there_need_not_be_created(secured: SecuredKafka, job: SecuredJob) -> None:
    config = {"retention.ms": "-1", "retention.bytes": "-1"}
    client = KafkaClient(KafkaSettings((secured.broker.bootstrap,)))
    try:
        client.create_topic(job.ledger, 1, 1, config, Deadline.after_ms(300_000))
    finally:
        client.close()
    secured.grant(right.of(names(job)) for right in RIGHTS if right.operation != "Create")
    play(job)
    check(secured, job)


@pytest.mark.parametrize(
    "right",
    [
        Right("--topic", "orders.enriched", "Write"),
        pytest.param(
            Right("--transactional-id", "eos.orders_enriched", "Write"), marks=pytest.mark.long
        ),
    ],
    ids=lambda right: right.flag,
)
def test_a_right_that_is_taken_away_stops_the_run_and_loses_nothing(
    secured: SecuredKafka, job: SecuredJob, right: Right
) -> None:
    secured.grant(each.of(names(job)) for each in RIGHTS)
    right = right.of(names(job))
    job = replace(job, records=4)
    with pytest.raises(KafkaRefusedError) as caught:
        play(job, lambda _: secured.revoke(right))
    expect(caught.value, right)
    secured.grant([right])
    play(job)
    check(secured, job)


def test_an_older_clusters_verification_may_be_read_with_one_more_right(job: SecuredJob) -> None:
    client = job.client()
    try:
        with pytest.raises(UnsupportedBrokerError) as caught, naming_principal(WHO):
            _require_verification(client._cluster, Deadline.after_ms(300_000))
    finally:
        client.close()
    assert f"User:{USER} lacks DESCRIBE_CONFIGS on Cluster." in caught.value.message
    assert f"User:{USER} --operation DescribeConfigs --cluster" in caught.value.hint


def test_a_look_before_the_start_names_what_is_missing_as_a_refusal_would(
    secured: SecuredKafka, job: SecuredJob
) -> None:
    here = names(job)
    missing = {
        Right("--topic", "orders.enriched", "Read"),
        Right("--transactional-id", "eos.orders_enriched", "Write"),
    }
    secured.grant(right.of(here) for right in RIGHTS if right not in missing)
    topics = {job.source: ("READ",), job.target: ("WRITE", "READ", "DESCRIBE_CONFIGS")}
    with closing(job.client()) as client:
        found = list(_rights(client, topics, f"User:{USER}"))
        found += _transactional_id(client, job.plan(), f"User:{USER}")
    assert len(found) == len(missing)
    for right in missing:
        named = right.of(here)
        line = f"--allow-principal User:{USER} --operation {named.operation} {named.flag} "
        assert any(f"{line}{named.name}" in each.remedy for each in found), found


def test_a_topic_that_may_not_be_seen_has_no_leader(job: SecuredJob) -> None:
    deadline = Deadline.after_ms(300_000)
    client = job.client()
    try:
        with pytest.raises(KafkaRefusedError) as caught, naming_principal(WHO):
            client.leaders([TopicPartition(job.source, 0)], deadline)
    finally:
        client.close()
    expect(caught.value, Right("--topic", job.source, "Describe"))
    assert not deadline.has_passed
