"""The claims of an attempt's ledger record about the records that dedup dropped.

The record has the number of dropped records, by reason. For the producers with the most dropped
records it also has the first and the last offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from eos.dedup.state_table import StateVersion
from eos.finding import Witness
from eos.kafka.api import TopicPartition
from eos.producers.sequences import Ints
from eos.verify.history import CommittedAttempt
from eos.verify.proofs import Proofs

REASONS = ("duplicate", "fenced")
_NO_OFFSETS: Ints = np.zeros(0, np.int64)


class ProducerSpan(NamedTuple):
    """The ledger's claim about one producer in one partition: records dropped for one reason."""

    producer: str
    reason: str
    records: int
    first: int
    last: int


@dataclass(slots=True)
class DropClaim:
    """The ledger's claim about the records that dedup dropped in one attempt.

    `topic_ids` has the ids of the source topics that it read, and `rules` the hash of the settings
    that define stamps. Both are empty if the claim comes from the audit table.
    `proven` counts the proven records by reason, and those with any reason as `all`, each once.
    `offsets` has the offsets of the latter, if the attempt dropped records for several reasons.
    `has_witness` is true if a producer's span was reported as unproven. Then no finding is added
    for the attempt's totals.
    """

    witness: Witness
    ranges: Mapping[TopicPartition, tuple[int, int]]
    dropped: Mapping[str, int]
    spans: Mapping[TopicPartition, Sequence[ProducerSpan]]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    rules: str = ""
    proven: Counter[str] = field(default_factory=Counter)
    offsets: dict[TopicPartition, Ints] = field(default_factory=dict)
    has_witness: bool = False

    def add(self, tp: TopicPartition, part: Proofs, reasons: Sequence[str]) -> None:
        """Count the proofs of records in one partition, for some of the reasons."""
        by_reason = {"duplicate": part.before >= 0, "fenced": part.newer >= 0}
        self.proven.update({name: int(by_reason[name].sum()) for name in reasons})
        proven = part.offset[np.logical_or.reduce([by_reason[name] for name in reasons])]
        if len(self.dropped) > 1:
            known = self.offsets.get(tp, _NO_OFFSETS)
            proven = np.setdiff1d(proven, known)
            self.offsets[tp] = np.concatenate((known, proven))
        self.proven["all"] += len(proven)


def claim_of(each: CommittedAttempt) -> DropClaim | None:
    """Return the claim of an attempt; None if dedup dropped no record."""
    verdicts = each.dedup.get("verdicts", {})
    dropped = {name: int(verdicts[name]) for name in REASONS if verdicts.get(name)}
    if not dropped:
        return None
    spans: dict[TopicPartition, list[ProducerSpan]] = {}
    for topic, partition, producer, reason, *numbers in each.dedup.get("producers", ()):
        if reason in REASONS:
            one = ProducerSpan(str(producer), reason, *map(int, numbers))
            spans.setdefault(TopicPartition(topic, partition), []).append(one)
    rules = StateVersion.of(each.producers).rules if each.producers else ""
    return DropClaim(each.witness, each.ranges, dropped, spans, each.topic_ids, rules)
