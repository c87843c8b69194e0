"""How a record's stamp is read, as Spark's SQL over Kafka's own columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from eos.dedup.policy import OPTIONS, Policy, rule_of


@dataclass(frozen=True, slots=True)
class StampPlace:
    """A header (the last of that name, as Kafka's own clients take it), a path in a JSON value, or
    the key."""

    kind: Literal["header", "value", "key"]
    name: str = ""

    @property
    def sql(self) -> str:
        """Bytes, or null where there are none."""
        if self.kind == "header":
            # Not by filter(headers, h -> ...): Spark interprets that, five times as slow. The names
            # alone are turned around, once for all stamps. Position 0 means that there is none:
            # then it is a place behind the last header, which is null.
            last = f"array_position(reverse(headers.key), {_text(self.name)})"
            return f"get(headers, CAST(size(headers) - {last} AS INT)).value"
        if self.kind == "value":
            # Each name in brackets: none of its letters has a meaning there.
            path = "$" + "".join(f"['{part}']" for part in self.name.split("."))
            return f"CAST(get_json_object(CAST(value AS STRING), {_text(path)}) AS BINARY)"
        return "key"


@dataclass(frozen=True, slots=True)
class StampRules:
    """What a pipeline declares."""

    producer: StampPlace
    epoch: StampPlace
    sequence: StampPlace
    policy: Policy
    verdict: str = ""  # the column that says what a row was taken as; empty: none does
    validates_first: bool = False  # before anything is written, in every micro-batch

    @property
    def columns(self) -> tuple[str, str, str]:
        """The id's bytes, and both numbers: null where there is none, or none that can be read."""
        return self.producer.sql, _number(self.epoch), _number(self.sequence)

    @property
    def header_names(self) -> tuple[str, ...]:
        """For who has the headers at hand (`stamps`); none: something of it is elsewhere."""
        places = (self.producer, self.epoch, self.sequence)
        is_in_headers = all(each.kind == "header" for each in places)
        return tuple(each.name for each in places) if is_in_headers else ()

    @property
    def reading(self) -> tuple[str, ...]:
        """What gives a state its meaning."""
        return tuple(
            f"{each.kind}({each.name})" for each in (self.producer, self.epoch, self.sequence)
        )

    @property
    def dead_letter_rules(self) -> list[str]:
        """The rules by which records go to the dead letters."""
        return [rule_of(name) for name in OPTIONS if name in self.policy.dead]

    @property
    def facts(self) -> Iterator[str]:
        """For people."""
        yield f"by {', '.join(self.reading)}"
        policy = self.policy
        if policy.window:
            yield (
                "a producer's records may be spread over partitions, each at most "
                f"{policy.window:,} above the lowest number that is missing"
            )
        answers = {"ends the run": policy.refused, "to the dead letters": policy.dead}
        for what, names in answers.items():
            if names:
                yield f"{what}: {', '.join(name for name in OPTIONS if name in names)}"
        if self.validates_first:
            yield "records are validated before they are written"
        if self.verdict:
            yield f"column {self.verdict} says what a record was taken as"


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _number(place: StampPlace) -> str:
    return f"try_cast(CAST({place.sql} AS STRING) AS BIGINT)"
