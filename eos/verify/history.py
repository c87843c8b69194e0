"""In which form does `eos verify` see the transactions that the pipeline committed?

A transaction comes from its ledger record, or from the audit table's rows if the ledger record was
trimmed (deleted as old).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eos.audit.history import Transaction
from eos.finding import Witness
from eos.kafka.api import TopicPartition
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends, LedgerRecord, TableState, flat

_RECEIPT = ("topic", "partition", "records", "offset_first", "offset_last", "bytes", "digest")


@dataclass(frozen=True, slots=True)
class CommittedAttempt:
    """One committed transaction of the pipeline.

    `ranges` has the source offsets that the transaction read, as (start, end) by partition. A start
    or stop record read none, so its ranges are empty (start equals end). `ends` is the next offset
    of all source partitions after the transaction. It is None if the transaction comes from the
    audit table, which has only the ranges. `topic_ids` has the ids of the source topics, and
    `producers` the version of dedup's states after the transaction. Both are empty in transactions
    from the audit table. `is_copied` is true if it accepts the position of a copied ledger.
    """

    witness: Witness
    ranges: Mapping[TopicPartition, tuple[int, int]]
    ends: Ends | None
    receipts: Sequence[Receipt]
    dedup: Mapping[str, Any] = field(default_factory=dict)  # dedup's results
    # Delta tables before the transaction. None if it comes from the audit table, which lacks them.
    tables: Mapping[str, TableState] | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    producers: str = ""
    is_copied: bool = False

    @property
    def is_attempt(self) -> bool:
        return self.witness.kind == "attempt"

    def removed(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of the partitions whose topics an operator removed by this recovery.

        A topic that is left may lack partitions, or all of them: those that were added after the
        record to which the operator moved the position."""
        left = {tp.topic for tp in self.ranges} | self.topic_ids.keys()
        return sorted(tp for tp in partitions if tp.topic not in left)


def attempt_of(record: LedgerRecord) -> CommittedAttempt:
    attempt = record.attempt or {}
    ends = record.position.ends
    starts = flat(attempt["starts"]) if record.attempt else ends
    return CommittedAttempt(
        record.witness,
        {tp: (int(start), ends[tp]) for tp, start in starts.items()},
        ends,
        [Receipt(*(each[name] for name in _RECEIPT)) for each in attempt.get("receipts", ())],
        attempt.get("dedup", {}),
        record.position.tables,
        record.position.topic_ids,
        record.position.producers,
        (record.note or {}).get("verb") == "--accept-ledger",
    )


def attempt_of_rows(each: Transaction) -> CommittedAttempt:
    return CommittedAttempt(
        each.witness,
        each.sources,
        None,
        [
            Receipt(
                *tp,
                row["records"],
                row["offset_first"],
                row["offset_last"],
                row["bytes"],
                row["digest"],
            )
            for tp, row in each.targets.items()
        ],
        each.dedup,
    )
