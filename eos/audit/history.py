"""The audit table's rows as transactions, and contradictions between them.

The audit table has a row for each transaction of a pipeline and each target partition.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from eos.audit.dedup_summary import Producers
from eos.errors import FencedError
from eos.finding import Finding, Witness
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.transaction_states import TransactionPhase

COMMITTED = TransactionPhase.COMPLETE_COMMIT.value
_KEY = ("ledger_id", "ledger_offset", "producer_id", "epoch", "outcome")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction of the pipeline, as the audit table's rows describe it."""

    ledger_id: str
    ledger_offset: int
    kind: str
    outcome: str
    query_id: str
    batch_id: int | None
    attempt: int | None
    identity: Identity
    error: str  # code of the error that aborted it
    reason: str
    begun_at: datetime | None
    ended_at: datetime | None
    writer: tuple[str, str, int | None]  # deployment, host, process
    is_reset: bool
    sources: Mapping[TopicPartition, tuple[int, int]]
    offsets_in: int
    records_read: int | None  # visible records; None if unknown
    refused: dict[str, Any] = field(default_factory=dict)  # records by rule and reaction
    dedup: dict[str, Any] = field(default_factory=dict)  # results of dedup by producer
    # Durations of the micro-batch before it, of the same run, by step. Empty if unknown.
    previous_ms: dict[str, int] = field(default_factory=dict)
    lag_ms: int | None = None  # how long the oldest remaining records had waited; None if unknown
    targets: dict[TopicPartition, Row] = field(default_factory=dict)

    @property
    def is_committed(self) -> bool:
        return self.outcome == COMMITTED

    @property
    def is_attempt(self) -> bool:
        return self.kind == "attempt"

    @property
    def is_fenced(self) -> bool:
        return self.error == FencedError.kind

    @property
    def witness(self) -> Witness:
        batch_id = -1 if self.batch_id is None else self.batch_id
        return Witness(self.ledger_offset, self.kind, batch_id, self.attempt, self.identity)

    @property
    def records_out(self) -> int:
        return sum(row["records"] for row in self.targets.values())


def transactions(rows: Iterable[Row]) -> list[Transaction]:
    return list(each_of(rows))


def each_of(rows: Iterable[Row]) -> Iterator[Transaction]:
    """Group rows of the audit table, and yield their transactions.

    The rows must be in the order of ledger offsets. At one offset, aborted attempts come before the
    committed one.
    """
    found: list[Transaction] = []  # transactions of the current ledger offset
    known: dict[tuple[Any, ...], Transaction] = {}
    for row in rows:
        if found and (row["ledger_id"], row["ledger_offset"]) != _record(found[0]):
            yield from found
            found.clear()
            known.clear()
        key = tuple(row[name] for name in _KEY)
        topic = row["target_topic"]
        target = None if topic is None else TopicPartition(topic, row["target_partition"])
        of_row = known.get(key)
        if of_row is None or target is None or target in of_row.targets:
            # If a row exists twice, yield a second transaction, which `findings` then reports.
            of_row = known[key] = _transaction(row)
            found.append(of_row)
        if target is not None:
            of_row.targets[target] = row
        for name in ("refused", "dedup", "previous_ms"):
            known_of = getattr(of_row, name)
            if row.get(name) and not known_of:  # only one row of a transaction has them
                known_of.update(json.loads(row[name]))
    yield from found


def _record(each: Transaction) -> tuple[str, int]:
    return each.ledger_id, each.ledger_offset


