"""What do group, checkpoint, coordinator and target leaders know of the position now?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from eos.checkpoint.files import Files
from eos.deadline import Backoff, Deadline
from eos.errors import PromiseBrokenError
from eos.finding import Finding
from eos.inspect.cluster_view import OpenTransaction, coordinated, group_offsets, opened
from eos.kafka.api import CommittedOffset, DescribedTransaction, TopicPartition
from eos.kafka.client import KafkaClient
from eos.plan.names import Names
from eos.verify import cross_checks, delta_tables
from eos.verify.cross_checks import CheckpointNote, LedgerLevel
from eos.verify.delta_tables import LedgerMoment, Sinks, TableWrite
from eos.verify.log_reader import soon
from eos.verify.verification import Subject

_MARKER_MS = 10_000


@dataclass(frozen=True, slots=True)
class Around:
    """These values at one moment."""

    names: Names
    group: Mapping[TopicPartition, CommittedOffset] | None
    checkpoint: CheckpointNote | str
    state: DescribedTransaction | None
    open: list[OpenTransaction]
    sinks: Sinks
    tables: Mapping[str, TableWrite | str]

    def compare(self, low: LedgerLevel, high: LedgerLevel) -> Iterator[tuple[str, list[Finding]]]:
        """Yield each comparison's name and its findings."""
        names = self.names
        ledger = TopicPartition(names.ledger, 0)
        yield "group offsets", list(cross_checks.of_group(self.group, names.group, low, high))
        yield "checkpoint", list(cross_checks.of_checkpoint(self.checkpoint, low, high))
        last = list(cross_checks.of_coordinator(self.state, ledger, low.witness, high.witness))
        yield "transactional id", last
        yield "no open transaction", list(cross_checks.of_open(self.open, names.transactional_id))
        if self.tables:
            known = LedgerMoment(low.witness, low.tables), LedgerMoment(high.witness, high.tables)
            yield "Delta tables", list(delta_tables.of_tables(self.sinks, self.tables, *known))


def look(
    wire: KafkaClient,
    subject: Subject,
    sources: Collection[TopicPartition],
    targets: Collection[TopicPartition],
) -> Around:
    names = subject.names
    ledger = TopicPartition(names.ledger, 0)
    return Around(
        names,
        group_offsets(wire, names.group, sources, soon()) if sources else {},
        _checkpoint(subject.files, names.checkpoints),
        coordinated(wire, names.transactional_id, soon()),
        _open(wire, [ledger, *sorted(targets)], names.transactional_id),
        subject.lake,
        delta_tables.look(subject.lake),
    )


def _open(
    wire: KafkaClient, partitions: list[TopicPartition], transactional_id: str
) -> list[OpenTransaction]:
    """Return open transactions.

    A transaction of the pipeline that its coordinator has ended may be open for a moment, until the
    marker arrives. It counts only if it stays open.
    """
    deadline, backoff = Deadline.after_ms(_MARKER_MS), Backoff()
    found = opened(wire, partitions, transactional_id)
    late = {_place(each): each for each in found if cross_checks.is_late(each, transactional_id)}
    while late and not deadline.has_passed:
        backoff.sleep(deadline)
        now = {_place(each) for each in opened(wire, list({p for p, _ in late}), transactional_id)}
        late = {place: each for place, each in late.items() if place in now}
    mine = [each for each in found if not cross_checks.is_late(each, transactional_id)]
    return [*mine, *late.values()]


def _place(each: OpenTransaction) -> tuple[TopicPartition, int]:
    return each.partition, each.producer.transaction_start_offset


def _checkpoint(files: Files | None, root: str) -> CheckpointNote | str:
    try:
        return cross_checks.noted(files, root)
    except PromiseBrokenError as error:
        return error.message
