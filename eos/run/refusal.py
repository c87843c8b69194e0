"""What Kafka's Java client, in Spark's source, was refused: found in what Spark says of it.

Driver and writers know Kafka's codes; of the source there are only the words of an exception, from
the driver's JVM or an executor's, somewhere in a stack trace.
"""

from __future__ import annotations

import re

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


def avro_refusal(error: Exception) -> EosError | None:
    """A row that its sink's Avro schema has no room for: another attempt would meet it again."""
    found = _AVRO.search(f"{error}\n{getattr(error, '_stackTrace', '')}")
    if found is None:
        return None
    return RecordRefusedError(
        f"a row does not fit the Avro schema of its sink: {found.group().strip()[:300]}",
        hint='give the field another type in the schema, such as ["null", "long"], or leave such '
        "rows out by `where`, a rule of `expect` or a step",
    )


def source_refusal(error: Exception) -> EosError | None:
    """None if the source was not refused, so that it may pass."""
    # PySpark keeps the causes apart from the words.
    text = f"{error}\n{getattr(error, '_stackTrace', '')}"
    for name, words in _NAMED.findall(text):
        said = words.strip()[:300]
        if name in _CODES:
            listed = _LISTED.search(said)
            right = missing("Fetch", _CODES[name], listed.group(1) if listed else "")
            assert right is not None, "each of these codes is a refusal"
            return KafkaRefusedError(
                f"Kafka refused Spark's source: {said}. {right.told}", hint=right.grant
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
