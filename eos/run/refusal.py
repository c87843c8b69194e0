"""What the broker refused Kafka's Java client in Spark's source or sink, by the exception's class.

Driver and writers know Kafka's codes. Spark's own parts leave a chain of Java exceptions, from the
driver's JVM or an executor's; a record's text in one of their messages names no class.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from eos.errors import EosError, KafkaRefusedError, RecordRefusedError
from eos.run.failure import Failure
from eos.transaction.rights import missing

_KAFKAS = "org.apache.kafka.common."
_LISTED = re.compile(r"\[([^\[\],]{1,249})")  # a topic, of those that an exception lists
_SAID_MAX = 300
_CODES = {
    "TopicAuthorizationException": 29,
    "GroupAuthorizationException": 30,
    "ClusterAuthorizationException": 31,
}
_NULL_FIELD = "AVRO_CANNOT_WRITE_NULL_FIELD"
_INCOMPATIBLE, _NO_SYMBOL = "IncompatibleSchemaException", "since it's not defined in enum"
_LOGIN = {"SaslAuthenticationException", "SslAuthenticationException"}
_SETTINGS = {"ConfigException", "InvalidConfigurationException"}
# Records that Kafka, or its client, takes in no attempt, and the way out.
_UNFIT = {
    "RecordTooLargeException": "leave such records out by `where` or a step, or raise "
    "max.message.bytes of the topic",
    "RecordBatchTooLargeException": "leave such records out by `where` or a step, or raise "
    "segment.bytes of the topic",
    "InvalidRecordException": "a topic with cleanup.policy=compact takes no record without a key: "
    "give the sink's `key` a value, or leave such rows out by `where`",
    "InvalidTimestampException": "are the clocks of the brokers and of Spark right? The topic's "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms say which times it takes",
}
_NO_PARTITION = {
    f"{_KAFKAS}errors.TimeoutException": re.compile(
        r"Partition \d{1,10} of topic \S{1,249} with partition count \d{1,10} is not present"
    ),
    "java.lang.IllegalArgumentException": re.compile(r"Invalid partition: -\d{1,10}"),
}


def avro_refusal(failure: Failure) -> EosError | None:
    """A row that its sink's Avro schema has no room for: another attempt would meet it again."""
    found = failure.condition(_NULL_FIELD) or failure.first(
        lambda link: link.name == _INCOMPATIBLE and _NO_SYMBOL in link.message
    )
    if found is None:
        return None
    return RecordRefusedError(
        f"a row does not fit the Avro schema of its sink: {found.line[:_SAID_MAX]}",
        hint='give the field another type in the schema, such as ["null", "long"], or leave such '
        "rows out by `where`, a rule of `expect` or a step",
    )


def record_refusal(failure: Failure) -> RecordRefusedError | None:
    """A record that Spark's own sink could not write, and can't in another run either."""
    for link in failure.links:
        if link.kind.startswith(_KAFKAS) and link.name in _UNFIT:
            return RecordRefusedError(
                f"Kafka does not take a record of a sink: {link.line[:_SAID_MAX]}",
                hint=_UNFIT[link.name],
            )
        wanted = _NO_PARTITION.get(link.kind)
        found = wanted.match(link.message) if wanted else None
        if found is not None:
            return RecordRefusedError(
                f"a row names a partition that its sink's topic lacks: {found.group()}",
                hint="correct what the sink's `partition` names, or give the topic more partitions",
            )
    return None


def source_refusal(failure: Failure, sinks: Collection[str] = ()) -> EosError | None:
    """None if the source was not refused, so that it may pass. `sinks` are the topics that Spark
    writes itself: then the refusal may be theirs."""
    for link in failure.links:
        if not link.kind.startswith(_KAFKAS):
            continue
        name, said = link.name, link.line[:_SAID_MAX]
        if name in _CODES:
            listed = _LISTED.search(said)
            topic = listed.group(1) if listed else ""
            is_sinks = topic in sinks or bool(sinks and name == "ClusterAuthorizationException")
            right = missing("Produce" if is_sinks else "Fetch", _CODES[name], topic)
            assert right is not None, "each of these codes is a refusal"
            return KafkaRefusedError(
                f"Kafka refused Spark's {'sink' if is_sinks else 'source'}: {said}. {right.told}",
                hint=right.grant,
            )
        if name in _LOGIN | _SETTINGS:
            causes = [each for each in failure.links if each.kind.startswith("java")]
            said += "".join(f" ({each.kind}: {each.line[:200]})" for each in causes[-1:])
            what = "can't use kafka.security" if name in _SETTINGS else "was not let in by Kafka"
            return KafkaRefusedError(
                f"Spark's source {what}: {said}",
                hint="the driver could: are the files and variables that kafka.security names the "
                "same on each machine, and can the user that Spark runs as read them?",
            )
    return None
