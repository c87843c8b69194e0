"""A target topic that gets more partitions while a pipeline runs."""

from __future__ import annotations

from dataclasses import replace

from support.doubles import plan_of
from support.kafka import kafka_io

from eos.encode.sink_spec import SinkSpec
from eos.micro_batch.target_guard import TargetGuard
from eos.plan.names import Names


def test_the_next_attempt_writes_to_the_new_partitions(broker, client, topic, name):
    """The partitions of an attempt are a value: they are looked up once, when it begins."""
    planned = plan_of(Names(*[name] * 6), (broker.bootstrap,), topic, "here")
    limits = {topic: 1_000_000}
    planned = replace(planned, sinks=(SinkSpec(topic=topic),), message_bytes_max=limits)
    guard = TargetGuard(planned, client)
    before = guard.targets([topic])
    kafka_io.add_partitions(broker.bootstrap, topic, 5)
    after = guard.targets([topic])
    assert [len(each.partitions) for each in (before, after)] == [3, 5]
    guard.require_same()  # it is the same topic
