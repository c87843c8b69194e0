"""Does the audit table agree with the cluster's current state, value by value (`eos audit`)?

The comparison changes nothing. A running pipeline may commit before the table has its record. Such
a difference is shown, but it is no finding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone

from eos.audit.history import Transaction, ends
from eos.errors import EosError
from eos.finding import Finding, FindingKind
from eos.inspect.cluster_view import ClusterView, OpenTransaction, PastEnds, Producers
from eos.kafka.api import DescribedTransaction, TopicPartition
from eos.kafka.transaction_states import TransactionPhase
from eos.ledger.record import Ends

_LAST_EPOCH = 2**15 - 2
_OFFSETS_MS = 10_000  # limit of the wait for offsets that an open transaction hides


@dataclass(frozen=True, slots=True)
class ComparedField:
    """A value in the audit table and in the cluster; None where there is none to compare."""

    name: str
    table: object
    broker: object

    @property
    def is_same(self) -> bool:
        return self.table is None or self.broker is None or self.table == self.broker


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A pipeline's state in the cluster, compared with the audit table.

    `ends` has the last stable offsets of source partitions, `past` earlier ones. If the cluster
    could not be read, `problem` has the reason and all other fields are empty: the HTML report then
    lacks only this part.
    """

    phase: str = ""
    fields: Sequence[ComparedField] = ()
    open: Sequence[OpenTransaction] = ()
    findings: Sequence[Finding] = ()
    ends: Ends = field(default_factory=dict)
    past: PastEnds = field(default_factory=PastEnds)
    problem: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


def live(
    cluster: ClusterView,
    found: Sequence[Transaction],
    sources: Collection[TopicPartition] = (),
    moments: Iterable[datetime] = (),
) -> ClusterState:
    """Compare the audit table's transactions with the cluster, and read the ends of `sources`, now
    and at earlier `moments`.

    `found` has transactions of the table, oldest first. It must include the newest committed one.
    """
    source_ends = cluster.committed_ends(sources)
    past = cluster.past_ends(sources, moments)
    committed = [each for each in found if each.is_committed]
    last = committed[-1] if committed else None
    state = cluster.transaction()
    targets = sorted({tp for each in committed for tp in each.targets})
    producers = cluster.producers([cluster.ledger_partition, *targets])
    fields = list(_newest_fields(state, last, cluster.ledger_last(), producers))
    fields += _group_fields(cluster, ends(committed))
    # Read after all that is compared: the group's offsets may be those of a newer record.
    offset = cluster.ledger_last()
    is_moving = offset is not None and last is not None and offset > last.ledger_offset
    opened = cluster.open_transactions(producers)
    findings = [] if is_moving else list(_differing(fields, last))
    findings += _foreign_and_hanging(cluster, opened, last, producers, committed)
    phase = state.phase if state else ""
    return ClusterState(phase, fields, opened, findings, source_ends, past)


def _newest_fields(
    state: DescribedTransaction | None,
    last: Transaction | None,
    offset: int | None,
    producers: Producers,
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


def _group_fields(cluster: ClusterView, position: Ends) -> list[ComparedField]:
    found = None
    if position and not cluster.is_group_mirrored:
        with suppress(EosError):  # an open transaction that hides them is reported separately
            found = cluster.group_offsets(position, _OFFSETS_MS)
    if found is None:
        return []
    return [
        ComparedField(f"group offset of {tp}", end, found.get(tp, -1))
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


def _foreign_and_hanging(
    cluster: ClusterView,
    opened: Sequence[OpenTransaction],
    last: Transaction | None,
    producers: Producers,
    committed: Sequence[Transaction],
) -> Iterator[Finding]:
    witness = last.witness if last else None
    for each in opened:
        if each.owner == cluster.transactional_id and not each.hangs:
            continue
        tp, producer = each.partition, each.producer
        place = (
            f"{tp} from offset {producer.transaction_start_offset} on: "
            f"producer id {producer.identity.producer_id}, epoch {producer.identity.epoch}"
        )
        if each.hangs:
            message = f"a transaction that no coordinator will end hangs on {place}"
            message += " (`kafka-transactions.sh abort` ends it)"
            yield Finding("hanging", message, witness=witness)
        else:
            message = f"a transaction of {each.owner_text} is open on {place}"
            yield Finding("foreign", message, witness=witness, kind=FindingKind.FOREIGN)
    known = {each.identity.producer_id for each in committed}
    known_ms = _first_ms(committed)
    for producer in producers.get(cluster.ledger_partition, ()):
        was_ours = producer.identity.epoch >= _LAST_EPOCH and 0 <= producer.last_ms < known_ms
        is_known = producer.identity.producer_id in known or was_ours
        if known and not is_known and producer.sequence_last >= 0:
            if any(each.owner == cluster.transactional_id for each in opened):
                continue  # an open transaction may have rotated the pipeline's producer id
            identity = producer.identity
            message = (
                f"{cluster.ledger}: producer id {identity.producer_id}, epoch {identity.epoch}, "
                "writes to this ledger, and is not the pipeline's"
            )
            yield Finding("foreign", message, witness=witness, kind=FindingKind.FOREIGN)


def _first_ms(committed: Sequence[Transaction]) -> float:
    """Return the time from which all of the pipeline's producer ids are known.

    The ledger's leader keeps earlier ones for a day, and the pipeline had another id until its
    epochs ran out.
    """
    first = next((each.begun_at or each.ended_at for each in committed), None)
    return first.timestamp() * 1000 if first else 0
