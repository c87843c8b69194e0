"""Does the audit table agree with the cluster now, field by field? Changes nothing.

A running pipeline commits between two reads, so a difference may only mean that the cluster is
newer. Then the table lags for a moment: this is reported, but is no finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eos.audit.history import Transaction, ends
from eos.deadline import Deadline
from eos.errors import EosError
from eos.finding import Finding, FindingKind
from eos.inspect.cluster_view import (
    OpenTransaction,
    coordinated,
    open_among,
    producers_on,
    soon,
)
from eos.kafka.api import DescribedProducer, DescribedTransaction, TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.transaction_states import TransactionPhase

_LAST_EPOCH = 2**15 - 2
_OFFSETS_MS = 10_000  # an open transaction may hide offsets longer


@dataclass(frozen=True, slots=True)
class ComparedField:
    """A value that both the table and the cluster have. None: one of them lacks it."""

    name: str
    table: object
    broker: object

    @property
    def is_same(self) -> bool:
        return self.table is None or self.broker is None or self.table == self.broker


@dataclass(frozen=True, slots=True)
class LiveState:
    phase: str
    fields: Sequence[ComparedField] = ()
    open: Sequence[OpenTransaction] = ()
    findings: Sequence[Finding] = ()


def live(
    wire: KafkaClient, transactional_id: str, group: str, ledger: str, found: Sequence[Transaction]
) -> LiveState:
    """Compare the table's transactions with the cluster.

    `found` has the transactions in the table, oldest first, and at least the newest committed one.
    """
    committed = [each for each in found if each.is_committed]
    last = committed[-1] if committed else None
    state = coordinated(wire, transactional_id, soon())
    here = TopicPartition(ledger, 0)
    partitions = [here, *sorted({tp for each in committed for tp in each.targets})]
    producers = producers_on(wire, partitions)
    offset = _ledger_end(wire, here)
    fields = list(_fields(state, last, offset, producers))
    fields += _group(wire, group, ends(committed))
    is_moving = offset is not None and last is not None and offset > last.ledger_offset
    opened = open_among(wire, producers, transactional_id)
    findings = [] if is_moving else list(_differing(fields, last))
    findings += _strange(opened, transactional_id, last, here, producers, committed)
    return LiveState(state.phase if state else "", fields, opened, findings)


def _ledger_end(wire: KafkaClient, ledger: TopicPartition) -> int | None:
    """Return the offset of the last committed record."""
    deadline = soon()
    topic = wire.topics([ledger.topic], deadline)[ledger.topic]
    if topic.error:
        return None
    end = wire.list_offsets([ledger], "latest", committed=True, deadline=deadline)[ledger]
    first = wire.list_offsets([ledger], "earliest", committed=True, deadline=deadline)[ledger]
    for start in range(end - 1, first - 1, -64):
        low = max(first, start - 63)
        records = wire.read_records(ledger, low, end, committed=True, deadline=deadline)
        if records:
            return records[-1].offset
    return None


def _fields(
    state: DescribedTransaction | None,
    last: Transaction | None,
    offset: int | None,
    producers: Mapping[TopicPartition, Sequence[DescribedProducer]],
) -> Iterator[ComparedField]:
    yield ComparedField("last record of the ledger", last.ledger_offset if last else None, offset)
    if last is None:
        return
    if state is not None and last.identity.epoch < _LAST_EPOCH:  # the next epoch has another id
        yield ComparedField("producer id", last.identity.producer_id, state.identity.producer_id)
    if state and TransactionPhase.of(state.phase) is TransactionPhase.COMPLETE_COMMIT:
        yield ComparedField("outcome", last.outcome, state.phase)
    for tp, row in sorted(last.targets.items()):
        for producer in producers.get(tp, ()):
            if producer.identity == last.identity and producer.sequence_last >= 0:
                name = f"last sequence on {tp}"
                yield ComparedField(name, row["sequence_last"], producer.sequence_last)


def _group(
    wire: KafkaClient, group: str, position: Mapping[TopicPartition, int]
) -> list[ComparedField]:
    if not position:
        return []
    try:
        found = wire.committed_offsets(group, Deadline.after_ms(_OFFSETS_MS), list(position))
    except EosError:
        return []  # hidden by an open transaction, which is reported separately
    return [
        ComparedField(
            f"group offset of {tp}",
            end,
            found[tp].offset if tp in found else -1,
        )
        for tp, end in sorted(position.items())
    ]


def _differing(fields: Sequence[ComparedField], last: Transaction | None) -> Iterator[Finding]:
    for each in fields:
        if not each.is_same:
            yield Finding(
                "differs",
                f"{each.name}: {each.table} in the table, {each.broker} in the cluster",
                witness=last.witness if last else None,
            )


def _strange(
    opened: Sequence[OpenTransaction],
    transactional_id: str,
    last: Transaction | None,
    ledger: TopicPartition,
    producers: Mapping[TopicPartition, Sequence[DescribedProducer]],
    committed: Sequence[Transaction],
) -> Iterator[Finding]:
    witness = last.witness if last else None
    for each in opened:
        if each.owner == transactional_id:
            continue
        tp, producer = each.partition, each.producer
        where = (
            f"{tp} from offset {producer.transaction_start_offset} on: "
            f"producer id {producer.identity.producer_id}, epoch {producer.identity.epoch}"
        )
        if each.owner:
            message = f"a transaction of {each.owner!r} is open on {where}"
            yield Finding("foreign", message, witness=witness, kind=FindingKind.FOREIGN)
        else:
            message = f"a transaction that no coordinator will end hangs on {where}"
            message += " (`kafka-transactions.sh abort` ends it)"
            yield Finding("hanging", message, witness=witness)
    known = {each.identity.producer_id for each in committed}
    for producer in producers.get(ledger, ()):
        if known and producer.identity.producer_id not in known and producer.sequence_last >= 0:
            if any(each.owner == transactional_id for each in opened):
                continue  # an open transaction may have rotated the pipeline's producer id
            identity = producer.identity
            message = (
                f"{ledger.topic}: producer id {identity.producer_id}, epoch {identity.epoch}, "
                "writes to it, and is not ours"
            )
            yield Finding("foreign", message, witness=witness, kind=FindingKind.FOREIGN)
