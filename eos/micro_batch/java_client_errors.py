"""Recognize two final errors of Spark's JVM: Kafka rejected Spark's source, or a row does not fit
its Avro schema.

The driver and the writers get Kafka's error codes. Spark's own parts report a chain of Java
exceptions instead. An error is recognized by the classes in that chain: a message may quote a
record, a class name never does.
"""

from __future__ import annotations

import re

from eos.errors import EosError, KafkaRefusedError, RecordRefusedError
from eos.kafka.acls import missing
from eos.spark.failure import Failure

_KAFKAS = "org.apache.kafka.common."
_LISTED = re.compile(r"\[([^\[\],]{1,249})")  # the first topic in an exception's list
_REASON_MAX = 300
_CODES = {
    "TopicAuthorizationException": 29,
    "GroupAuthorizationException": 30,
    "ClusterAuthorizationException": 31,
}
_NULL_FIELD = "AVRO_CANNOT_WRITE_NULL_FIELD"
_INCOMPATIBLE, _NO_SYMBOL = "IncompatibleSchemaException", "since it's not defined in enum"
_LOGIN = {"SaslAuthenticationException", "SslAuthenticationException"}
_SETTINGS = {"ConfigException", "InvalidConfigurationException"}
_SAME_FILES = (
    "the driver could log in: are the files and variables of kafka.security the same on each "
    "machine, and can the user that Spark runs as read them?"
)


def avro_refusal(failure: Failure) -> EosError | None:
    """Return the error for a row that does not fit its sink's Avro schema, or None.

    A retry would fail on the same row, so the error is final.
    """
    found = failure.condition(_NULL_FIELD) or failure.first(
        lambda link: link.name == _INCOMPATIBLE and _NO_SYMBOL in link.message
    )
    if found is None:
        return None
    reason = found.line[:_REASON_MAX]
    return RecordRefusedError(
        "avro_value_mismatch",
        f"a row does not fit the Avro schema of its sink: {reason}",
        hint='give the field another type in the schema, such as ["null", "long"], or drop such '
        "rows with `where`, a rule of `expect` or a step",
    )


def source_refusal(failure: Failure) -> EosError | None:
    """Return the error if Kafka denied access, login or settings of Spark's source, else None.

    A retry would be rejected again, so the error is final.
    """
    for link in failure.links:
        if not link.kind.startswith(_KAFKAS):
            continue
        name, reason = link.name, link.line[:_REASON_MAX]
        if name in _CODES:
            listed = _LISTED.search(reason)
            right = missing("Fetch", _CODES[name], listed.group(1) if listed else "")
            assert right is not None, "each of these codes is a refusal"
            return KafkaRefusedError(
                "source_access_denied",
                f"Kafka denied Spark's source access: {reason}. {right.message}",
                hint=right.grant,
            )
        if name in _LOGIN | _SETTINGS:
            causes = [each for each in failure.links if each.kind.startswith("java")]
            reason += "".join(f" ({each.kind}: {each.line[:200]})" for each in causes[-1:])
            if name in _SETTINGS:
                return KafkaRefusedError(
                    "source_settings_invalid",
                    f"Spark's source can't use kafka.security: {reason}",
                    hint=f"{_SAME_FILES} And is the jar of a Java class that is missing in "
                    "`spark.jars` or `spark.jars.packages` of the profile?",
                )
            return KafkaRefusedError(
                "source_login_failed",
                f"Kafka rejected the login of Spark's source: {reason}",
                hint=_SAME_FILES,
            )
    return None
