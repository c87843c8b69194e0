"""How are producer states shown, as text and as JSON?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from eos.audit.producer_rows import KNOWN, UNKNOWN
from eos.audit.producer_states import EntryKey, ProducerStates
from eos.finding import Finding
from eos.inspect.layout import columns, utc
from eos.inspect.producers_live import ComparedEntry, ProducersComparison, RowStatus
from eos.kafka.api import DescribedProducer
from eos.producers.state import is_expired

_SHOWN, _FINDINGS_SHOWN = 40, 20
_EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class ProducersResult:
    pipeline: str
    transactional_id: str
    table: str
    states: ProducerStates
    live: ProducersComparison | None = None

    @property
    def findings(self) -> Sequence[Finding]:
        return [*self.states.findings, *(self.live.findings if self.live else ())]


def lines(result: ProducersResult) -> Iterator[str]:
    """Yield the transactional id, then the rows, then the findings."""
    states = result.states
    yield f"pipeline    {result.pipeline}, ledger {states.ledger.topic}"
    yield f"table       {result.table}"
    found = states.coordinator
    if found is None:
        yield "            no producer states: it never ran with a table"
        return
    built = f"up to ledger offset {found.ledger_offset}"
    if states.ledger_from:
        built += f", rebuilt from offset {states.ledger_from}: earlier records were deleted"
    yield f"            {built}"
    phase = found.phase_at(_now_ms(), states.transactional_id_idle_ms).value
    yield (
        f"coordinator {result.transactional_id}: {phase}, producer {found.identity}, "
        f"coordinator epoch {_number(found.coordinator_epoch)}, {_time(found.at_ms)}"
    )
    if result.live is not None:
        yield f"live        coordinator: {_live_phase(result.live)}"
    yield ""
    yield from _rows(result)
    yield ""
    findings = result.findings
    for finding in findings[:_FINDINGS_SHOWN]:
        yield f"{finding.case}: {finding.with_ledger_offset()}"
    more = len(findings) - _FINDINGS_SHOWN
    more = max(more, 0) + states.findings_count - len(states.findings)
    if more:
        yield f"and {more} more"
    if not findings:
        yield "no findings"


def as_json(result: ProducersResult) -> dict[str, Any]:
    states, found = result.states, result.states.coordinator
    compared = {each.key: each for each in result.live.entries} if result.live else {}
    keys = sorted(states.entries.keys() | compared.keys())
    return {
        "pipeline": result.pipeline,
        "ledger": states.ledger.topic,
        "table": result.table,
        "ledger_from": states.ledger_from,
        "coordinator": None
        if found is None
        else {
            "transactional_id": result.transactional_id,
            "state": found.phase_at(_now_ms(), states.transactional_id_idle_ms).value,
            "producer_id": found.identity.producer_id,
            "epoch": found.identity.epoch,
            "coordinator_epoch": _or_none(found.coordinator_epoch),
            "at_ms": found.at_ms,
            "ledger_offset": found.ledger_offset,
        },
        "producers": [_row_json(states, key, compared.get(key)) for key in keys],
        "live": None if result.live is None else {"coordinator": _live_phase(result.live)},
        "findings": [
            {"case": each.case, "message": each.message, "offset": each.ledger_offset}
            for each in result.findings
        ],
        "findings_count": states.findings_count + len(result.live.findings if result.live else ()),
    }


def _rows(result: ProducersResult) -> Iterator[str]:
    states = result.states
    compared = {each.key: each for each in result.live.entries} if result.live else {}
    keys = sorted(states.entries.keys() | compared.keys(), key=lambda key: _order(compared, key))
    head = ["partition", "state", "producer", "last sequence", "batches", "offsets", "last at"]
    rows = [[*head, "leader"] if result.live else head]
    rows += [_row(states, key, compared.get(key)) for key in keys[:_SHOWN]]
    yield from columns(rows, left=2)
    if len(keys) > _SHOWN:
        yield f"and {len(keys) - _SHOWN:,} more (--json has all)"


def _order(compared: dict[EntryKey, ComparedEntry], key: EntryKey) -> tuple[bool, EntryKey]:
    """Sort differences first."""
    each = compared.get(key)
    return each is None or each.status is not RowStatus.DIFFERS, key


def _row(states: ProducerStates, key: EntryKey, compared: ComparedEntry | None) -> list[str]:
    entry = states.entries.get(key)
    name, live = str(key.partition), [compared.status.value] if compared else []
    if entry is None:
        return [name, "-", f"{key.producer_id}/-", "-", "-", "-", "-", *live]
    batches = entry.batches
    return [
        name,
        _state(states, key),
        f"{key.producer_id}/{entry.state.epoch}",
        _number(entry.sequence_last),
        f"{len(batches)} of epoch {entry.batches_epoch}",
        f"{batches[0].offset_first} to {batches[-1].offset_last}",
        _time(entry.state.at_ms),
        *live,
    ]


def _row_json(
    states: ProducerStates, key: EntryKey, compared: ComparedEntry | None
) -> dict[str, Any]:
    entry = states.entries.get(key)
    found: dict[str, Any] = {
        "topic": key.partition.topic,
        "partition": key.partition.partition,
        "producer_id": key.producer_id,
    }
    if entry is not None:
        found |= {
            "state": _state(states, key),
            "epoch": entry.state.epoch,
            "last_sequence": entry.sequence_last,
            "at_ms": entry.state.at_ms,
            "coordinator_epoch": _or_none(entry.coordinator_epoch),
            "batches_epoch": entry.batches_epoch,
            "batches": [each._asdict() for each in entry.batches],
            "verdict": entry.verdict.value,
            "ledger_offset": entry.ledger_offset,
        }
    if compared is not None:
        found["live"] = compared.status.value
        found["leader"] = _leader_json(compared.leader)
    return found


def _leader_json(leader: DescribedProducer | None) -> dict[str, Any] | None:
    if leader is None:
        return None
    return {
        "epoch": leader.identity.epoch,
        "last_sequence": leader.sequence_last,
        "transaction_start_offset": leader.transaction_start_offset,
        "coordinator_epoch": leader.coordinator_epoch,
        "at_ms": leader.last_ms,
    }


def _state(states: ProducerStates, key: EntryKey) -> str:
    if is_expired(states.entries[key].state, _now_ms(), states.producer_idle_ms):
        return _EXPIRED
    return KNOWN if states.is_known(key) else UNKNOWN


def _live_phase(live: ProducersComparison) -> str:
    found = live.coordinator
    if found is None:
        return "the transactional id is unknown"
    return f"{found.phase}, producer {found.identity}"


def _time(at_ms: int) -> str:
    return utc(datetime.fromtimestamp(at_ms / 1000, timezone.utc))


def _number(number: int) -> str:
    return "-" if number < 0 else str(number)


def _or_none(number: int) -> int | None:
    return None if number < 0 else number


def _now_ms() -> int:
    return int(time.time() * 1000)
