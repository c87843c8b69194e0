"""What do ledger, cluster and checkpoint of a pipeline contain now?

`eos status`, `eos plan`, `eos doctor` and `eos recover` use this. The ledger's last record is read
at once, all else when it is needed. Without a fence the pipeline may run, so the parts of a
snapshot may be from slightly different moments. `eos recover` takes another snapshot after the
fence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from eos.checkpoint.files import Files, files_for
from eos.checkpoint.offset_log import Checkpoint, newest_with_offsets
from eos.deadline import Deadline
from eos.errors import PromiseBrokenError, UsageError
from eos.inspect.cluster_view import ClusterView
from eos.json_fields import INT64_MAX
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.ledger.ledger import Foreign, Ledger
from eos.ledger.ranges import require_same_topics
from eos.ledger.record import Ends, LedgerRecord, Position
from eos.plan.plan import Plan
from eos.startup.acquire import ledger_of
from eos.startup.deployment import with_known_deployment
from eos.startup.resume_position import inherited, starting_offsets
from eos.startup.source_state import LiveSource, source_client

TIMEOUT_MS = 120_000
# Limit of the wait for values that an open transaction hides. Without a fence, the transaction
# stays open until its timeout, so a longer wait rarely helps.
PATIENCE_MS = 10_000
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of one pipeline, read when it is needed.

    `last` is the newest ledger record that the pipeline wrote. `files` reads checkpoints; None if
    only a running Spark can read them. `ledger_id` is the topic id of the ledger, or empty.
    """

    planned: Plan
    client: KafkaClient  # of the targets' cluster
    source: LiveSource
    ledger: Ledger
    last: LedgerRecord | None
    files: Files | None
    has_ledger: bool = True
    ledger_id: str = ""

    @property
    def name(self) -> str:
        return self.planned.names.pipeline

    @property
    def foreign(self) -> list[Foreign]:
        """Return the ledger records of other producers after the pipeline's last one, newest first.

        Such records would stop a startup.
        """
        last = -1 if self.last is None else self.last.offset
        found = sorted(self.ledger.foreign.items(), reverse=True)
        return [each for offset, each in found if offset > last]

    @property
    def position(self) -> Position:
        """Return the position to resume from; empty if the ledger is empty."""
        return Position({}, {}) if self.last is None else inherited(self.planned, self.last)

    def newest_attempt(self, until: int = INT64_MAX) -> LedgerRecord | None:
        """Return the newest record of an attempt up to the ledger offset `until`."""
        records = self.ledger.newest_first(short_deadline())
        attempts = (each for each in records if each.attempt is not None)
        return next((each for each in attempts if each.offset <= until), None)

    def partitions(self) -> frozenset[TopicPartition]:
        """Return all partitions that the source has now, known to the ledger or not."""
        found = starting_offsets(self.planned, self.source.client, self.position, short_deadline())
        return frozenset(found)

    @property
    def cluster(self) -> ClusterView:
        return cluster_view(self.planned, self.client)

    def group(self, partitions: Iterable[TopicPartition]) -> Ends | None:
        """Return the group's offsets; None while an open transaction hides them."""
        return self.cluster.group_offsets(partitions, self.source.timeout_ms)

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Ends:
        """Return each partition's last stable offset: records below it are committed."""
        return self.source.client.list_offsets(
            partitions, "latest", committed=True, deadline=short_deadline()
        )

    def require_same_topics(self) -> None:
        """Raise PromiseBrokenError if a source topic in the ledger is missing or was recreated.

        The ledger's offsets of such a topic no longer apply, and the broker would reject a commit
        of them.
        """
        now = self.source.topic_ids(self.position.topic_ids)
        require_same_topics(self.name, self.position, now)

    def missing_topics(self, topics: Collection[str]) -> frozenset[str]:
        """Return the topics that do not exist.

        A broker may not know a new topic yet. So wait a while for missing topics, for all at once.
        """
        try:
            self.source.topic_ids(topics)
        except PromiseBrokenError as error:
            if error.code != "gone":
                raise
        else:
            return frozenset()
        now = self.source.client.topics(topics, short_deadline())
        return frozenset(name for name, info in now.items() if info.is_missing)

    def moved(self, ends: Ends) -> Position:
        """Return the pipeline's position with `ends` as the next source offsets.

        The next run then uses a fresh checkpoint. If an offset moves back, dedup's states are
        dropped. Otherwise, dedup would drop the records that are read again as duplicates.
        """
        ids = self.source.topic_ids({tp.topic for tp in ends})
        known = {**self.position.topic_ids, **ids}
        is_back = any(end < self.position.ends.get(tp, 0) for tp, end in ends.items())
        producers = "" if is_back else self.position.producers
        return replace(
            self.position, ends=ends, topic_ids=known, is_reset=True, producers=producers
        )

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that has offsets; None if there is none to read."""
        if self.files is None:
            return None
        current, _ = newest_with_offsets(self.files, self.planned.names.checkpoints)
        return self.with_plan(current)

    def with_plan(self, location: str | None) -> Checkpoint | None:
        """Return the checkpoint in this folder; None if it has no planned micro-batch."""
        if self.files is None or location is None:
            return None
        found = Checkpoint(self.files, location, is_opaque=self.planned.is_dataframe)
        return None if found.planned() is None else found


def take_snapshot(planned: Plan, client: KafkaClient, *, skips_foreign: bool = False) -> Snapshot:
    """Return a snapshot without a fence: a running pipeline is not disturbed and may continue."""
    planned = with_known_deployment(planned)
    ledger = ledger_of(planned, client, skips_foreign=skips_foreign)
    topic = ledger.partition.topic
    info = client.topics([topic], short_deadline())[topic]
    last = None if info.is_missing else ledger.peek(short_deadline())
    source = LiveSource(planned, source_client(planned, client), PATIENCE_MS)
    files, has_ledger = readable(planned), not info.is_missing
    return Snapshot(planned, client, source, ledger, last, files, has_ledger, info.topic_id)


def cluster_view(planned: Plan, client: KafkaClient) -> ClusterView:
    """Return the view of a pipeline in its one or two clusters. `client` is the targets' one."""
    names, source = planned.names, source_client(planned, client)
    other = None if source is client else source
    return ClusterView(client, names.transactional_id, names.group, names.ledger, other)


def readable(planned: Plan) -> Files | None:
    """Return the access to the checkpoints without Spark; None if there is none."""
    try:
        return files_for(planned.names.checkpoints, conf=planned.spark_conf)
    except UsageError:
        return None


def short_deadline() -> Deadline:
    return Deadline.after_ms(TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class SourceBounds:
    earliest: Ends
    latest: Ends

    def outside(self, offsets: Ends) -> Mapping[TopicPartition, int]:
        """Return the given offsets that are below a partition's first offset or above its end."""
        return {
            tp: offset
            for tp, offset in sorted(offsets.items())
            if not self.earliest[tp] <= offset <= self.latest[tp]
        }


def bounds(source: LiveSource, partitions: Collection[TopicPartition]) -> SourceBounds:
    return SourceBounds(source.earliest(partitions), source.latest(partitions))


def names_of(partitions: Collection[TopicPartition]) -> str:
    """Return the first few partitions as text for a message."""
    names = [str(tp) for tp in sorted(partitions)]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
