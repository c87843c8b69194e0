"""What is verified, who is told how far it is, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eos.audit.table import TransactionsTable
from eos.checkpoint.files import Files
from eos.plan.names import Names
from eos.verify.chain import CommitChain
from eos.verify.delta_tables import Sinks
from eos.verify.dropped_records import DropCheck, ProvenDrop
from eos.verify.findings import Findings, Witness
from eos.verify.progress import Point
from eos.verify.source import SourcePartition
from eos.verify.stamps import StampPlaces
from eos.verify.target import Target


class Progress(Protocol):
    def expects(self, offsets: int) -> None:
        """So many more will be passed."""

    def moved(self, offsets: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Subject:
    """`table`: None where there is none; `table_reason` then says why, unless that is meant."""

    names: Names
    sink_topics: Sequence[str]
    files: Files | None
    table: TransactionsTable | None
    table_reason: str = ""
    lake: Sinks = field(default_factory=lambda: Sinks((), {}))
    places: StampPlaces | None = None  # of upstream's stamps, where dedup goes by them
    is_spread: bool = False  # what proves a dropped record may lie in another partition
    dead_letters: str = ""  # the topic that the file names now
    # Told each dropped record that has a proof.
    names_dropped: Callable[[ProvenDrop, Witness], None] | None = None


@dataclass(slots=True)
class VerificationResult:
    """`first`, `last`: ledger offsets. `same`: what was compared and agrees. `point`: from which
    the next one can go on, if what was found lets it."""

    findings: Findings
    chain: CommitChain
    first: int
    last: int
    targets: list[Target] = field(default_factory=list)
    sources: list[SourcePartition] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    point: Point | None = None
    dropped: DropCheck | None = None
