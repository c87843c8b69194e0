"""Resolve `start:` of the pipeline file to an offset for every partition, for a pipeline without
history.

This happens once, for the first record of the pipeline's ledger. Later runs resume from the ledger.
If the start offset of a partition is missing in the group, or its record was deleted, the run
stops. It never falls back to the earliest or latest offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from eos.config.source import StartAt, StartWord
from eos.deadline import Deadline
from eos.errors import EosError, PromiseBrokenError, UnavailableError, UsageError
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.ledger.record import Ends

_NAMED_MAX = 5
# States of a group without members. The empty string means that the group does not exist.
AT_REST = {"Empty", "Dead", ""}
_WAY_OUT = (
    "Set another start in the pipeline file: `start: {timestamp: ...}`, `start: {offsets: ...}` "
    "or `start: earliest`"
)


def resolve(
    start: StartWord | StartAt,
    partitions: Iterable[TopicPartition],
    *,
    pipeline: str,
    group: str,
    client: KafkaClient,
    deadline: Deadline,
) -> Ends:
    """Return the offset at which to start reading each of these partitions.

    Raise for an offset outside of a partition's first record and its end. `group` is the pipeline's
    own group, which `start: group` refers to.
    """
    questions = _Questions(pipeline, frozenset(partitions), client, deadline)
    if not isinstance(start, StartAt):
        return questions.of_group(group, is_own=True) if start == "group" else questions.ends(start)
    if start.group is not None:
        return questions.of_group(start.group, is_own=is_at_own_group(start, group))
    if start.offsets is not None:
        return questions.as_named(start.offsets)
    assert start.timestamp_ms is not None, "one of three, says the model"
    return offsets_at(start.timestamp_ms, questions.partitions, client, deadline)


def offsets_at(
    timestamp_ms: int,
    partitions: Iterable[TopicPartition],
    client: KafkaClient,
    deadline: Deadline,
) -> Ends:
    """Return, per partition, the first offset with this timestamp or a later one; the end if there
    is none.

    The ends are requested first. Otherwise a record could be lost:
    1. The request by timestamp finds no record.
    2. A record with a later timestamp arrives.
    3. The end, requested now, is after that record, so it would never be read.
    """
    every = list(partitions)
    latest = client.list_offsets(every, "latest", committed=True, deadline=deadline)
    found = client.list_offsets(every, timestamp_ms, committed=True, deadline=deadline)
    return {tp: offset if offset >= 0 else latest[tp] for tp, offset in found.items()}


def is_at_own_group(start: StartWord | StartAt, group: str) -> bool:
    """Return whether `start` uses the offsets of the pipeline's own group. Then an operator may
    have set these offsets, so they don't prove an earlier run."""
    return start.group == group if isinstance(start, StartAt) else start == "group"


class OffsetBounds(NamedTuple):
    """The readable range of one partition: first offset, last stable offset (end for
    read_committed), and end."""

    earliest: int
    stable: int
    latest: int


