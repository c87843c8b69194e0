"""Which transactions did the pipeline commit, in order?

The transactions are read from the ledger. If its records were trimmed, they are read from the audit
table's rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eos.audit.history import Transaction
from eos.finding import Witness
from eos.kafka.api import TopicPartition
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends, LedgerRecord, flat

_RECEIPT = ("topic", "partition", "records", "offset_first", "offset_last", "bytes", "digest")


@dataclass(frozen=True, slots=True)
class CommittedAttempt:
    """One committed transaction.

    `ranges` has the offsets that the transaction read, as (start, end) of each source partition. If
    the ledger record has no attempt, the ranges are empty and at its position. `ends` is the
    position after the transaction, of all source partitions. It is None if the transaction comes
    from the audit table, which has only the ranges.
    """

    witness: Witness
    query_id: str
    ranges: Mapping[TopicPartition, tuple[int, int]]
    ends: Ends | None
    receipts: Sequence[Receipt]
    dedup: Mapping[str, Any] = field(default_factory=dict)  # dedup's results

    @property
    def is_attempt(self) -> bool:
        return self.witness.kind == "attempt"


def attempt_of(record: LedgerRecord) -> CommittedAttempt:
    attempt = record.attempt or {}
    ends = record.position.ends
    starts = flat(attempt["starts"]) if record.attempt else ends
    return CommittedAttempt(
        Witness(
            record.offset,
            record.kind,
            record.position.batch_id,
            attempt.get("number"),
            record.identity,
        ),
        record.position.query_id,
        {tp: (int(start), ends[tp]) for tp, start in starts.items()},
        ends,
        [Receipt(*(each[name] for name in _RECEIPT)) for each in attempt.get("receipts", ())],
        attempt.get("dedup", {}),
    )


def attempt_of_rows(each: Transaction) -> CommittedAttempt:
    return CommittedAttempt(
        each.witness,
        each.query_id,
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
