"""Dead letters of a pipeline that were not replayed yet, by the rule that rejected them.

Replays of a rule have a transactional id, a group and a ledger of their own, named after pipeline
and rule. With one position for all rules, a replay of one rule would skip the dead letters of all
other rules for good. A dead letter has one rule, so no two replays write the same record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from eos.config.model import REPLAYS
from eos.config.rejected_records import RULE_PATTERN
from eos.config.source import KafkaSource
from eos.deadline import Deadline
from eos.errors import KafkaRefusedError, PromiseBrokenError, UsageError
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.record_reader import StoredRecord
from eos.plan.names import Names
from eos.plan.outputs import Outputs
from eos.plan.plan import Plan
from eos.spark.dead_letters import Origin, origin
from eos.startup.acquire import ledger_of
from eos.startup.source_state import LiveSource
from eos.startup.topic_lookup import existing_topics

READ_TIMEOUT_MS = 60_000
# Limits of one read. The record that reaches a limit is still included.
_RECORDS_MAX, _BYTES_MAX = 1_000, 8 << 20
_OFFSET_OUT_OF_RANGE = 1  # Kafka's OFFSET_OUT_OF_RANGE


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: its record in the dead-letter topic, and where its source record was."""

    at: TopicPartition
    stored: StoredRecord
    origin: Origin


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """The dead-letter topic of a pipeline. `prefix` and `state_root` are those of the profile."""

    planned: Plan
    client: KafkaClient
    prefix: str
    state_root: str

    @property
    def name(self) -> str:
        if self.planned.dead_letters is None:
            raise UsageError(
                "dead_letter_topic_undeclared",
                f"{self.planned.names.pipeline} has no dead-letter topic",
                hint="set `dead_letter: TOPIC` in the sink",
            )
        return self.planned.dead_letters.topic

    def of_rule(self, rule: str) -> Plan:
        """Return the plan of a replay of one rule: a pipeline that reads the dead-letter topic."""
        return replace(
            self.planned,
            names=Names.of(
                self.prefix, f"{self.planned.names.pipeline}{REPLAYS}{rule}", self.state_root
            ),
            source=KafkaSource(topic=self.name),
            transforms=(),
            sinks=(),
            outputs=Outputs({}, (), is_filtered=False),
            created_topics={},
            dead_letters=None,
        )

    def ends(self, deadline: Deadline) -> tuple[str, Mapping[TopicPartition, tuple[int, int]]]:
        """Return the topic's id, and each partition's first offset and its last stable offset."""
        info = existing_topics(
            self.client,
            [self.name],
            deadline,
            what="dead-letter",
            code="dead_letter_topic_missing",
            missing=UsageError,
            hint="create it, or set `create` in the sink, so that the next run creates it",
        )[self.name]
        partitions = [TopicPartition(self.name, number) for number in range(info.partitions)]
        first = self.client.list_offsets(partitions, "earliest", committed=False, deadline=deadline)
        end = self.client.list_offsets(partitions, "latest", committed=True, deadline=deadline)
        return info.topic_id, {tp: (first[tp], end[tp]) for tp in partitions}

    def letters(self, tp: TopicPartition, start: int, end: int) -> Iterator[Letter]:
        """Yield this pipeline's dead letters in one partition, from `start` to `end` (exclusive).

        The rule is in a header, which every producer with access to the topic can set, and becomes
        part of names in Kafka and on disk. So records with an invalid rule name are skipped.
        """
        while start < end:  # `end` is fixed, so the loop ends even if dead letters are added
            deadline = Deadline.after_ms(READ_TIMEOUT_MS)
            try:
                records = self.client.read_records(
                    tp,
                    start,
                    end,
                    committed=True,
                    deadline=deadline,
                    records_max=_RECORDS_MAX,
                    bytes_max=_BYTES_MAX,
                )
            except KafkaRefusedError as refused:
                start = self._first_offsets(tp, start, refused, deadline)
                continue
            if not records:
                return
            for stored in records:
                found = origin(stored.headers)
                is_ours = found is not None and found.pipeline == self.planned.names.pipeline
                if found is not None and is_ours and re.fullmatch(RULE_PATTERN, found.rule):
                    yield Letter(tp, stored, found)
            start = records[-1].offset + 1

    def _first_offsets(
        self, tp: TopicPartition, start: int, refused: KafkaRefusedError, deadline: Deadline
    ) -> int:
        """Return the offset to read from after retention deleted the records at `start`.

        The result is above `start`. If the log ends before `start`, it has lost records. Then the
        broker's refusal is raised.
        """
        if refused.fields.get("error") != _OFFSET_OUT_OF_RANGE:
            raise refused
        first = self.client.list_offsets([tp], "earliest", committed=False, deadline=deadline)[tp]
        if first <= start:
            raise refused
        return first

    def waiting(self, since_ms: int) -> Mapping[str, int]:
        """Return the number of dead letters that were not replayed yet, by rule.

        Dead letters that were written before `since_ms` are not counted. Nothing is changed."""
        topic_id, ends = self.ends(Deadline.after_ms(READ_TIMEOUT_MS))
        counts: dict[str, int] = {}
        reached: dict[str, Mapping[TopicPartition, int]] = {}
        for tp, (first, end) in ends.items():
            for letter in self.letters(tp, first, end):
                rule = letter.origin.rule
                if rule not in reached:
                    reached[rule] = self._replayed_ends(rule, topic_id)
                    counts[rule] = 0
                is_new = letter.stored.offset >= reached[rule].get(tp, 0)
                counts[rule] += is_new and letter.stored.timestamp_ms >= since_ms
        return counts

    def _replayed_ends(self, rule: str, topic_id: str) -> Mapping[TopicPartition, int]:
        """Return the offsets up to which a rule's dead letters were replayed; empty if none was."""
        planned, deadline = self.of_rule(rule), Deadline.after_ms(READ_TIMEOUT_MS)
        if self.client.topics([planned.names.ledger], deadline)[planned.names.ledger].error:
            return {}
        last = ledger_of(planned, self.client).peek(deadline)
        is_same = last is not None and last.position.topic_ids.get(self.name) == topic_id
        return last.position.ends if last is not None and is_same else {}


@dataclass(frozen=True, slots=True)
class ReplayedTopic(LiveSource):
    """The dead-letter topic as the source of a replay.

    Its errors name no `eos recover` command, because such commands do not apply to a replay."""

    topic_id: str = ""

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        name = self.planned.names.pipeline
        known = "records replayed before are committed; replay again for the dead letters there"
        found = existing_topics(
            self.client,
            topics,
            Deadline.after_ms(self.timeout_ms),
            what="dead-letter",
            code="dead_letter_topic_gone",
            missing=PromiseBrokenError,
            hint=f"it existed when the replay began: create it again; {known}",
            pipeline=name,
        )
        for topic, info in found.items():
            if info.topic_id != self.topic_id:
                raise PromiseBrokenError(
                    "recreated",
                    f"{name}: the dead-letter topic {topic!r} was recreated while it was read (its "
                    f"id changed from {self.topic_id} to {info.topic_id})",
                    hint=known,
                    topic=topic,
                )
        return {topic: info.topic_id for topic, info in found.items()}
