"""The events are public: those of version 1 keep their fields, and the page lists all of them."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields

from support.docs import ROOT

from eos.observe import events

# The fields without a default, which later fields of this version must not join.
VERSION_1 = {
    "PipelineStarted": "pipeline",
    "MetricsServed": "url",
    "MicroBatchSkipped": "batch_id",
    "AttemptStarted": "batch_id attempt producer_id epoch",
    "AttemptFailed": "batch_id attempt reason will_redo",
    "TraceContextsRead": "batch_id traceparents",
    "AttemptRetried": "batch_id attempt reason",
    "StepsLeftToSpark": "batch_id reason attempts",
    "RequestRejected": "api kafka_error",
    "MicroBatchCommitted": "batch_id attempt offsets_in records_in records_out bytes_out run_ms "
    "ledger_ms offsets_ms end_ms",
    "RecordsRefused": "batch_id rule answer records topic partition offset",
    "RecordsDeduplicated": "batch_id dropped accepted",
    "TableFollowed": "table became ledger was",
    "AuditFollowed": "lag",
    "SourceLag": "committed ends seconds",
    "BrokersSilent": "since silent_s reason hint",
    "BrokersAnswer": "silent_s",
    "Stopping": "finish_s",
    "Stopped": "pipeline reason",
    "RunFailed": "pipeline code kind message hint exit_code",
    "Warned": "message",
}


def classes() -> dict[str, type[events.Event]]:
    found = inspect.getmembers(events, inspect.isclass)
    return {
        name: each
        for name, each in found
        if issubclass(each, events.Event) and each is not events.Event
    }


def test_the_events_of_this_version_keep_their_fields() -> None:
    """If this fails on purpose: raise VERSION, and write its events down here."""
    assert events.VERSION == 1
    required = {
        name: " ".join(each.name for each in fields(kind) if _is_required(each))
        for name, kind in classes().items()
    }
    assert required == VERSION_1


def _is_required(field) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def test_each_event_is_documented_with_its_fields() -> None:
    page = (ROOT / "docs" / "observers.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE))
    listed = {name: re.findall(r"`(\w+)`", cell) for name, cell in rows.items()}
    assert listed == {
        name: [each.name for each in fields(kind)] for name, kind in classes().items()
    }
    # A dataclass without a docstring has its signature there.
    assert not [name for name, kind in classes().items() if kind.__doc__.startswith(f"{name}(")]
