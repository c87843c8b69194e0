"""A pipeline's ledger records and its Delta table, written by delta-rs, and the proof of both.

Only the names of delta-rs's metrics are replaced by those of Spark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from eos.finding import FindingKind, Witness
from eos.kafka.api import Identity
from eos.ledger.record import RowCounts, TableState
from eos.plan.delta_sink import Table
from eos.verify.delta_tables import Sinks
from eos.verify.findings import Findings
from eos.verify.history import CommittedAttempt
from eos.verify.progress import Point, TablePoint
from eos.verify.table_proof import TableProof
from eos.verify.table_proofs import TableProofs
from eos.verify.table_store import TableStore

ROWS = 10


@dataclass
class Lake:
    """A pipeline with one Delta table, its ledger records, and its writes to the table."""

    table: Table
    records: list[CommittedAttempt] = field(default_factory=list)
    state: TableState | None = None
    offset: int = 0  # of the next ledger record
    has_digests: bool = True  # older releases had none

    @property
    def place(self) -> Path:
        return Path(self.table.path) / "_delta_log"

    def note(self, kind: str = "start") -> int:
        """Add a ledger record, and return its offset."""
        offset, self.offset = self.offset, self.offset + 2
        batch_id = sum(each.is_attempt for each in self.records) if kind == "attempt" else -1
        told = Witness(offset, kind, batch_id, 1, Identity(5, offset))
        tables = {self.table.name: self.state} if self.state else {}
        self.records.append(CommittedAttempt(told, {}, None, [], {}, tables))
        return offset

    def adopt(self) -> None:
        """As the first run with the table: an empty commit, and then the start record."""
        version = self.write(max(0, self.offset - 2), 0)
        identity = str(DeltaTable(self.table.path).metadata().id)
        self.state = TableState(identity, max(0, self.offset - 2), version)
        self.note()

    def run(self, count: int = 1) -> None:
        """Commit micro-batches, each followed by its rows."""
        assert self.state is not None
        for _ in range(count):
            offset = self.note("attempt")
            version = self.write(offset)
            self.state = self.state._replace(at=offset, version=version, rows=RowCounts(ROWS))
            self.note_digest()

    def note_digest(self) -> None:
        """Put the digest of the table's last write into the next ledger record."""
        assert self.state is not None
        assert self.state.version is not None
        if self.has_digests:
            raw = self.file(self.state.version).read_bytes()
            self.state = self.state._replace(sha256=hashlib.sha256(raw).hexdigest())

    def write(self, offset: int, rows: int = ROWS) -> int:
        """Append rows as the ledger record `offset`, and return the table's new version."""
        done = CommitProperties(app_transactions=[Transaction("app", offset)])
        made = pa.table({"n": pa.array(range(rows), pa.int64())})
        write_deltalake(self.table.path, made, mode="append", commit_properties=done)
        version = DeltaTable(self.table.path).version()
        self.edit(version, commitInfo=lambda it: as_spark(it, numOutputRows=rows))
        return version

    def data_file(self, version: int) -> Path:
        """Return the place of the only data file that a commit added."""
        actions = map(json.loads, self.file(version).read_text().splitlines())
        (added,) = [each["add"]["path"] for each in actions if "add" in each]
        return Path(self.table.path) / unquote(added)

    def file(self, version: int) -> Path:
        return self.place / f"{version:020d}.json"

    def edit(self, version: int, **by: Any) -> None:
        """Pass each action of a commit to the function of its kind, which may change it."""
        actions = [json.loads(line) for line in self.file(version).read_text().splitlines()]
        for action in actions:
            for kind in action.keys() & by.keys():
                by[kind](action[kind])
        self.file(version).write_text("\n".join(map(json.dumps, actions)))

    def unwrite(self, version: int) -> None:
        """Remove the newest commit, as a copy of the folder from before it does."""
        self.file(version).unlink()

    def verify(self, records: Sequence[CommittedAttempt] | None = None, **how: Any) -> Proven:
        return proven(self, self.records if records is None else records, **how)


def store_of(table: Table, conf: Mapping[str, str] | None = None) -> TableStore:
    found = TableStore.of(table, conf or {})
    assert found is not None, f"only Spark can read {table.path}"
    return found


def as_spark(info: dict[str, Any], operation: str = "WRITE", **metrics: int) -> None:
    info["operation"] = operation
    info["operationMetrics"] = {name: str(count) for name, count in metrics.items()}


@dataclass
class Proven:
    proof: TableProof
    findings: Findings
    point: TablePoint

    @property
    def cases(self) -> list[str]:
        return [each.case for kind in FindingKind for each in self.findings.listed[kind]]

    def only(self, case: str, kind: FindingKind = FindingKind.WRONG) -> str:
        """Return the message of the only finding."""
        assert self.cases == [case]
        (finding,) = self.findings.listed[kind]
        return finding.message


def proven(
    lake: Lake,
    records: Sequence[CommittedAttempt],
    since: Point | None = None,
    newer: Sequence[CommittedAttempt] = (),
    table: Table | None = None,
    conf: Mapping[str, str] | None = None,
) -> Proven:
    """With another `table`, that one is verified: a copy in a bucket, which `conf` reaches."""
    findings, table = Findings(), table or lake.table
    proofs = TableProofs(Sinks((table,), {table.name: "app"}, "orders", conf or {}), findings)
    proofs.begin(since)
    proofs.see(records)
    proofs.look()
    proofs.finish(newer)
    return Proven(proofs.proofs[lake.table.name], findings, proofs.points()[lake.table.name])
