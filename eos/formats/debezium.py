"""Change events of Debezium: SQL that reads an event's parts, and finds what is no event.

An event is an object with `before`, `after`, `op` and `source`. If Debezium's JSON converter adds
schemas (`schemas.enable`), the event is in `payload`, next to `schema`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from eos.config import avro

_OPERATIONS = ("c", "r", "u", "d", "t", "m")
_WITH_A_ROW = ("c", "r", "u")
# The milliseconds that a timestamp can have. Beyond them `timestamp_millis` fails the whole task.
_IN_RANGE = "BETWEEN -9223372036854775 AND 9223372036854775"


def json_schema(row: str) -> str:
    """Return the schema of an event in Spark's notation, with and without `payload`.

    `row` is the schema of the table's rows.
    """
    rows = f"before STRUCT<{row}>, after STRUCT<{row}>"
    event = f"{rows}, op STRING, source STRUCT<ts_ms: BIGINT>"
    return f"{event}, payload STRUCT<{event}>"


def require_event(schema: str) -> None:
    """Raise ValueError if the Avro schema is not that of an event."""
    fields = {each["name"]: each["type"] for each in json.loads(schema)["fields"]}
    names = avro.field_names(schema)
    lacking = next((name for name in ("before", "after", "op", "source") if name not in fields), "")
    if lacking:
        raise ValueError(
            "expected the Avro schema of a Debezium event, with the fields before, after, op and "
            f"source: `{lacking}` is missing (it has {', '.join(names)})"
        )
    source = fields["source"]
    inner = source.get("fields", ()) if isinstance(source, dict) else ()
    if not any(isinstance(each, dict) and each.get("name") == "ts_ms" for each in inner):
        raise ValueError(
            "expected the Avro schema of a Debezium event, whose field `source` is a record with "
            "the field `ts_ms`"
        )


def column(record: str, name: str, *, is_json: bool) -> str:
    """Return SQL for a column of an event. `record` is the parsed struct."""
    if name == "source_ts":
        millis = _part(record, "source.ts_ms", is_json=is_json)
        return f"IF({millis} {_IN_RANGE}, timestamp_millis({millis}), NULL)"
    return _part(record, name, is_json=is_json)


def wrong_with(
    record: str, subject: str, required: Sequence[str], *, is_json: bool
) -> list[tuple[str, str]]:
    """Return SQL conditions that are true for a record that is no event, each with a text.

    `required` has the row's columns that are NOT NULL, as SQL. They are not checked in `before`,
    which some databases fill with the key alone.
    """
    op, after = (_part(record, name, is_json=is_json) for name in ("op", "after"))
    known, with_row = (", ".join(map(repr, each)) for each in (_OPERATIONS, _WITH_A_ROW))
    found = [
        (
            f"NOT coalesce({op} IN ({known}), false)",
            f"the {subject} is no Debezium event: `op` is none of {', '.join(_OPERATIONS)}",
        ),
        (
            f"{op} IN ({with_row}) AND {after} IS NULL",
            f"the {subject} is no whole Debezium event: it has no `after`",
        ),
        (
            f"{_part(record, 'source.ts_ms', is_json=is_json)} NOT {_IN_RANGE}",
            f"the {subject} has a `source.ts_ms` that is no timestamp",
        ),
    ]
    for each in required:
        absent = f"the {subject} lacks the column {each} in `after`, which is NOT NULL"
        found.append((f"{after} IS NOT NULL AND {after}.{each} IS NULL", absent))
    return found


def _part(record: str, path: str, *, is_json: bool) -> str:
    return f"coalesce({record}.payload.{path}, {record}.{path})" if is_json else f"{record}.{path}"
