"""A proxy around a broker that does not advertise it; rules that look into Kafka's messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from support.kafka import kafka_io
from support.kafka.proxy import Proxy
from support.kafka.proxy_rules import ALWAYS, Do

from eos.kafka.api import TopicPartition

NOT_LEADER, AUTHORIZATION_FAILED = 6, 29


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as made:
        yield made


def sent(bootstrap: str, topic: str, *partitions: int) -> dict[int, int]:
    """The error code of one record to each partition; 0: acknowledged."""
    codes: dict[int, int] = {}
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "stranger", "linger.ms": 0})
    for number in partitions:
        producer.produce(
            topic,
            b"x",
            partition=number,
            on_delivery=lambda error, message: codes.update(
                {message.partition(): error.code() if error else 0}
            ),
        )
    assert producer.flush(120) == 0
    return codes


def test_every_client_stays_inside(broker, proxy, topic, clients, within):
    """librdkafka and eos's client find each broker by the responses, and all pass the proxy."""
    bootstrap = proxy.around(broker.bootstrap)
    assert sent(bootstrap, topic, 0, 1, 2) == {0: 0, 1: 0, 2: 0}
    client = clients(bootstrap=bootstrap)
    at = TopicPartition(topic, 1)
    (record,) = client.read_records(at, 0, 1, committed=True, deadline=within())
    assert record.value == b"x"
    seen = {(one.api, one.client) for one in proxy.seen}
    assert ("Produce", "stranger") in seen
    assert {api for api, client_id in seen if client_id != "stranger"} >= {"Metadata", "Fetch"}


def test_a_rule_for_a_partition_leaves_the_others_alone(broker, proxy, topic):
    bootstrap = proxy.around(broker.bootstrap)
    rule = proxy.rule(
        "Produce",
        Do.OTHER_CODE,
        code=AUTHORIZATION_FAILED,
        partition=(topic, 1),
        client="stranger",
        times=ALWAYS,
    )
    codes = sent(bootstrap, topic, 0) | sent(bootstrap, topic, 1) | sent(bootstrap, topic, 2)
    assert codes == {0: 0, 1: AUTHORIZATION_FAILED, 2: 0}
    assert len(rule.struck) == 1
    # The broker has carried it out: only the answer is another.
    assert kafka_io.ends(broker.bootstrap, topic)[1] == 1


def test_a_retriable_code_is_retried(broker, proxy, topic):
    rule = proxy.rule("Produce", Do.OTHER_CODE, code=NOT_LEADER, client="stranger")
    assert sent(proxy.around(broker.bootstrap), topic, 0) == {0: 0}
    assert rule.struck


def test_a_coordinators_address_is_rewritten(broker, proxy, name):
    producer = Producer(
        {
            "bootstrap.servers": proxy.around(broker.bootstrap),
            "transactional.id": name,
            "client.id": "stranger",
        }
    )
    rule = proxy.rule("InitProducerId", Do.OTHER_CODE, code=50, client="stranger")
    with pytest.raises(KafkaException, match="INVALID_TRANSACTION_TIMEOUT"):
        producer.init_transactions(120)
    assert rule.struck
