"""Do the consumer group's offsets equal the ledger's ends? They are a copy that other clients may
change.

If the source is on the targets' cluster, every attempt commits the offsets of all partitions in its
transaction. (`transaction/group_mirror.py` has the other case.) So the offsets are equal unless:
- Another client sent a plain OffsetCommit (an operator's reset, a stray consumer) after the
  transaction's TxnOffsetCommit. It wins even if it arrives before the transaction ends.
- The offsets expired.
- The group was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from eos.deadline import Deadline
from eos.errors import EosError
from eos.kafka.api import TopicPartition
from eos.ledger.record import Ends
from eos.observe import events
from eos.observe.bus import Bus

_SHOWN_MAX = 3
_COMPARE_TIMEOUT_MS = 5_000  # a comparison only warns, so it must not delay the run

# By partition: the group's offset (None if it has none), and the ledger's end.
Differing = Mapping[TopicPartition, tuple[int | None, int]]


def differing(ends: Ends, found: Ends) -> Differing:
    return {tp: (found.get(tp), end) for tp, end in ends.items() if found.get(tp) != end}


def ahead(of: Differing) -> Differing:
    """Return the partitions in which the group is ahead of the ledger. Another client moved it
    there, or a newer owner of the pipeline committed."""
    return {tp: (offset, end) for tp, (offset, end) in of.items() if (offset or 0) > end}


def offset_note(of: Differing) -> str:
    """Return a sentence with the first three differences; "" if there are none."""
    if not of:
        return ""
    shown = [
        f"{topic}-{partition} is at {'nothing' if at is None else at}, the ledger at {end}"
        for (topic, partition), (at, end) in sorted(of.items())[:_SHOWN_MAX]
    ]
    more = f", and {len(of) - _SHOWN_MAX} more" if len(of) > _SHOWN_MAX else ""
    return f"the group's offsets differ from the ledger: {'; '.join(shown)}{more}"


class SourceView(Protocol):
    """Read-only lookups in the source's cluster that a micro-batch needs.
    `startup/source_state.py` implements them."""

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Return Kafka's topic id for each topic name. Raise PromiseBrokenError if a topic does not
        exist."""

    def earliest(self, partitions: Iterable[TopicPartition]) -> Ends: ...

    def group_offsets(
        self, partitions: Iterable[TopicPartition], deadline: Deadline | None = None
    ) -> Ends: ...


class GroupCheck:
    """Compares the group's offsets with the ledger, once after each commit, and warns if they
    differ.

    The ledger decides where the pipeline resumes, and the next commit corrects the group. Until
    then, tools that show the lag are wrong.
    """

    def __init__(self, source: SourceView, bus: Bus) -> None:
        self._source = source
        self._bus = bus
        self._is_due = False

    def in_transaction(self, ends: Ends) -> Ends:
        """Return the group offsets that the transaction commits: all of the ledger's ends."""
        return ends

    def committed(self, _ends: Ends) -> None:
        self._is_due = True

    def compare(self, ends: Ends) -> None:
        """Warn if another client moved the group's offsets since the last commit. `ends` are the
        ledger's."""
        if not self._is_due:
            return
        self._is_due = False
        try:
            found = self._source.group_offsets(ends, Deadline.after_ms(_COMPARE_TIMEOUT_MS))
        except EosError as error:
            self._bus.emit(events.Warned(f"the group's offsets can't be compared: {error.message}"))
            return
        text = offset_note(differing(ends, found))
        if text:
            self._bus.emit(events.Warned(f"{text}; the next commit corrects them"))

    def close(self) -> None:
        """Return at once: the transactions had all offsets."""
