"""One transaction over a thousand partitions, by one writer, with all first writes at once."""

from __future__ import annotations

import pytest
from support.copies.pipeline_copy import Job
from support.copies.scenes import run_copy
from support.kafka import kafka_io
from support.kafka.brokers import check_topic

pytestmark = pytest.mark.nightly

PARTITIONS = 1_000


def test_a_thousand_partitions_are_one_transaction(broker, name, tmp_path):
    source, target = f"{name}.in", f"{name}.out"
    kafka_io.create_topics(broker.bootstrap, PARTITIONS, source, target)
    producer = kafka_io.producer(broker.bootstrap)
    for number in range(2 * PARTITIONS):
        producer.produce(source, value=b"%d" % number, partition=number % PARTITIONS)
    # All further ones in one partition.
    for number in range(2 * PARTITIONS, 2 * PARTITIONS + 500):
        producer.produce(source, value=b"%d" % number, partition=0)
    assert producer.flush(300) == 0
    job = Job(broker.bootstrap, name, source, target, tmp_path / "copy", records=2)
    ended = run_copy(job, micro_batches=1)
    assert ended.error is None
    assert ended.failed == []
    found: dict[int, list[int]] = {}
    for row in kafka_io.read(broker.bootstrap, target):
        found.setdefault(row.partition, []).append(int(row.value))
    assert found == {each: [each, each + PARTITIONS] for each in range(PARTITIONS)}
    skewed = Job(broker.bootstrap, name, source, target, tmp_path / "copy", records=1_000)
    assert run_copy(skewed).error is None
    rows = kafka_io.read(broker.bootstrap, target)
    assert len(rows) == 2 * PARTITIONS + 500
    in_order = [int(row.value) for row in rows if row.partition == 0]
    assert in_order == sorted(in_order)
    assert check_topic(broker, job.ledger)["COMMIT"] >= 4  # two starts, two micro-batches or more
