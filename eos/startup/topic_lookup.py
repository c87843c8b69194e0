"""Look up source and target topics, and raise an error for a missing one.

If a topic is missing, the lookup is repeated for a few seconds: a broker may not know a new topic
yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from eos.deadline import Backoff, Deadline
from eos.errors import EosError, UnavailableError, UsageError
from eos.kafka.acls import missing as lacking
from eos.kafka.client import KafkaClient
from eos.kafka.cluster import TopicInfo
from eos.kafka.outcomes import name_of

if TYPE_CHECKING:
    from eos.config.source import KafkaSource

# UNKNOWN_TOPIC_OR_PARTITION and LEADER_NOT_AVAILABLE: a broker may return these errors for an
# existing topic while the broker starts, or before it has the metadata of a new topic.
_MAY_PASS = {3, 5}
_PASSES_WITHIN_MS = 5_000
_USED_BY = {"source": "Fetch", "target": "Produce"}


def existing_topics(
    client: KafkaClient,
    names: Iterable[str],
    deadline: Deadline,
    *,
    what: str,
    code: str,
    missing: type[EosError],
    hint: str | Callable[[str], str],
    **fields: str,
) -> Mapping[str, TopicInfo]:
    """Return the topics with these names. For the first one that does not exist, raise an error of
    the class `missing` with this code and hint.

    `what` is "source" or "target".
    """
    required = frozenset(names)
    found = _await_topics(lambda: client.topics(required, deadline), deadline) if required else {}
    for name in sorted(required):
        answer = found[name].error
        if answer in _MAY_PASS:
            remedy = hint if isinstance(hint, str) else hint(name)
            prefix = f"{fields['pipeline']}: " if "pipeline" in fields else ""
            message = f"{prefix}the {what} topic {name!r} does not exist"
            raise missing(code, message, hint=remedy, topic=name, **fields)
        if answer:
            raise _missing_error(missing, what, name, answer)
    return found


def source_topics(
    source: KafkaSource, client: KafkaClient, deadline: Deadline, *, own: Iterable[str] = ()
) -> Mapping[str, TopicInfo]:
    """Return the topics that the source names, or that match its pattern now.

    `own` are the topics that this pipeline writes. Raise UsageError if the pattern matches one of
    them, because the pipeline would read its own output for ever. Kafka's internal topics match no
    pattern.
    """
    if source.pattern is None:
        return existing_topics(
            client,
            source.topic_names,
            deadline,
            what="source",
            code="source_topic_missing",
            missing=UsageError,
            hint="is the name right, and does the profile name the topic's cluster? A run creates "
            "no source topic: create it with `kafka-topics.sh --bootstrap-server ... --create "
            "--topic TOPIC`, or on an embedded broker with `Kafka(BOOTSTRAP).create(TOPIC, "
            "PARTITIONS)` of eos.testing.outside",
        )
    pattern = re.compile(source.pattern)
    for name in sorted(filter(source.reads, own)):
        raise UsageError(
            "source_pattern_matches_own_topic",
            f"the source's pattern `{source.pattern}` matches the topic {name!r}, which this "
            "pipeline writes: it would read its own output",
            hint="make the pattern narrower; `(?!NAME$)` at its beginning excludes a topic",
            topic=name,
        )
    found = _await_topics(lambda: client.topics(pattern, deadline), deadline)
    if not found:
        raise UsageError(
            "source_pattern_no_match",
            f"the source's pattern `{source.pattern}` matches no topic",
            hint="the pattern must match a topic's whole name; internal topics never match. Does "
            "the profile name the right cluster, and may this user describe the topics?",
        )
    for name, info in sorted(found.items()):
        if info.error:
            kind = UnavailableError if info.error in _MAY_PASS else UsageError
            raise _missing_error(kind, "source", name, info.error)
    return found


def is_missing(topic: TopicInfo) -> bool:
    """Return whether a broker does not know the topic, now."""
    return topic.error in _MAY_PASS


def _await_topics(
    lookup: Callable[[], Mapping[str, TopicInfo]], deadline: Deadline
) -> Mapping[str, TopicInfo]:
    """Return the topics. While one is missing, repeat the lookup for up to 5 seconds."""
    patience = Deadline.after_ms(deadline.at_most_ms(_PASSES_WITHIN_MS))
    backoff = Backoff(first_ms=50)
    found = lookup()
    while not _is_settled(found) and not patience.has_passed:
        backoff.sleep(patience)
        found = lookup()
    return found


def _is_settled(found: Mapping[str, TopicInfo]) -> bool:
    return bool(found) and all(info.error not in _MAY_PASS for info in found.values())


def _missing_error(kind: type[EosError], what: str, name: str, code: int) -> EosError:
    # Name the permission for reading or writing the topic, because it includes DESCRIBE.
    right = lacking(_USED_BY[what], code, name)
    return kind(
        "topic_unseen",
        f"the {what} topic {name!r} can't be looked up: {name_of(code)}"
        + (f". {right.message}" if right is not None else ""),
        hint=right.grant if right is not None else "may this user describe the topic?",
        topic=name,
    )