@dataclass(frozen=True, slots=True)
class _Questions:
    pipeline: str
    partitions: frozenset[TopicPartition]
    client: KafkaClient
    deadline: Deadline

    def ends(self, at: Literal["earliest", "latest"] | int, *, committed: bool = True) -> Ends:
        return self.client.list_offsets(
            self.partitions, at, committed=committed, deadline=self.deadline
        )

    def of_group(self, group: str, *, is_own: bool) -> Ends:
        self._require_at_rest(group)
        committed = self.client.committed_offsets(group, self.deadline, self.partitions)
        missing = self.partitions - committed.keys()
        if missing:
            reason = "are the group's name and the cluster right? Offsets expire a week after the "
            reason += "group's last member left (offsets.retention.minutes)"
            if is_own and not committed:
                reason = (
                    "this is the pipeline's own group: `start: {group: NAME}` names another one"
                )
            raise UsageError(
                "start_group_without_offsets",
                f"{self.pipeline}: `start` is at the offsets of group {group!r}, which has none "
                f"for {_text(missing)}",
                hint=f"{reason}. {_WAY_OUT}; or set the group's offsets with "
                "`kafka-consumer-groups.sh --reset-offsets`",
                group=group,
                missing=_text(missing),
            )
        offsets = {tp: committed[tp].offset for tp in self.partitions}
        require_there(self.pipeline, offsets, self._bounds(), group=group)
        return offsets

    def as_named(self, names: Mapping[str, Mapping[int, int]]) -> Ends:
        offsets = {
            TopicPartition(topic, partition): offset
            for topic, of_topic in names.items()
            for partition, offset in of_topic.items()
        }
        unknown, missing = offsets.keys() - self.partitions, self.partitions - offsets.keys()
        if unknown:
            counts = Counter(tp.topic for tp in self.partitions)
            has = [f"{topic} has {counts[topic]}" for topic in sorted({tp.topic for tp in unknown})]
            raise UsageError(
                "start_partition_unknown",
                f"{self.pipeline}: `start` names {_text(unknown)}, which the source does not have",
                hint=f"partitions are numbered from 0; {', '.join(has[:_NAMED_MAX])}",
                unknown=_text(unknown),
            )
        bounds = self._bounds()
        if missing:
            shown = [
                f"{tp} has {bounds[tp].earliest} to {bounds[tp].stable}"
                for tp in sorted(missing)[:_NAMED_MAX]
            ]
            raise UsageError(
                "start_partition_missing",
                f"{self.pipeline}: `start` has no offset for {_text(missing)}",
                hint=f"list every partition of the source: {', '.join(shown)}",
                missing=_text(missing),
            )
        require_there(self.pipeline, offsets, bounds)
        return offsets

    def _require_at_rest(self, group: str) -> None:
        """Raise if the group has members, because they and the pipeline would both process the next
        records.

        A consumer that assigns partitions itself, as Spark and Flink do, is no member and can't be
        detected.
        """
        state = self.client.group_state(group, self.deadline)
        if state not in AT_REST:
            raise PromiseBrokenError(
                "group_in_use",
                f"{self.pipeline}: `start` is at the offsets of group {group!r}, whose members "
                f"still consume (it is {state}): records that they read from now on would be "
                "processed twice",
                hint="end them, then start again; `kafka-consumer-groups.sh --describe --members "
                f"--group {group}` lists them",
                pipeline=self.pipeline,
                group=group,
                state=state,
            )

    def _bounds(self) -> Mapping[TopicPartition, OffsetBounds]:
        """Return the bounds of each partition. Call this after reading a group's offsets: a
        partition's end only grows, so a group offset above the end was never written."""
        earliest, stable = self.ends("earliest"), self.ends("latest")
        latest = self.ends("latest", committed=False)
        return {tp: OffsetBounds(earliest[tp], stable[tp], latest[tp]) for tp in self.partitions}


def require_there(
    pipeline: str,
    offsets: Ends,
    bounds: Mapping[TopicPartition, OffsetBounds],
    *,
    group: str | None = None,
) -> None:
    """Raise for the first offset that is outside its partition's bounds.

    The offsets come from the consumer group `group`; if it is None, from `start:` in the pipeline
    file.
    """
    for tp, offset in sorted(offsets.items()):
        of_tp = bounds[tp]
        if of_tp.earliest <= offset <= of_tp.stable:
            continue
        owner = f"group {group!r}" if group else "`start`"
        subject = f"{pipeline}: {owner} is at offset {offset} of {tp}"
        values: dict[str, str | int] = {
            "pipeline": pipeline,
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": offset,
            "earliest": of_tp.earliest,
            "latest": of_tp.latest,
        }
        raise _outside(subject, offset, of_tp, values, is_of_group=group is not None)


def _outside(
    subject: str,
    offset: int,
    bounds: OffsetBounds,
    values: Mapping[str, str | int],
    *,
    is_of_group: bool,
) -> EosError:
    if offset < bounds.earliest:
        n_lost = bounds.earliest - offset
        return PromiseBrokenError(
            "start_gone",
            f"{subject}, which begins at {bounds.earliest}: {n_lost} offsets were deleted before "
            "they were read",
            hint=f"retention or a client deleted them; they can't be restored. {_WAY_OUT}",
            **values,
        )
    if offset <= bounds.latest:
        return UnavailableError(
            "start_transaction_open",
            f"{subject}, which can be read up to {bounds.stable}: a transaction is open from there "
            "on",
            hint="start again once it has ended; its timeout ends it at the latest",
            **values,
        )
    if is_of_group:
        n_missing = offset - bounds.latest
        return PromiseBrokenError(
            "start_beyond",
            f"{subject}, which ends at {bounds.latest}: {n_missing} offsets that the group has "
            "read do not exist",
            hint=f"was the topic recreated, or is this another cluster? {_WAY_OUT}",
            **values,
        )
    return UsageError(
        "start_offset_out_of_range",
        f"{subject}, which ends at {bounds.latest}",
        hint=f"set an offset from {bounds.earliest} to {bounds.stable}; are the topic and the "
        "cluster right?",
        **values,
    )


def _text(partitions: Iterable[TopicPartition]) -> str:
    names = [str(tp) for tp in sorted(partitions)]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
