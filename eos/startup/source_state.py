"""Look up the source's topics and offsets in the cluster, and check that they fit the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.deadline import Deadline
from eos.errors import PromiseBrokenError, UsageError
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.ledger.ranges import require_same_topics
from eos.ledger.record import Ends, Position
from eos.plan.plan import Plan
from eos.plan.security import source_options
from eos.read.kafka_source import SparkKafkaSource
from eos.startup.topic_lookup import existing_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMEOUT_MS = 60_000


def source_of(planned: Plan, starts: Ends) -> SparkKafkaSource:
    """Return the settings of Spark's Kafka source. Only a fresh checkpoint uses `starts`; an
    existing one has its own offsets."""
    connection = planned.source_connection
    return SparkKafkaSource(
        bootstrap=",".join(connection.bootstrap),
        topics=planned.source_topics,
        records_max=planned.source.max_records,
        partitions_min=planned.source.min_partitions,
        starts=starts,
        pattern=planned.source.pattern,
        waits_for=planned.waits_for,
        client={**connection.client, **source_options(connection.security)},
    )


def source_client(planned: Plan, client: KafkaClient) -> KafkaClient:
    """Return the client of the source's cluster: `client` itself, unless the plan names another
    cluster than that of the targets. The other client is closed with `client`."""
    other = planned.source_cluster
    return client if other is None else client.of_cluster(other.kafka)


def require_other_cluster(planned: Plan, client: KafkaClient, deadline: Deadline) -> None:
    """Raise UsageError if the source's cluster, which the plan names as another one, is the
    targets' cluster. The pipeline could read its own output, and would commit its group twice."""
    other = planned.source_cluster
    if other is None:
        return
    cluster_id = source_client(planned, client).cluster_id(deadline)
    if cluster_id == client.cluster_id(deadline):
        name = planned.names.pipeline
        raise UsageError(
            "source_cluster_same",
            f"{name}: the source's cluster {other.name!r} ({','.join(other.bootstrap)}) is the "
            f"cluster of the targets ({','.join(planned.bootstrap)}): both have the id "
            f"{cluster_id}",
            hint="remove `source.kafka.cluster`: then one transaction has the records and the "
            "group's offsets; or correct the cluster's addresses in the profile",
            pipeline=name,
            cluster=other.name,
        )


@dataclass(frozen=True, slots=True)
class LiveSource:
    """The source's current topics and offsets. Each method sends requests to the cluster.

    `client` is the one of the source's cluster (`source_client`)."""

    planned: Plan
    client: KafkaClient
    timeout_ms: int = _TIMEOUT_MS  # limit for each request

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        name = self.planned.names.pipeline
        found = existing_topics(
            self.client,
            topics,
            Deadline.after_ms(self.timeout_ms),
            what="source",
            code="gone",
            missing=PromiseBrokenError,
            hint=lambda topic: (
                f"it existed before: was it deleted? `eos recover {name} "
                f"--forget-topic {topic}` resumes without it"
            ),
            pipeline=name,
        )
        return {topic: info.topic_id for topic, info in found.items()}

    def earliest(self, partitions: Iterable[TopicPartition]) -> Ends:
        deadline = Deadline.after_ms(self.timeout_ms)
        return self.client.list_offsets(partitions, "earliest", committed=False, deadline=deadline)

    def latest(self, partitions: Iterable[TopicPartition]) -> Ends:
        deadline = Deadline.after_ms(self.timeout_ms)
        return self.client.list_offsets(partitions, "latest", committed=False, deadline=deadline)

    def group_offsets(
        self, partitions: Iterable[TopicPartition], deadline: Deadline | None = None
    ) -> Ends:
        deadline = deadline or Deadline.after_ms(self.timeout_ms)
        found = self.client.committed_offsets(self.planned.names.group, deadline, partitions)
        return {tp: committed.offset for tp, committed in found.items()}

    def require_unchanged(self, position: Position, next_offsets: Ends | None = None) -> None:
        """Raise if a source topic was recreated, or if the next offset of a partition was deleted
        or does not exist yet.

        Topic ids are checked first, because a recreated topic's offsets belong to other records. If
        a micro-batch is planned, `next_offsets` are its starts, which replace the position's ends.
        """
        name = self.planned.names.pipeline
        require_same_topics(name, position, self.topic_ids(position.topic_ids))
        self.require_there(position.ends if next_offsets is None else next_offsets)

    def require_there(self, position: Ends) -> None:
        """Raise PromiseBrokenError if the next offset of a partition was deleted, or is after the
        partition's end."""
        name = self.planned.names.pipeline
        earliest, latest = self.earliest(position), self.latest(position)
        for tp, offset in sorted(position.items()):
            subject = f"{name}: {tp.topic}-{tp.partition}"
            values = {"pipeline": name, "topic": tp.topic, "partition": tp.partition}
            if offset < earliest[tp]:
                n_lost = earliest[tp] - offset
                raise PromiseBrokenError(
                    "truncated",
                    f"{subject} begins at offset {earliest[tp]}, but {offset} is next: "
                    f"{n_lost} offsets were deleted before they were read",
                    hint="retention or a client deleted them while the pipeline was stopped or "
                    "lagged. They can't be restored, and nothing was skipped so far: `eos recover "
                    f"{name} --accept-start` resumes without them",
                    ledger=offset,
                    earliest=earliest[tp],
                    **values,
                )
            if offset > latest[tp]:
                n_lost = offset - latest[tp]
                raise PromiseBrokenError(
                    "source_lost",
                    f"{subject} ends at offset {latest[tp]}, but {offset} is next: "
                    f"{n_lost} offsets that were read before are missing now",
                    hint="did an unclean leader election lose records, or was the cluster "
                    "restored from a copy? New records would get the lost records' offsets, and "
                    f"be skipped. `eos recover {name}` lists the ledger's records: rewind to one "
                    "from before the loss with `--rewind-to OFFSET`",
                    ledger=offset,
                    latest=latest[tp],
                    **values,
                )


def above(frame: DataFrame, floors: Ends) -> DataFrame:
    """Return the rows without those below `floors`, the offsets up to which each partition is
    committed."""
    return _without(frame, floors, "<")


def below(frame: DataFrame, ends: Ends) -> DataFrame:
    """Return the rows without those at or above a partition's end."""
    return _without(frame, ends, ">=")


def _without(frame: DataFrame, offsets: Ends, comparison: str) -> DataFrame:
    for (topic, partition), offset in sorted(offsets.items()):
        frame = frame.filter(  # a topic's name needs no quoting
            f"NOT (topic = '{topic}' AND partition = {partition} AND offset {comparison} {offset})"
        )
    return frame
