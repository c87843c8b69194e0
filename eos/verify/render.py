"""How does `eos verify` render its result as text and as JSON?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eos.finding import Finding, FindingKind
from eos.plural import plural
from eos.verify.dropped_records import DropCheck
from eos.verify.findings import Findings
from eos.verify.progress import Point
from eos.verify.table_proof import TableProof
from eos.verify.verification import VerificationResult

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class RenderedResult:
    """Result of a verification, with what its output needs.

    `begin` is the point at which the verification resumed; None if it began at the ledger's start.
    `passed` has the kinds of findings that the user allows. `saved` is the file from which the next
    verification resumes; empty if none was written.
    """

    pipeline: str
    ledger: str
    verified: VerificationResult
    begin: Point | None
    notes: list[str]
    passed: frozenset[FindingKind]
    seconds: float
    saved: str = ""

    @property
    def failed(self) -> int:
        return sum(count for kind, count in self.all.counts.items() if kind not in self.passed)

    @property
    def all(self) -> Findings:
        return self.verified.findings

    @property
    def smallest(self) -> Finding | None:
        """Return the first finding that is not allowed; None if all are.

        Disagreements come first, and within a kind the oldest transaction."""
        for kind in FindingKind:
            if kind not in self.passed and self.all.listed[kind]:
                return self.all.listed[kind][0]
        return None


def lines(result: RenderedResult) -> Iterator[str]:
    done, chain = result.verified, result.verified.chain
    yield f"pipeline      {result.pipeline}, ledger {result.ledger}"
    yield f"verified      {_range(result)}"
    yield from (f"              {note}" for note in result.notes)
    for allowed in result.begin.allowed if result.begin else ():
        yield f"              allowed before: {allowed}"
    records = sum(target.records for target in done.targets)
    receipts = sum(target.receipts for target in done.targets)
    written = f"{plural(records, 'record')} in {plural(receipts, 'receipt')}"
    yield f"targets       {written}, {plural(chain.attempts, 'attempt')}"
    yield f"sources       {_sources(result)}"
    if done.dropped is not None and done.dropped.records:
        yield f"dropped       {_dropped_text(done.dropped)}"
    for name, proof in done.tables.items():
        yield f"table         {name}: {_table_text(proof)}"
    if done.same:
        yield f"same          {', '.join(done.same)}"
    for each in chain.moved:
        yield f"moved         an operator moved the position: {each}"
    before = sum(target.foreign_before for target in done.targets)
    if before:
        yield f"before        {before} record batches by others before the pipeline's first"
    rate = records / max(result.seconds, 1e-9)
    yield f"duration      {result.seconds:.1f} s, {rate:,.0f} records/s"
    if result.saved:
        yield f"saved         the next verification resumes from here: {result.saved}"
    yield ""
    yield from _findings(result)


def _range(result: RenderedResult) -> str:
    done = result.verified
    if result.begin is None:
        return f"all of the ledger, up to offset {done.last}"
    since = f"where the verification of {result.begin.at} ended; --from-start verifies all"
    if done.last < done.first:
        return f"nothing is newer than ledger offset {done.last}, {since}"
    return f"ledger offsets {done.first} to {done.last}: from {since}"


def _sources(result: RenderedResult) -> str:
    sources = result.verified.sources
    count = sum(each.end - each.start for each in sources)
    parts = {
        name: sum(getattr(each, name) for each in sources)
        for name in ("records", "control", "aborted", "removed")
    }
    return (
        f"{count:,} offsets: {parts['records']:,} records, {parts['control']:,} control records, "
        f"{parts['aborted']:,} of aborted transactions, {parts['removed']:,} out of reach or lost"
    )


def _dropped_text(dropped: DropCheck) -> str:
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(dropped.records.items()))
    return f"{counts}; {dropped.proven:,} proven by an earlier accepted record"


def _table_text(proof: TableProof) -> str:
    commits = plural(proof.commits, "commit")
    counts = f"{commits} for {proof.micro_batches:,} micro-batches, {proof.rows_text}"
    parts = [f"{counts}, {plural(proof.files.checked, 'data file')}"]
    if proof.uncounted:
        parts.append(f"the ledger has no row counts of {plural(proof.uncounted, 'commit')}")
    if proof.earlier:
        parts.append(f"an earlier table had the rows of {proof.earlier:,} micro-batches")
    return "; ".join(parts)


def _findings(result: RenderedResult) -> Iterator[str]:
    for kind in FindingKind:
        listed, count = result.all.listed[kind], result.all.counts[kind]
        is_passed = " (allowed)" if kind in result.passed else ""
        for finding in listed[:_SHOWN]:
            yield f"{kind.value}{is_passed}: {finding.case}: {finding.message}"
        if count > _SHOWN:
            yield f"and {count - _SHOWN:,} more of these (--json has the first {len(listed)})"
    smallest = result.smallest
    if smallest is None:
        unreachable, foreign = (
            result.all.counts[FindingKind.GONE],
            result.all.counts[FindingKind.FOREIGN],
        )
        some = " in the records that could be read; the findings are allowed"
        yield f"nothing disagrees{some if unreachable or foreign else ''}"
        return
    yield f"smallest witness: {_witness(smallest)}"


def _witness(finding: Finding) -> str:
    parts = []
    if finding.at is not None:
        parts.append(f"topic {finding.at.topic}, partition {finding.at.partition}")
    if finding.offset >= 0:
        parts.append(f"offset {finding.offset}")
    parts.append(str(finding.witness) if finding.witness else "of no attempt")
    return f"{finding.case}, {', '.join(parts)}"


def as_json(result: RenderedResult) -> dict[str, Any]:
    done = result.verified
    smallest = result.smallest
    return {
        "pipeline": result.pipeline,
        "ledger": result.ledger,
        "from_start": result.begin is None,
        "went_on_from": result.begin and result.begin.at,
        "allowed_before": list(result.begin.allowed) if result.begin else [],
        "ledger_first": done.first,
        "ledger_last": done.last,
        "notes": result.notes,
        "attempts": done.chain.attempts,
        "targets": {
            target.name: {"records": target.records, "receipts": target.receipts}
            for target in done.targets
        },
        "sources": {
            str(each.at): {
                "start": each.start,
                "end": each.end,
                "records": each.records,
                "control": each.control,
                "aborted": each.aborted,
                "removed": each.removed,
            }
            for each in done.sources
        },
        "dropped": done.dropped and done.dropped.as_json(),
        "tables": {name: proof.as_json() for name, proof in done.tables.items()},
        "same": done.same,
        "moved": [str(each) for each in done.chain.moved],
        "seconds": round(result.seconds, 3),
        "saved": result.saved or None,
        "counts": {kind.value: result.all.counts[kind] for kind in FindingKind},
        "allowed": sorted(kind.value for kind in result.passed),
        "smallest": smallest and _finding_json(smallest),
        "findings": [
            _finding_json(each) for kind in FindingKind for each in result.all.listed[kind]
        ],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    witness = finding.witness
    return {
        "case": finding.case,
        "kind": finding.kind.value,
        "message": finding.message,
        "topic": finding.at.topic if finding.at else None,
        "partition": finding.at.partition if finding.at else None,
        "offset": finding.offset if finding.offset >= 0 else None,
        "attempt": witness
        and {
            "ledger_offset": witness.ledger_offset,
            "kind": witness.kind,
            "batch_id": witness.batch_id,
            "attempt": witness.number,
            "producer_id": witness.identity.producer_id,
            "epoch": witness.identity.epoch,
        },
    }
