"""Conversion of producer states to rows of the table `producers`, and back.

One row for each target partition and producer id, and one for the transactional id, which has no
partition. The columns `epoch`, `first`, `last`, `run` and `at_ms` are those of dedup's states
(`eos.producers.table`), with the same meaning: the state of the partition's leader.

Columns are only ever added. A release keeps columns that it does not know, and leaves them null.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from eos.audit.producer_states import (
    FINDINGS_MAX,
    CoordinatorEntry,
    Entry,
    EntryKey,
    ProducerStates,
)
from eos.finding import Finding, Witness
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.transaction_states import TransactionPhase
from eos.ledger.receipt import AppendedBatch
from eos.producers import table as producer_table
from eos.producers.broker import BrokerVerdict
from eos.producers.state import ProducerState, Range

PRODUCERS_SCHEMA_VERSION = 1
KNOWN, UNKNOWN = "known", "unknown"
_STATE = ("epoch", "first", "last", "run", "at_ms")
_BATCH = pa.struct([(name, pa.int64()) for name in AppendedBatch._fields])
_FINDING = pa.struct(
    [
        ("ledger_offset", pa.int64()),
        ("kind", pa.string()),
        ("batch_id", pa.int64()),
        ("attempt", pa.int32()),
        ("producer_id", pa.int64()),
        ("epoch", pa.int32()),
        ("case", pa.string()),
        ("message", pa.string()),
    ]
)
PRODUCERS_SCHEMA = pa.schema(
    [
        ("pipeline", pa.string()),
        ("transactional_id", pa.string()),
        ("ledger", pa.string()),  # the topic
        ("ledger_id", pa.string()),
        ("ledger_from", pa.int64()),  # first ledger offset that the state was built from
        ("ledger_offset", pa.int64()),  # of the record that changed the row last
        ("topic", pa.string()),  # null: the row of the transactional id
        ("partition", pa.int32()),
        ("producer_id", pa.int64()),
        *[producer_table.SCHEMA.field(name) for name in _STATE],
        ("coordinator_epoch", pa.int32()),  # null if unknown
        ("batches_epoch", pa.int32()),  # of `batches`: the newest epoch that wrote
        ("batches", pa.list_(_BATCH)),
        ("transaction_start_offset", pa.int64()),  # null: none is open, as of the ledger
        ("state", pa.string()),  # known or unknown; of the transactional id, Kafka's word
        ("verdict", pa.string()),  # on the newest record batches
        ("aborted_epoch", pa.int64()),  # newest one of an aborted attempt of this producer id
        ("idle_ms", pa.int64()),  # the broker forgets the row after this time
        ("findings", pa.list_(_FINDING)),  # the newest ones; in the row of the transactional id
        ("findings_count", pa.int64()),
        ("schema_version", pa.int32()),
    ]
)
Row = dict[str, Any]


def table(pipeline: str, transactional_id: str, ledger_id: str, states: ProducerStates) -> pa.Table:
    """Return all rows of a pipeline."""
    shared: Row = {
        "pipeline": pipeline,
        "transactional_id": transactional_id or None,
        "ledger": states.ledger.topic,
        "ledger_id": ledger_id,
        "ledger_from": states.ledger_from,
        "schema_version": PRODUCERS_SCHEMA_VERSION,
    }
    rows = [{**shared, **_entry_row(states, key)} for key in sorted(states.entries)]
    if states.coordinator is not None:
        rows.append({**shared, **_coordinator_row(states, states.coordinator)})
    columns = [
        pa.array([row.get(field.name) for row in rows], field.type) for field in PRODUCERS_SCHEMA
    ]
    return pa.table(columns, schema=PRODUCERS_SCHEMA)


def states_of(
    rows: Sequence[Mapping[str, Any]], ledger: TopicPartition, ledger_id: str
) -> ProducerStates:
    """Return the state that these rows have. Rows of a former ledger topic are left out."""
    states = ProducerStates(ledger)
    for row in rows:
        if row["ledger_id"] != ledger_id:
            continue
        states.ledger_from = row["ledger_from"]
        if row["aborted_epoch"] is not None:
            states.aborted[row["producer_id"]] = row["aborted_epoch"]
        if row["topic"] is None:
            states.coordinator = _coordinator_of(row)
            states.findings = deque(map(_finding_of, row["findings"] or ()), FINDINGS_MAX)
            states.findings_count = row["findings_count"] or 0
            states.transactional_id_idle_ms = row["idle_ms"]
        else:
            at = TopicPartition(row["topic"], row["partition"])
            states.entries[EntryKey(at, row["producer_id"])] = _entry_of(row)
            states.producer_idle_ms = row["idle_ms"]
    return states


def _entry_row(states: ProducerStates, key: EntryKey) -> Row:
    entry = states.entries[key]
    epoch, ranges, run, at_ms = entry.state
    return {
        "ledger_offset": entry.ledger_offset,
        "topic": key.partition.topic,
        "partition": key.partition.partition,
        "producer_id": key.producer_id,
        "epoch": epoch,
        "first": [each.first for each in ranges],
        "last": [each.last for each in ranges],
        "run": run,
        "at_ms": at_ms,
        "coordinator_epoch": _or_none(entry.coordinator_epoch),
        "batches_epoch": entry.batches_epoch,
        "batches": entry.batches,  # Arrow takes tuples as structs, four times as fast as dicts
        "state": KNOWN if states.is_known(key) else UNKNOWN,
        "verdict": entry.verdict.value,
        "aborted_epoch": states.aborted.get(key.producer_id),
        "idle_ms": states.producer_idle_ms,
    }


def _entry_of(row: Mapping[str, Any]) -> Entry:
    ranges = tuple(Range(*each) for each in zip(row["first"], row["last"], strict=True))
    return Entry(
        ProducerState(row["epoch"], ranges, row["run"], row["at_ms"]),
        tuple(AppendedBatch(**each) for each in row["batches"]),
        row["batches_epoch"],
        -1 if row["coordinator_epoch"] is None else row["coordinator_epoch"],
        row["ledger_offset"],
        BrokerVerdict(row["verdict"]),
    )


def _coordinator_row(states: ProducerStates, found: CoordinatorEntry) -> Row:
    return {
        "ledger_offset": found.ledger_offset,
        "producer_id": found.identity.producer_id,
        "epoch": found.identity.epoch,
        "at_ms": found.at_ms,
        "coordinator_epoch": _or_none(found.coordinator_epoch),
        "state": found.phase.value,
        "aborted_epoch": states.aborted.get(found.identity.producer_id),
        "idle_ms": states.transactional_id_idle_ms,
        "findings": list(map(_finding_row, states.findings)),
        "findings_count": states.findings_count,
    }


def _coordinator_of(row: Mapping[str, Any]) -> CoordinatorEntry:
    return CoordinatorEntry(
        Identity(row["producer_id"], row["epoch"]),
        TransactionPhase(row["state"]),
        row["at_ms"],
        -1 if row["coordinator_epoch"] is None else row["coordinator_epoch"],
        row["ledger_offset"],
    )


def _finding_row(found: Finding) -> Row:
    assert found.witness is not None
    witness = found.witness
    return {
        "ledger_offset": witness.ledger_offset,
        "kind": witness.kind,
        "batch_id": witness.batch_id,
        "attempt": witness.number,
        "producer_id": witness.identity.producer_id,
        "epoch": witness.identity.epoch,
        "case": found.case,
        "message": found.message,
    }


def _finding_of(row: Mapping[str, Any]) -> Finding:
    identity = Identity(row["producer_id"], row["epoch"])
    place = row["ledger_offset"], row["kind"], row["batch_id"], row["attempt"]
    return Finding(row["case"], row["message"], witness=Witness(*place, identity))


def _or_none(number: int) -> int | None:
    return None if number < 0 else number
