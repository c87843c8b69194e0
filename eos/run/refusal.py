"""What Kafka's Java client, in Spark's source or sink, was refused: found in what Spark says of it.

Driver and writers know Kafka's codes; of Spark's own parts there are only the words of an
exception, from the driver's JVM or an executor's, somewhere in a stack trace.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from eos.errors import EosError, KafkaRefusedError, RecordRefusedError
from eos.transaction.rights import missing

_NAMED = re.compile(r"org\.apache\.kafka\.common\.(?:errors\.|config\.)?(\w+): ([^\n]*)")
_CAUSED = re.compile(r"Caused by: (java\S+: [^\n]*)")
_LISTED = re.compile(r"\[([^\],]+)")
_CODES = {
    "TopicAuthorizationException": 29,
    "GroupAuthorizationException": 30,
    "ClusterAuthorizationException": 31,
}
_AVRO = re.compile(r"AVRO_CANNOT_WRITE_NULL_FIELD[^\n]*|[^\n]*since it's not defined in enum[^\n]*")
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
_NO_PARTITION = re.compile(
    r"Partition \d+ of topic \S+ with partition count \d+ is not present"
    r"|(?<=IllegalArgumentException: )Invalid partition: -\d+"
)


def avro_refusal(error: Exception) -> EosError | None:
    """A row that its sink's Avro schema has no room for: another attempt would meet it again."""
    found = _AVRO.search(_said(error))
    if found is None:
        return None
    return RecordRefusedError(
        f"a row does not fit the Avro schema of its sink: {found.group().strip()[:300]}",
        hint='give the field another type in the schema, such as ["null", "long"], or leave such '
        "rows out by `where`, a rule of `expect` or a step",
    )


def record_refusal(error: Exception) -> RecordRefusedError | None:
    """A record that Spark's own sink could not write, and can't in another run either."""
    text = _said(error)
    for name, words in _NAMED.findall(text):
        if name in _UNFIT:
            return RecordRefusedError(
                f"Kafka does not take a record of a sink: {words.strip()[:300]}", hint=_UNFIT[name]
            )
    found = _NO_PARTITION.search(text)
    if found is None:
        return None
    return RecordRefusedError(
        f"a row names a partition that its sink's topic lacks: {found.group()}",
        hint="correct what the sink's `partition` names, or give the topic more partitions",
    )


def source_refusal(error: Exception, sinks: Collection[str] = ()) -> EosError | None:
    """None if the source was not refused, so that it may pass. `sinks` are the topics that Spark
    writes itself: then the refusal may be theirs."""
    text = _said(error)
    for name, words in _NAMED.findall(text):
        said = words.strip()[:300]
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
            said += "".join(f" ({cause[:200]})" for cause in _CAUSED.findall(text)[-1:])
            what = "can't use kafka.security" if name in _SETTINGS else "was not let in by Kafka"
            return KafkaRefusedError(
                f"Spark's source {what}: {said}",
                hint="the driver could: are the files and variables that kafka.security names the "
                "same on each machine, and can the user that Spark runs as read them?",
            )
    return None


def _said(error: Exception) -> str:
    """PySpark keeps the causes apart from the words."""
    return f"{error}\n{getattr(error, '_stackTrace', '')}"
