"""The errors for a ledger topic that lost records or was deleted, with how to fix it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eos.errors import KafkaRefusedError, PromiseBrokenError

# UNKNOWN_TOPIC_OR_PARTITION and UNKNOWN_TOPIC_ID. The client has retried for longer than a starting
# broker needs to learn of a topic, so the topic is missing.
_MISSING: Final = frozenset({3, 100})


def cut(pipeline: str, topic: str, problem: str, offset: int) -> PromiseBrokenError:
    """Return the error for a ledger that lacks acknowledged records. `problem` says how that was
    noticed."""
    return PromiseBrokenError(
        "ledger_cut",
        f"{pipeline}: the ledger {topic!r} {problem}: records that Kafka had acknowledged are gone",
        hint="did an unclean leader election lose them, or was the topic recreated? "
        f"`eos recover {pipeline}` lists what is left to resume from",
        topic=topic,
        offset=offset,
    )


def unreadable(pipeline: str, topic: str, reason: object) -> PromiseBrokenError:
    """Return the error for a record of this process that no startup could read back."""
    return PromiseBrokenError(
        "ledger_record_invalid",
        f"{pipeline}: the next record for the ledger {topic!r} was not sent, because no startup "
        f"could read it back ({reason})",
        hint="nothing was committed with it. If the message names a value of the profile or the "
        "environment, correct it. Otherwise report this as a bug of spark-eos",
        topic=topic,
    )


@contextmanager
def must_exist(pipeline: str, topic: str) -> Iterator[None]:
    """Replace a broker's "unknown topic" error by the error for a deleted ledger, in this
    context."""
    try:
        yield
    except KafkaRefusedError as error:
        if not _is_unknown(topic, error):
            raise
        raise PromiseBrokenError(
            "ledger_gone",
            f"{pipeline}: the ledger {topic!r} does not exist any more",
            hint="the topic was deleted, or this user may not describe it any more; nothing was "
            f"committed since. `eos recover {pipeline}` lists what is left to resume from",
            topic=topic,
            pipeline=pipeline,
        ) from error


def _is_unknown(topic: str, error: KafkaRefusedError) -> bool:
    """Return whether the error means that the broker does not know the ledger topic.

    A failed leader lookup has the fields `topic` and `error`, a rejected request `where` and
    `kafka_error`.
    """
    fields = error.fields
    if fields.get("topic") == topic:
        return fields.get("error") in _MISSING
    return fields.get("where") == f"{topic}-0" and fields.get("kafka_error") in _MISSING
