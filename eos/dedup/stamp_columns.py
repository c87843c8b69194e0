"""SQL that reads a record's stamp from the columns of Spark's Kafka source.

A stamp is the producer id, epoch and sequence number that the upstream gave the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from eos.dedup.policy import OPTIONS, Policy, rule_of


@dataclass(frozen=True, slots=True)
class StampPlace:
    """Location of one part of a stamp: a header, a path in a JSON value, or the key.

    If several headers have this name, the last one counts, as in Kafka's `Headers.lastHeader`."""

    kind: Literal["header", "value", "key"]
    name: str = ""

    @property
    def sql(self) -> str:
        """Return a SQL expression for the bytes of this part; null if the record lacks it."""
        if self.kind == "header":
            # filter(headers, h -> ...) is interpreted by Spark and five times slower. So search
            # the reversed keys for the last header of this name; Spark reverses them once for all
            # parts of a stamp. If the key is missing, array_position returns 0. Then the index is
            # one after the last header, for which get() returns null.
            last = f"array_position(reverse(headers.key), {_text(self.name)})"
            return f"get(headers, CAST(size(headers) - {last} AS INT)).value"
        if self.kind == "value":
            # Put names in brackets, where no character has a special meaning in a JSON path.
            path = "$" + "".join(f"['{part}']" for part in self.name.split("."))
            return f"CAST(get_json_object(CAST(value AS STRING), {_text(path)}) AS BINARY)"
        return "key"


@dataclass(frozen=True, slots=True)
class StampRules:
    """Dedup settings of a pipeline: where stamps are read from, and the policy."""

    producer: StampPlace
    epoch: StampPlace
    sequence: StampPlace
    policy: Policy
    verdict: str = ""  # the column that shows the verdict of each row; empty: no such column
    validates_first: bool = False  # every micro-batch validates its records before the write

    @property
    def columns(self) -> tuple[str, str, str]:
        """Return SQL expressions for id, epoch and sequence.

        Their values are null if missing; epoch and sequence also if they are no whole number."""
        return self.producer.sql, _number(self.epoch), _number(self.sequence)

    @property
    def header_names(self) -> tuple[str, ...]:
        """Return the header names of id, epoch and sequence; empty if one is not a header."""
        places = (self.producer, self.epoch, self.sequence)
        is_in_headers = all(each.kind == "header" for each in places)
        return tuple(each.name for each in places) if is_in_headers else ()

    @property
    def needs_sql(self) -> bool:
        """Return whether dedup needs SQL: for stamps outside of headers, or a verdict column."""
        return bool(self.verdict) or not self.header_names

    @property
    def reading(self) -> tuple[str, ...]:
        """Return where id, epoch and sequence are read from, as `KIND(NAME)`.

        States of producers are valid only while these places stay the same."""
        return tuple(
            f"{each.kind}({each.name})" for each in (self.producer, self.epoch, self.sequence)
        )

    @property
    def dead_letter_rules(self) -> list[str]:
        """Return the rule names under which dedup sends records to the dead letters."""
        return [rule_of(name) for name in OPTIONS if name in self.policy.dead]

    @property
    def facts(self) -> Iterator[str]:
        """Yield a description of the settings, for display."""
        yield f"by {', '.join(self.reading)}"
        policy = self.policy
        if policy.window:
            yield (
                "a producer's records may be spread over partitions, each at most "
                f"{policy.window:,} above the lowest missing number"
            )
        answers = {"ends the run": policy.refused, "to the dead letters": policy.dead}
        for answer, names in answers.items():
            if names:
                yield f"{answer}: {', '.join(name for name in OPTIONS if name in names)}"
        if self.validates_first:
            yield "records are validated before they are written"
        if self.verdict:
            yield f"column {self.verdict} has the verdict of each record"


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _number(place: StampPlace) -> str:
    return f"try_cast(CAST({place.sql} AS STRING) AS BIGINT)"
