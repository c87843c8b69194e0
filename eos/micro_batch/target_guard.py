"""Check that the target topics are those with which the run began, and look up their size
limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eos.deadline import Deadline
from eos.errors import EosError, PromiseBrokenError
from eos.kafka.client import KafkaClient
from eos.kafka.cluster import TopicInfo
from eos.kafka.target_partitions import Targets
from eos.plan.plan import Plan
from eos.startup.topic_limits import TargetLimits
from eos.startup.topic_lookup import existing_topics
from eos.transaction.micro_batch import STEP_TIMEOUT_MS


class TargetGuard:
    """The ids of the target topics since the start of the run, and their size limits for record
    batches."""

    def __init__(self, plan: Plan, client: KafkaClient) -> None:
        self._plan = plan
        self._client = client
        self._limits = TargetLimits(client, plan.message_bytes_max)
        self._ids: dict[str, str] = {}

    def targets(self, names: Iterable[str]) -> Targets:
        """Return the partitions and size limits of the topics `names` as they are now, for one
        attempt."""
        topics, limit = self.require_same(), self._limits.of
        return Targets.of({name: (topics[name].partitions, limit(name)) for name in names})

    def require_same(self) -> Mapping[str, TopicInfo]:
        """Return all target topics. Raise PromiseBrokenError if one was deleted or recreated during
        the run.

        The acknowledged records of a recreated topic are gone, and the broker would commit the rest
        without an error. If a topic is deleted between this check and the commit, the next
        micro-batch reports it.
        """
        topics = existing_topics(
            self._client,
            self._plan.sink_topics,
            Deadline.after_ms(STEP_TIMEOUT_MS),
            what="target",
            code="target_topic_gone",
            missing=PromiseBrokenError,
            hint="it existed at startup: create it again, then start the pipeline again",
            pipeline=self._plan.names.pipeline,
        )
        for topic, info in topics.items():
            before = self._ids.setdefault(topic, info.topic_id)
            if before != info.topic_id:
                raise self._recreated(topic, before, info.topic_id)
        return topics

    def explained(self, error: EosError) -> EosError:
        """Return the error to raise for a failed attempt. If the broker's size limit has changed,
        this is an error that is retried."""
        return self._limits.explained(error)

    def _recreated(self, topic: str, before: str, now: str) -> PromiseBrokenError:
        name = self._plan.names.pipeline
        return PromiseBrokenError(
            "target_recreated",
            f"{name}: the target topic {topic!r} was deleted and created again while the "
            f"pipeline ran (its id changed from {before} to {now}): the records written "
            "to it before are gone",
            hint="start again to resume with the new topic; to write records again, rewind to an "
            f"earlier ledger record with `eos recover {name} --rewind-to OFFSET`",
            topic=topic,
            pipeline=name,
        )
