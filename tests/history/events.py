"""The events of a history, by what they are about, and the anomalies that are found in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = Mapping[str, Any]
Place = tuple[str, int]  # topic, partition


@dataclass(frozen=True)
class Anomaly:
    """`witness`: events cut down to what shows it. The fewer records they have, the smaller."""

    kind: str
    text: str
    witness: tuple[Event, ...]

    @property
    def size(self) -> int:
        return sum(len(event.get("records", ())) + 1 for event in self.witness)

    def __str__(self) -> str:
        lines = [json.dumps(event, separators=(", ", ": ")) for event in self.witness]
        return "\n".join([f"{self.kind}: {self.text}", *(f"    {line}" for line in lines)])


@dataclass
class History:
    """The events, by what they are about."""

    copies: list[Event] = field(default_factory=list)
    writes: list[Event] = field(default_factory=list)
    reads: list[Event] = field(default_factory=list)
    all: dict[Place, Event] = field(default_factory=dict)
    ledgers: list[Event] = field(default_factory=list)
    reports: list[Event] = field(default_factory=list)
    written: dict[str, Event] = field(default_factory=dict)  # value: its transaction
    partition: dict[str, int] = field(default_factory=dict)  # value: where it was written to

    @classmethod
    def of(cls, events: Sequence[Event]) -> History:
        made = cls()
        for event in events:
            if event["op"] == "copy":
                made.copies.append(event)
            elif event["op"] == "write":
                made.writes.append(event)
                for _, partition, value in event["records"]:
                    assert value not in made.written, f"the workload wrote {value!r} twice"
                    made.written[value], made.partition[value] = event, partition
            elif event["op"] == "read":
                made.reads.append(event)
            elif event["op"] == "ledger":
                made.ledgers.append(event)
            elif event["op"] == "report":
                made.reports.append(event)
            else:
                made.all[event["topic"], event["partition"]] = event
        return made

    def everything_read(self) -> Iterator[Event]:
        yield from self.reads
        yield from self.all.values()


def cut(event: Event, *values: str) -> Event:
    """The event with the records of these values only."""
    return {**event, "records": [each for each in event["records"] if each[-1] in values]}


def named(event: Event) -> str:
    who = event.get("consumer", "the last read")
    return f"{who} of {event['topic']}-{event['partition']}"


def values_of(event: Event) -> set[str]:
    return {value for _, value in event["records"]}


def pairs_of(history: History) -> Iterator[tuple[Event, Event]]:
    """Each partition of a source with the same one of its target."""
    for copy in history.copies:
        for (topic, partition), source in history.all.items():
            if topic == copy["source"]:
                yield source, history.all[copy["target"], partition]
