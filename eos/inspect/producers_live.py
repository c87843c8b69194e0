"""Comparison of the table `producers` with the leaders, row by row. Changes nothing.

A leader may be newer than the table: an attempt is open, or was aborted after the last ledger
record. The coordinator's epoch shows that. Such a row is listed, but is no finding.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from eos.audit.producer_states import Entry, EntryKey, ProducerStates
from eos.finding import Finding
from eos.inspect.cluster_view import ClusterView, Producers
from eos.kafka.api import DescribedProducer, DescribedTransaction
from eos.kafka.transaction_states import TransactionPhase
from eos.producers.state import is_expired

_PAUSES_S = (0.2, 0.5, 1.0, 0.0)  # after differences, before the next comparison


class RowStatus(Enum):
    """How a row of the table `producers` relates to the leader's entry for its producer id."""

    SAME = "same"
    DIFFERS = "differs"
    NEWER = "newer"  # the leader has a transaction that the ledger does not list yet
    UNKNOWN = "unknown"  # an aborted attempt may have changed the leader's entry
    EXPIRED = "expired"  # the broker may have forgotten it


@dataclass(frozen=True, slots=True)
class ComparedEntry:
    """A row and the leader's entry. `entry` or `leader` is None if only the other one exists."""

    key: EntryKey
    status: RowStatus
    entry: Entry | None
    leader: DescribedProducer | None
    differences: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ProducersComparison:
    """All rows compared with the leaders, and the transactional id with its coordinator."""

    entries: Sequence[ComparedEntry]
    findings: Sequence[Finding]
    coordinator: DescribedTransaction | None


def compare_live(cluster: ClusterView, states: ProducerStates) -> ProducersComparison:
    """Ask the leaders of all partitions of the topics in the table, and compare each row.

    The coordinator is asked last, so its epoch covers what the leaders have. The marker of a
    partition may arrive after the one of the ledger, so differences are checked again.
    """
    partitions = cluster.partitions({key.partition.topic for key in states.entries})
    for pause_s in _PAUSES_S:
        producers = cluster.producers(partitions)
        found = compare(states, producers, cluster.transaction(), int(time.time() * 1000))
        if not found.findings:
            break
        time.sleep(pause_s)  # nothing signals that a marker has arrived
    return found


def compare(
    states: ProducerStates,
    producers: Producers,
    coordinator: DescribedTransaction | None,
    now_ms: int,
) -> ProducersComparison:
    found = list(_entries(states, producers, coordinator, now_ms))
    findings = [
        Finding(
            "differs",
            f"{each.key.partition}, producer id {each.key.producer_id}: {difference}",
            at=each.key.partition,
        )
        for each in found
        for difference in each.differences
    ]
    findings += _coordinator_findings(states, coordinator)
    return ProducersComparison(found, findings, coordinator)


def _entries(
    states: ProducerStates,
    producers: Producers,
    coordinator: DescribedTransaction | None,
    now_ms: int,
) -> Iterator[ComparedEntry]:
    leaders = {
        EntryKey(partition, each.identity.producer_id): each
        for partition, of_partition in producers.items()
        for each in of_partition
    }
    for key in sorted(states.entries):
        yield _compared(states, key, leaders.get(key), coordinator, now_ms)
    own = {key.producer_id for key in states.entries}
    for key in sorted(leaders.keys() - states.entries.keys()):
        if key.producer_id in own:
            yield _unlisted(states, key, leaders[key], coordinator)


def _compared(
    states: ProducerStates,
    key: EntryKey,
    leader: DescribedProducer | None,
    coordinator: DescribedTransaction | None,
    now_ms: int,
) -> ComparedEntry:
    entry = states.entries[key]
    if is_expired(entry.state, now_ms, states.producer_idle_ms):
        return ComparedEntry(key, RowStatus.EXPIRED, entry, leader)
    if leader is None:
        gone = "the table has it, and the leader does not know it"
        return ComparedEntry(key, RowStatus.DIFFERS, entry, None, [gone])
    differences = list(_differences(entry, leader))
    if not differences:
        return ComparedEntry(key, RowStatus.SAME, entry, leader)
    epoch = leader.identity.epoch
    is_later = epoch > entry.state.epoch or leader.transaction_start_offset >= 0
    if is_later and _is_newer(states, key.producer_id, epoch, coordinator):
        return ComparedEntry(key, RowStatus.NEWER, entry, leader)
    is_aborted = entry.state.epoch <= epoch <= states.aborted.get(key.producer_id, -1) + 1
    if is_aborted and not states.is_known(key):
        return ComparedEntry(key, RowStatus.UNKNOWN, entry, leader)
    return ComparedEntry(key, RowStatus.DIFFERS, entry, leader, differences)


def _unlisted(
    states: ProducerStates,
    key: EntryKey,
    leader: DescribedProducer,
    coordinator: DescribedTransaction | None,
) -> ComparedEntry:
    """Compare an entry of one of the pipeline's producer ids that the table lacks."""
    epoch = leader.identity.epoch
    if _is_newer(states, key.producer_id, epoch, coordinator):
        return ComparedEntry(key, RowStatus.NEWER, None, leader)
    if epoch <= states.aborted.get(key.producer_id, -1) + 1:
        return ComparedEntry(key, RowStatus.UNKNOWN, None, leader)
    lacks = f"the leader has epoch {epoch}, and the table has no row"
    return ComparedEntry(key, RowStatus.DIFFERS, None, leader, [lacks])


def _differences(entry: Entry, leader: DescribedProducer) -> Iterator[str]:
    values: Mapping[str, tuple[int, int]] = {
        "epoch": (entry.state.epoch, leader.identity.epoch),
        "last sequence": (entry.sequence_last, leader.sequence_last),
        "start offset of the open transaction": (-1, leader.transaction_start_offset),
    }
    for name, (table, broker) in values.items():
        if table != broker:
            yield f"{name} is {table} in the table, {broker} at the leader"
    if -1 < entry.coordinator_epoch != leader.coordinator_epoch:
        yield (
            f"coordinator epoch is {entry.coordinator_epoch} in the table, "
            f"{leader.coordinator_epoch} at the leader"
        )


def _is_newer(
    states: ProducerStates,
    producer_id: int,
    epoch: int,
    coordinator: DescribedTransaction | None,
) -> bool:
    """Return whether the coordinator has a later epoch than the table, up to this one."""
    known = states.coordinator
    if coordinator is None or known is None:
        return False
    is_same = coordinator.identity.producer_id == known.identity.producer_id == producer_id
    if not is_same:  # it has rotated, or expired, since the table's last record
        return coordinator.identity.producer_id != known.identity.producer_id
    is_over = TransactionPhase.of(coordinator.phase)
    is_open = is_over is None or not is_over.is_over
    is_later = coordinator.identity.epoch > known.identity.epoch or is_open
    return is_later and epoch <= coordinator.identity.epoch + 1


def _coordinator_findings(
    states: ProducerStates, coordinator: DescribedTransaction | None
) -> Iterator[Finding]:
    known = states.coordinator
    if known is None or coordinator is None:
        return
    if coordinator.identity.producer_id != known.identity.producer_id:
        return  # another producer id: the epochs have no order
    if coordinator.identity.epoch < known.identity.epoch:
        yield Finding(
            "differs",
            f"the coordinator has producer {coordinator.identity}, and the table the newer "
            f"{known.identity}",
        )
