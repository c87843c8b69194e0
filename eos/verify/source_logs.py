"""The source logs that `eos verify` reads, if they belong to the topics that the pipeline read.

A topic that was deleted and recreated has the same name and another topic id. Its offsets belong to
other records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from eos.dedup.stamp_columns import StampRules
from eos.finding import Finding
from eos.kafka.api import TopicPartition
from eos.kafka.cluster import TopicInfo
from eos.verify.findings import Findings
from eos.verify.log_reader import Reader, require_seen, short_deadline
from eos.verify.source import SourcePartition
from eos.verify.stamps import Stamps


class SourceRange(NamedTuple):
    """The offsets of a source partition that may prove drops, `begin` to `end` (exclusive).

    `topic_id` is the id of the topic that the transactions read; empty if it is not known."""

    at: TopicPartition
    begin: int
    end: int
    topic_id: str


class Log(NamedTuple):
    """The stamps of a source partition below an offset.

    `is_cut` returns whether the log may lack older records, or was compacted. Call it after the
    stamps were read, since retention may delete records meanwhile."""

    stamps: Callable[[], Iterator[Stamps]]
    is_cut: Callable[[], bool]


class Expects(Protocol):
    """The method of `verification.Progress` that this module calls."""

    def expects(self, offsets: int) -> None: ...


class SourceLogs:
    def __init__(
        self, reader: Reader, findings: Findings, progress: Expects, rules: StampRules | None
    ) -> None:
        self._reader, self._findings, self._progress = reader, findings, progress
        self._rules = rules
        self._topics: dict[str, TopicInfo] = {}

    def check(
        self, covered: Mapping[TopicPartition, tuple[int, int]], topic_ids: Mapping[str, str]
    ) -> list[SourcePartition]:
        """Count the records at the offsets that the transactions read. Report missing ones.

        `topic_ids` has the ids in the ledger's last record. A topic with another id is reported,
        and not read."""
        recreated = {
            topic
            for topic in sorted({tp.topic for tp in covered})
            if not self._is_same(topic, topic_ids.get(topic, ""))
        }
        for topic in sorted(recreated):
            self._report_recreated(topic, topic_ids.get(topic, ""))
        spans = {tp: span for tp, span in covered.items() if tp.topic not in recreated}
        bounds, found = self._reader.bounds(list(spans)), []
        for tp, (start, end) in sorted(spans.items()):
            retention = self._reader.retention(tp.topic)
            source = SourcePartition(tp, start, end, retention, self._findings)
            first, stable = bounds[tp].start, bounds[tp].stable
            self._progress.expects(max(0, min(end, stable) - max(start, first)))
            self._reader.source(source, bounds[tp])
            found.append(source)
        return found

    def stamps(self, wanted: SourceRange) -> Log:
        """Return the stamps (producer id, epoch, sequence) of a source partition below an offset.

        They begin at the log's start, even if the verification resumes later, because an old record
        may prove that a newer one is a duplicate.
        """
        rules, reader, at = self._rules, self._reader, wanted.at
        assert rules is not None, "only a pipeline with stamps needs them"
        if not self._is_same(at.topic, wanted.topic_id):
            return Log(lambda: iter(()), lambda: True)
        bounds = reader.bounds([at])[at]
        end = min(wanted.end, bounds.stable)
        self._progress.expects(max(0, end - bounds.start))

        def read() -> Iterator[Stamps]:
            return reader.stamps(at, end, rules)

        def is_cut() -> bool:
            begins_at = reader.bounds([at])[at].start
            return begins_at > wanted.begin or reader.retention(at.topic).is_compacted

        return Log(read, is_cut)

    def _is_same(self, topic: str, topic_id: str) -> bool:
        """Return whether the topic exists and has this id. An empty id is unknown."""
        now = self._current(topic)
        return not now.is_missing and (not topic_id or now.topic_id in {topic_id, ""})

    def _current(self, topic: str) -> TopicInfo:
        if topic not in self._topics:
            found = self._reader.client.topics([topic], short_deadline())
            require_seen(found)
            self._topics[topic] = found[topic]
        return self._topics[topic]

    def _report_recreated(self, topic: str, topic_id: str) -> None:
        now = self._current(topic)
        subject = "is gone" if now.is_missing else f"was recreated: its id is {now.topic_id}"
        message = f"the source topic {topic!r} {subject}, the ledger's offsets are of "
        message += topic_id or now.topic_id
        self._findings.add(Finding("source_recreated", message, TopicPartition(topic, 0)))
