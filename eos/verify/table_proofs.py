"""The proofs of all Delta tables of a pipeline, in the steps of a verification."""

from __future__ import annotations

from collections.abc import Sequence

from eos.verify.delta_tables import Sinks, read_tables
from eos.verify.findings import Findings
from eos.verify.history import CommittedAttempt
from eos.verify.progress import Point, TablePoint
from eos.verify.table_commits import TableCommits
from eos.verify.table_proof import TableProof


class TableProofs:
    """The proofs of all Delta tables that can be read without Spark."""

    def __init__(self, sinks: Sinks, findings: Findings) -> None:
        self._sinks = sinks
        self._findings = findings
        self._ends: dict[str, int] = {}  # by table, the version before which commits are compared
        self.proofs: dict[str, TableProof] = {}  # by table

    def begin(self, point: Point | None) -> None:
        """Read the tables' logs from the point on at which the last verification ended."""
        stores = self._sinks.readable()
        for name, now in read_tables(self._sinks).items():
            if isinstance(now, str):
                continue  # `check_tables` reports it
            found = TableCommits(stores[name].log(self._sinks.app[name]))
            proof = TableProof(stores[name], now.id, found, self._findings)
            if point is not None and name in point.tables:
                proof.resume(point.tables[name], point.ledger_offset)
            proof.found.read_new()
            self.proofs[name] = proof

    def see(self, committed: Sequence[CommittedAttempt]) -> None:
        for each in committed:
            for proof in self.proofs.values():
                proof.see(each)

    def look(self) -> None:
        """Read the newest commits. Call this before the last read of the ledger, so that the ledger
        explains all of them."""
        for name, proof in self.proofs.items():
            proof.found.read_new()
            self._ends[name] = proof.found.end

    def finish(self, newer: Sequence[CommittedAttempt]) -> None:
        """Report what is left. `newer` has the ledger records that were read after `look`."""
        for name, proof in self.proofs.items():
            proof.see_newer(each.witness.ledger_offset for each in newer)
            proof.finish(self._ends[name])

    def owed(self) -> dict[str, int]:
        """Return, by table, the ledger offset of a micro-batch that no record confirmed yet."""
        owed = {name: proof.point().owed for name, proof in self.proofs.items()}
        return {name: each.ledger_offset for name, each in owed.items() if each is not None}

    def points(self) -> dict[str, TablePoint]:
        return {name: proof.point() for name, proof in self.proofs.items()}
