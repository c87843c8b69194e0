"""Input and result of a verification of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eos.audit.table import TransactionsTable
from eos.checkpoint.files import Files
from eos.dedup.stamp_columns import StampRules
from eos.finding import Witness
from eos.plan.names import Names
from eos.verify.chain import CommitChain
from eos.verify.delta_tables import Sinks
from eos.verify.dropped_records import DropCheck, ProvenDrop
from eos.verify.findings import Findings
from eos.verify.progress import Point
from eos.verify.source import SourcePartition
from eos.verify.table_proof import TableProof
from eos.verify.target import Target


class Progress(Protocol):
    def expects(self, offsets: int) -> None:
        """Add this number of offsets to those that will be read."""

    def moved(self, offsets: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Subject:
    """The pipeline to verify.

    `table` is the audit table; None if there is none to read. `table_reason` explains why, and is
    empty if the profile disables the table.
    """

    names: Names
    sink_topics: Sequence[str]
    files: Files | None
    is_opaque: bool  # the source is not Kafka, so the checkpoint has no offsets to compare
    table: TransactionsTable | None
    table_reason: str = ""
    tables: Sinks = field(default_factory=lambda: Sinks((), {}))
    dedup: StampRules | None = None  # None without dedup by producer
    dead_letters: str = ""  # the dead-letter topic in the pipeline file; empty without one
    # Called for each proven drop, with the transaction whose ledger record claims it.
    names_dropped: Callable[[ProvenDrop, Witness], None] | None = None


@dataclass(slots=True)
class VerificationResult:
    """The result of a verification.

    `first` and `last` are the first and last verified ledger offset. `same` names the comparisons
    without differences. The next verification can resume at `point`, if the findings allow it.
    """

    findings: Findings
    chain: CommitChain
    first: int
    last: int
    targets: list[Target] = field(default_factory=list)
    sources: list[SourcePartition] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    point: Point | None = None
    dropped: DropCheck | None = None
    tables: Mapping[str, TableProof] = field(default_factory=dict)
