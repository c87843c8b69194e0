"""How is the result of a verification shown, as text and as JSON?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eos.plural import plural
from eos.verify.dropped_records import DropCheck
from eos.verify.findings import FindingKind, Findings, VerifyFinding
from eos.verify.progress import Point
from eos.verify.verification import VerificationResult

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class RenderedResult:
    """A result to show.

    `began` is the point at which the verification resumed; None if it began at the start. `passed`
    has the kinds of findings that are allowed. `saved` is the path of the new point, if one was
    written.
    """

    pipeline: str
    ledger: str
    verified: VerificationResult
    began: Point | None
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
    def smallest(self) -> VerifyFinding | None:
        """Return the finding with the oldest transaction, disagreements first."""
        for kind in FindingKind:
            if kind not in self.passed and self.all.kept[kind]:
                return self.all.kept[kind][0]
        return None


def lines(told: RenderedResult) -> Iterator[str]:
    done, chain = told.verified, told.verified.chain
    yield f"pipeline      {told.pipeline}, ledger {told.ledger}"
    yield f"verified      {_range(told)}"
    yield from (f"              {note}" for note in told.notes)
    for allowed in told.began.allowed if told.began else ():
        yield f"              allowed before: {allowed}"
    records = sum(target.records for target in done.targets)
    receipts = sum(target.receipts for target in done.targets)
    written = f"{plural(records, 'record')} in {plural(receipts, 'receipt')}"
    yield f"targets       {written}, {plural(chain.attempts, 'attempt')}"
    yield f"sources       {_sources(told)}"
    if done.dropped is not None and done.dropped.records:
        yield f"dropped       {_dropped(done.dropped)}"
    if done.same:
        yield f"same          {', '.join(done.same)}"
    for each in chain.moved:
        yield f"moved         an operator moved the position: {each}"
    before = sum(target.foreign_before for target in done.targets)
    if before:
        yield f"before        {before} record batches by others before the pipeline's first"
    yield f"duration      {told.seconds:.1f} s, {records / max(told.seconds, 1e-9):,.0f} records/s"
    if told.saved:
        yield f"saved         the next verification resumes from here: {told.saved}"
    yield ""
    yield from _findings(told)


def _range(told: RenderedResult) -> str:
    done = told.verified
    if told.began is None:
        return f"all of the ledger, up to offset {done.last}"
    since = f"where the verification of {told.began.at} ended; --from-start verifies all"
    if done.last < done.first:
        return f"nothing is newer than ledger offset {done.last}, {since}"
    return f"ledger offsets {done.first} to {done.last}: from {since}"


def _sources(told: RenderedResult) -> str:
    sources = told.verified.sources
    count = sum(each.end - each.start for each in sources)
    parts = {
        name: sum(getattr(each, name) for each in sources)
        for name in ("records", "control", "aborted", "removed")
    }
    return (
        f"{count:,} offsets: {parts['records']:,} records, {parts['control']:,} control records, "
        f"{parts['aborted']:,} of aborted transactions, {parts['removed']:,} out of reach or lost"
    )


def _dropped(dropped: DropCheck) -> str:
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(dropped.records.items()))
    return f"{counts}; {dropped.proven:,} proven by an earlier accepted record"


def _findings(told: RenderedResult) -> Iterator[str]:
    for kind in FindingKind:
        kept, count = told.all.kept[kind], told.all.counts[kind]
        is_passed = " (allowed)" if kind in told.passed else ""
        for finding in kept[:_SHOWN]:
            yield f"{kind.value}{is_passed}: {finding.case}: {finding.message}"
        if count > _SHOWN:
            yield f"and {count - _SHOWN:,} more of these (--json has the first {len(kept)})"
    smallest = told.smallest
    if smallest is None:
        gone, foreign = told.all.counts[FindingKind.GONE], told.all.counts[FindingKind.FOREIGN]
        result = "nothing disagrees"
        if gone or foreign:
            result = "nothing disagrees in the records that could be read; the findings are allowed"
        yield result
        return
    yield f"smallest witness: {_witness(smallest)}"


def _witness(finding: VerifyFinding) -> str:
    parts = []
    if finding.at is not None:
        parts.append(f"topic {finding.at.topic}, partition {finding.at.partition}")
    if finding.offset >= 0:
        parts.append(f"offset {finding.offset}")
    parts.append(str(finding.attempt) if finding.attempt else "of no attempt")
    return f"{finding.case}, {', '.join(parts)}"


def as_json(told: RenderedResult) -> dict[str, Any]:
    done = told.verified
    smallest = told.smallest
    return {
        "pipeline": told.pipeline,
        "ledger": told.ledger,
        "from_start": told.began is None,
        "went_on_from": told.began and told.began.at,
        "allowed_before": list(told.began.allowed) if told.began else [],
        "ledger_first": done.first,
        "ledger_last": done.last,
        "notes": told.notes,
        "attempts": done.chain.attempts,
        "targets": {
            target.name: {"records": target.records, "receipts": target.receipts}
            for target in done.targets
        },
        "sources": {
            f"{each.at.topic}-{each.at.partition}": {
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
        "same": done.same,
        "moved": [str(each) for each in done.chain.moved],
        "seconds": round(told.seconds, 3),
        "saved": told.saved or None,
        "counts": {kind.value: told.all.counts[kind] for kind in FindingKind},
        "allowed": sorted(kind.value for kind in told.passed),
        "smallest": smallest and smallest.as_json(),
        "findings": [each.as_json() for kind in FindingKind for each in told.all.kept[kind]],
    }
