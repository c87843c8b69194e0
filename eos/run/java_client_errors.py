"""Refusals that Spark reports: of its source by the broker, and of a row by an Avro schema.

Driver and writers know Kafka's codes. Spark's own parts leave a chain of Java exceptions, from the
driver's JVM or an executor's; a record's text in one of their messages names no class.
"""

from __future__ import annotations

import re

from eos.errors import EosError, KafkaRefusedError, RecordRefusedError
from eos.kafka.acls import missing
from eos.spark.failure import Failure

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


def source_refusal(failure: Failure) -> EosError | None:
    """Return the broker's refusal of Spark's source, or None if another attempt may succeed."""
    for link in failure.links:
        if not link.kind.startswith(_KAFKAS):
            continue
        name, said = link.name, link.line[:_SAID_MAX]
        if name in _CODES:
            listed = _LISTED.search(said)
            right = missing("Fetch", _CODES[name], listed.group(1) if listed else "")
            assert right is not None, "each of these codes is a refusal"
            return KafkaRefusedError(
                f"Kafka refused Spark's source: {said}. {right.told}", hint=right.grant
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
