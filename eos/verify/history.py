"""Which transactions did the pipeline commit, in order?

They are read from the ledger, or from the audit table's rows where the ledger was trimmed.
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

    `ranges` has the offsets that were read; for a record without an attempt, its position as empty
    ranges. `ends` is the whole position after it, if known: a row of the audit table has only the
    ranges.
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


def of_record(record: LedgerRecord) -> CommittedAttempt:
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


def of_rows(each: Transaction) -> CommittedAttempt:
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
