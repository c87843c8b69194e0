"""How large a record batch do the target topics accept (`max.message.bytes`)?

The limits are read at startup, and again if a record or a record batch was too large. An operator
may have changed the setting in between. Then the next attempt encodes for the new limit. Only a
single record above the limit can't be written by any attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eos.deadline import Backoff, Deadline
from eos.errors import AttemptFailedError, EosError
from eos.kafka.api import Api
from eos.kafka.client import KafkaClient

SETTING = "max.message.bytes"
_MESSAGE_TOO_LARGE = 10
_TIMEOUT_MS = 30_000
# How long to wait for a changed limit: a broker may enforce a new limit before it reports it.
_SEEN_WITHIN_MS = 5_000


def message_limits(
    client: KafkaClient, topics: Iterable[str], deadline: Deadline
) -> Mapping[str, int]:
    """Return the largest record batch that each topic accepts, in bytes."""
    return {name: int(client.topic_config(name, SETTING, deadline)) for name in topics}


class TargetLimits:
    """The target topics' size limits, as last read, for which the next attempt encodes record
    batches."""

    def __init__(self, client: KafkaClient, known: Mapping[str, int]) -> None:
        self._client = client
        self._known = known

    def of(self, topic: str) -> int:
        return self._known[topic]

    def explained(self, error: EosError) -> EosError:
        """Return the error to raise for a failed attempt.

        If a record or a record batch was too large, read the limits again. If one has changed,
        return an error that is retried; otherwise return `error`.
        """
        is_refused = _is_refused(error)
        if not is_refused and "limit_bytes" not in error.fields:
            return error
        within_ms = _SEEN_WITHIN_MS if is_refused else 0
        try:
            before, self._known = self._known, self._await_change(Deadline.after_ms(within_ms))
        except EosError:
            return error  # the limits can't be read now, and the first error explains more
        for topic, limit in sorted(self._known.items()):
            if limit != before[topic]:
                return AttemptFailedError(
                    "topic_size_limit_changed",
                    f"{SETTING} of the topic {topic!r} changed from {before[topic]} to {limit}",
                    hint="no action is needed: the micro-batch is retried with the new limit",
                    topic=topic,
                )
        return error

    def _await_change(self, patience: Deadline) -> Mapping[str, int]:
        """Return the current limits. Wait until they differ from the known ones, or until
        `patience` has passed."""
        backoff, deadline = Backoff(first_ms=50), Deadline.after_ms(_TIMEOUT_MS)
        while True:
            found = message_limits(self._client, self._known, deadline)
            if found != self._known or patience.has_passed:
                return found
            backoff.sleep(patience)


def _is_refused(error: EosError) -> bool:
    """Return whether a broker rejected a record batch for its size."""
    fields = error.fields
    return (fields.get("api"), fields.get("kafka_error")) == (
        Api.PRODUCE.value,
        _MESSAGE_TOO_LARGE,
    )
