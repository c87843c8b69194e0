"""How a record's stamp is read, as Spark's SQL over Kafka's own columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eos.dedup.policy import Policy


@dataclass(frozen=True, slots=True)
class Place:
    """A header (the last of that name, as Kafka's own clients take it), a path in a JSON value, or
    the key."""

    kind: Literal["header", "value", "key"]
    name: str = ""

    @property
    def sql(self) -> str:
        """Bytes, or null where there are none."""
        if self.kind == "header":
            # Not by filter(headers, h -> ...): Spark interprets that, five times as slow.
            # Position 0 means that there is none.
            at = f"nullif(array_position(reverse(headers.key), {_text(self.name)}), 0)"
            return f"try_element_at(reverse(headers.value), CAST({at} AS INT))"
        if self.kind == "value":
            # Each name in brackets: none of its letters has a meaning there.
            path = "$" + "".join(f"['{part}']" for part in self.name.split("."))
            return f"CAST(get_json_object(CAST(value AS STRING), {_text(path)}) AS BINARY)"
        return "key"


@dataclass(frozen=True, slots=True)
class Dedup:
    """What a pipeline declares."""

    producer: Place
    epoch: Place
    sequence: Place
    policy: Policy

    @property
    def columns(self) -> tuple[str, str, str]:
        """The id's bytes, and both numbers: null where there is none, or none that can be read."""
        return self.producer.sql, _number(self.epoch), _number(self.sequence)

    @property
    def reading(self) -> tuple[str, ...]:
        """What gives a state its meaning."""
        return tuple(
            f"{each.kind}({each.name})" for each in (self.producer, self.epoch, self.sequence)
        )


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _number(place: Place) -> str:
    return f"try_cast(CAST({place.sql} AS STRING) AS BIGINT)"