def _transaction(row: Row) -> Transaction:
    return Transaction(
        ledger_id=row["ledger_id"],
        ledger_offset=row["ledger_offset"],
        kind=row["kind"],
        outcome=row["outcome"],
        query_id=row["query_id"] or "",
        batch_id=row["batch_id"],
        attempt=row["attempt"],
        identity=Identity(row["producer_id"], row["epoch"]),
        error=row["error"] or "",
        reason=row["reason"] or "",
        begun_at=row["begun_at"],
        ended_at=row["ended_at"],
        writer=(row["deployment"] or "", row["host"] or "", row["process"]),
        is_reset=bool(row["is_reset"]),
        sources={
            TopicPartition(each["topic"], each["partition"]): (each["start"], each["end"])
            for each in row["sources"] or ()
        },
        # Tables of older releases lack both columns.
        offsets_in=row.get("offsets_in") or row["records_in"] or 0,
        records_read=row.get("records_read"),
        lag_ms=row.get("lag_ms"),
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """Totals of a pipeline's transactions."""

    committed: int
    aborted: int
    offsets_in: int
    records_in: int | None  # visible records; None if unknown for some
    records_out: int
    refused: Mapping[str, Mapping[str, int]]  # records by rule and reaction
    restarts: Sequence[Transaction]  # first commit of each new process, same deployment
    takeovers: Sequence[Transaction]  # first commit of each other deployment or host
    fenced: Sequence[Transaction]
    producers: Producers

    @property
    def redo_ratio(self) -> float:
        """Return aborted attempts divided by committed ones; 1 if all were aborted."""
        return self.aborted / self.committed if self.committed else float(self.aborted > 0)


class Sums:
    """Builder of a `Summary`. Add transactions one at a time, oldest first."""

    def __init__(self) -> None:
        self._committed = self._aborted = self._offsets_in = self._records_out = 0
        self._records_in: int | None = 0
        self._refused: dict[str, Counter[str]] = {}
        self._restarts: list[Transaction] = []
        self._takeovers: list[Transaction] = []
        self._fenced: list[Transaction] = []
        self._last: Transaction | None = None
        self._producers = Producers()

    def add(self, each: Transaction) -> None:
        if each.is_attempt and each.is_committed:
            self._committed += 1
            self._offsets_in += each.offsets_in
            if self._records_in is not None:
                known = each.records_read
                self._records_in = None if known is None else self._records_in + known
            for rule, answers in each.refused.items():
                self._refused.setdefault(rule, Counter()).update(answers)
            self._records_out += each.records_out
            self._producers.add(each.dedup)
        elif each.is_attempt:
            self._aborted += 1
        if each.is_fenced:
            self._fenced.append(each)
        if each.is_committed:
            if self._last is not None and is_other(self._last, each):
                self._takeovers.append(each)
            elif self._last is not None and self._last.writer != each.writer:
                self._restarts.append(each)
            self._last = each

    @property
    def so_far(self) -> Summary:
        return Summary(
            committed=self._committed,
            aborted=self._aborted,
            offsets_in=self._offsets_in,
            records_in=self._records_in,
            records_out=self._records_out,
            refused=self._refused,
            restarts=tuple(self._restarts),
            takeovers=tuple(self._takeovers),
            fenced=tuple(self._fenced),
            producers=self._producers,
        )


def is_other(before: Transaction, after: Transaction) -> bool:
    """Return whether deployment or host differ: a takeover. A new process alone is a restart."""
    return before.writer[:2] != after.writer[:2]


def summary(found: Iterable[Transaction]) -> Summary:
    sums = Sums()
    for each in found:
        sums.add(each)
    return sums.so_far


def ends(found: Iterable[Transaction]) -> dict[TopicPartition, int]:
    """Return the next offset to read of each source partition, after these transactions."""
    position: dict[TopicPartition, int] = {}
    for each in found:
        if each.is_committed:
            advance(position, each)
    return position


def advance(position: dict[TopicPartition, int], each: Transaction) -> None:
    """Change the next offsets to read to those after this committed transaction.

    A ledger record without a micro-batch has all of them. `eos recover --forget-topic` removes
    partitions, for example.
    """
    if not each.is_attempt:
        position.clear()
    position.update({tp: end for tp, (_, end) in each.sources.items()})


def findings(found: Iterable[Transaction]) -> Iterator[Finding]:
    """Yield a finding for each contradiction to exactly-once in these transactions.

    Such are gaps and overlaps of source offsets, repeated micro-batches or producer epochs, and
    target offsets or counts that don't fit. The transactions must be in order, oldest first."""
    position: dict[TopicPartition, int] = {}
    written: dict[TopicPartition, int] = {}
    epochs: dict[tuple[str, int], int] = {}  # the newest one of each producer id
    batches: dict[tuple[str, str], int] = {}  # the last micro-batch of each query
    ledger_id = ""
    for each in found:
        if not each.is_committed:
            continue
        if each.ledger_id != ledger_id:  # the ledger was recreated, so offsets restart
            ledger_id = each.ledger_id
            position.clear()
        yield from _epochs(each, epochs)
        if each.is_attempt:
            yield from _batches(each, batches)
            yield from _gaps(each, position)
            yield from _receipts(each, written)
        elif each.is_reset:
            batches.clear()  # old micro-batch numbers may repeat from here on
            position.clear()
        position.update({tp: end for tp, (_, end) in each.sources.items()})


def _epochs(each: Transaction, newest: dict[tuple[str, int], int]) -> Iterator[Finding]:
    """Yield a finding unless the epoch is above all earlier ones of its producer id."""
    of, epoch = (each.ledger_id, each.identity.producer_id), each.identity.epoch
    last = newest.get(of, -1)
    if epoch == last:
        yield _finding(each, "twice", f"the identity {tuple(each.identity)} committed twice")
    elif epoch < last:
        problem = f"epoch {epoch} committed after epoch {last}"
        yield _finding(each, "older_epoch", f"{problem} of producer id {each.identity.producer_id}")
    newest[of] = max(epoch, last)


def _batches(each: Transaction, last: dict[tuple[str, str], int]) -> Iterator[Finding]:
    """Yield a finding unless the micro-batch's number is above all earlier ones of its query."""
    of = each.ledger_id, each.query_id
    if each.batch_id is None:
        return
    if each.batch_id <= last.get(of, -1):
        yield _finding(each, "twice", f"micro-batch {each.batch_id} committed twice")
    elif not each.is_reset:  # otherwise only a part of what Spark planned
        last[of] = each.batch_id


def _gaps(each: Transaction, position: Mapping[TopicPartition, int]) -> Iterator[Finding]:
    for tp, (start, _) in each.sources.items():
        before = position.get(tp, start)
        if start != before:
            change = "skipped" if start > before else "read again"
            low, high = sorted((start, before))
            yield _finding(
                each,
                "gap" if start > before else "overlap",
                f"micro-batch {each.batch_id}: {tp} offsets {low} to {high - 1} were {change}",
            )


def _receipts(each: Transaction, written: dict[TopicPartition, int]) -> Iterator[Finding]:
    for tp, row in each.targets.items():
        place = f"micro-batch {each.batch_id}: {tp}"
        count = row["sequence_last"] - row["sequence_first"] + 1
        room = row["offset_last"] - row["offset_first"] + 1
        if row["records"] != count or row["records"] > room:
            yield _finding(
                each,
                "receipt",
                f"{place} has {row['records']} records, {count} sequences and {room} offsets",
            )
        if row["offset_first"] <= written.get(tp, -1):
            yield _finding(
                each,
                "offsets_back",
                f"{place} was written at offset {row['offset_first']}, but {written[tp]} was "
                "written before: was the topic recreated?",
            )
        written[tp] = row["offset_last"]


def _finding(each: Transaction, case: str, message: str) -> Finding:
    return Finding(case, message, witness=each.witness)
