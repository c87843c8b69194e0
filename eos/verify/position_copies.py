"""Values of cluster, checkpoint and Delta tables that `eos verify` compares.

They are copies of the ledger's position: group offsets, Spark's checkpoint, the coordinator's
state, open transactions and the last writes to Delta tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from eos.checkpoint.offset_log import CheckpointState
from eos.errors import PromiseBrokenError
from eos.finding import Finding
from eos.inspect.cluster_view import ClusterView, OpenTransaction
from eos.kafka.api import DescribedTransaction, TopicPartition
from eos.ledger.record import Ends, LedgerRecord
from eos.verify import cross_checks, delta_tables
from eos.verify.chain import Owners
from eos.verify.delta_tables import Sinks, TableWrite
from eos.verify.log_reader import TIMEOUT_MS
from eos.verify.verification import Subject


@dataclass(frozen=True, slots=True)
class PositionCopies:
    """The copies of the ledger's position, read between two reads of the ledger."""

    cluster: ClusterView
    group: Ends | None
    checkpoint: CheckpointState | str
    state: DescribedTransaction | None
    open: list[OpenTransaction]
    sinks: Sinks
    tables: Mapping[str, TableWrite | str]

    def compare(
        self, low: LedgerRecord, high: LedgerRecord, owners: Owners, owed: Mapping[str, int]
    ) -> Iterator[tuple[str, list[Finding]]]:
        """Compare each copy with the ledger. Yield the comparison's name and its findings.

        `owners` has the producer ids that wrote the ledger. `owed` is that of `check_tables`."""
        cluster, ledger = self.cluster, self.cluster.ledger_partition
        if not cluster.is_group_mirrored:  # else another client may move them
            found = list(cross_checks.check_group(self.group, cluster.group, low, high))
            yield "group offsets", found
        yield "checkpoint", list(cross_checks.check_checkpoint(self.checkpoint, low, high))
        found = list(
            cross_checks.check_coordinator(self.state, ledger, low.witness, high.witness, owners)
        )
        yield "transactional id", found
        yield (
            "no open transaction",
            list(cross_checks.check_open(self.open, cluster.transactional_id)),
        )
        if self.tables:
            found = list(delta_tables.check_tables(self.sinks, self.tables, owed, low, high))
            yield "Delta tables", found


def read_copies(
    cluster: ClusterView,
    subject: Subject,
    sources: Collection[TopicPartition],
    targets: Collection[TopicPartition],
) -> PositionCopies:
    return PositionCopies(
        cluster,
        _read_group(cluster, sources),
        _read_checkpoint(subject),
        cluster.transaction(TIMEOUT_MS),
        cluster.open_transactions(cluster.producers([cluster.ledger_partition, *sorted(targets)])),
        subject.tables,
        delta_tables.read_tables(subject.tables),
    )


def _read_group(cluster: ClusterView, sources: Collection[TopicPartition]) -> Ends | None:
    has_offsets = bool(sources) and not cluster.is_group_mirrored
    return cluster.group_offsets(sources, TIMEOUT_MS) if has_offsets else {}


def _read_checkpoint(subject: Subject) -> CheckpointState | str:
    files, root = subject.files, subject.names.checkpoints
    try:
        return cross_checks.newest_checkpoint(files, root, is_opaque=subject.is_opaque)
    except PromiseBrokenError as error:
        return error.message
