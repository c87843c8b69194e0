"""`eos.stamp` with the two clients that it is for: what they send is what dedup reads."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from kafka import KafkaProducer
from support.dedup import Row, Sent, verdicts_of, versions_in
from support.kafka import kafka_io

from eos.stamp import EPOCH, PRODUCER, SEQUENCE, Stamp

Send = Callable[[str, list[bytes], Stamp], None]


def by_confluent(bootstrap: str) -> Send:
    producer = kafka_io.producer(bootstrap)

    def send(topic: str, values: list[bytes], stamp: Stamp) -> None:
        for value in values:
            producer.produce(topic, value, partition=0, headers=stamp.headers(0))
        assert producer.flush(300) == 0

    return send


def by_kafka_python(bootstrap: str) -> Send:
    def send(topic: str, values: list[bytes], stamp: Stamp) -> None:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            bootstrap_timeout_ms=300_000,
            max_block_ms=300_000,
            delivery_timeout_ms=300_000,
            enable_idempotence=True,
        )
        try:
            sent = [
                producer.send(topic, value, partition=0, headers=stamp.headers(0))
                for value in values
            ]
            producer.flush(timeout=300)
            assert all(each.succeeded() for each in sent)
        finally:
            producer.close(timeout=300)

    return send


@pytest.mark.parametrize("client", [by_confluent, by_kafka_python])
def test_what_a_client_sends_again_is_recognised(broker, tmp_path, client):
    topic = f"stamped-{uuid.uuid4().hex[:8]}"
    kafka_io.create_topics(broker.bootstrap, 1, topic)
    send = client(broker.bootstrap)
    with Stamp(tmp_path / "stamp", "till-7", resumes=True) as stamp:
        send(topic, [b"0", b"1", b"2"], stamp)
        stamp.acknowledged(0, through=0)
        send(topic, [b"3"], stamp)
    with Stamp(tmp_path / "stamp", "till-7", resumes=True) as stamp:
        assert stamp.next_of(0) == 1
        send(topic, [b"1", b"2", b"3", b"4"], stamp)
    read = kafka_io.read(broker.bootstrap, topic)
    assert [each.value for each in read] == [b"0", b"1", b"2", b"3", b"1", b"2", b"3", b"4"]
    rows = []
    for each in read:
        assert [name for name, _ in each.headers] == [PRODUCER, EPOCH, SEQUENCE]
        who, epoch, number = (value for _, value in each.headers)
        rows.append(Row(each.offset, Sent(0, who, int(epoch), int(number))))
    found = verdicts_of(versions_in(tmp_path).begin(""), rows)
    kept = [found[0, row.offset] for row in rows]
    assert kept == ["appended"] * 4 + ["duplicate"] * 3 + ["appended"]
    assert rows[0].sent[1:] == (b"till-7", 0, 0)
