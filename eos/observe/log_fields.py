"""The level and the fields of an event's log line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from eos.observe import events

_ALARMING = (
    events.AttemptFailed,
    events.BrokersSilent,
    events.RecordsDeduplicated,
    events.RecordsRefused,
    events.Warned,
)
# Events for metrics and observers.
_DETAILS = (
    events.AttemptStarted,
    events.AuditFollowed,
    events.RequestRejected,
    events.SourceLag,
)
_IN_MESSAGE = {"message", "reason", "hint", "pipeline"}


def level_of(event: events.Event) -> str:
    is_asked = isinstance(event, events.AttemptFailed) and event.is_requested
    if isinstance(event, _ALARMING) and not is_asked:
        return "warning"
    return "debug" if isinstance(event, _DETAILS) else "info"


def fields_of(event: events.Event) -> Mapping[str, Any]:
    """Return the event's name and fields, without those of the message and those without a value.

    Times get three decimals."""
    values = {each.name: getattr(event, each.name) for each in fields(event)}
    found = {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in values.items()
        if name not in _IN_MESSAGE and not _is_unset(value)
    }
    return {"event": type(event).__name__, **found}


def _is_unset(value: Any) -> bool:
    return value is None or value in ("", -1, ()) or value == {}
