"""Compare the ledger of a pipeline with what it copied, and with what its processes reported.

Of a ledger record these fields are read: the identity of its transaction (`producer_id`, `epoch`),
the offsets after it (`ends`), and of a micro-batch the offsets before it (`starts`) and what was
acknowledged in each target partition (`receipts`).
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from history.events import Anomaly, Event, History

_MICRO_BATCH = "attempt"
_NOTHING = {"records": 0, "offset_first": 0, "offset_last": -1}  # a receipt that is not there
Identity = tuple[int, int]  # producer id, epoch


@dataclass(frozen=True)
class Record:
    """A ledger record, with the event that has it alone."""

    offset: int
    body: Mapping[str, Any]
    event: Event

    @property
    def identity(self) -> Identity:
        return self.body["producer_id"], self.body["epoch"]

    @property
    def ends(self) -> Mapping[int, int]:
        return self._numbers(self.body["ends"])

    @property
    def starts(self) -> Mapping[int, int]:
        return self._numbers(self.body["attempt"]["starts"])

    @property
    def is_micro_batch(self) -> bool:
        return self.body["kind"] == _MICRO_BATCH

    def _numbers(self, offsets: Mapping[str, Mapping[str, int]]) -> Mapping[int, int]:
        return {int(number): at for number, at in offsets.get(self.event["source"], {}).items()}


class Partition:
    """A partition that was read whole, for reads of a part of it."""

    def __init__(self, event: Event) -> None:
        self._event = event
        self._offsets = [offset for offset, _ in event["records"]]

    def between(self, first: int, last: int) -> Event:
        """The event with the records at these offsets only."""
        part = slice(bisect_left(self._offsets, first), bisect_right(self._offsets, last))
        return {**self._event, "records": self._event["records"][part]}


def records_of(ledger: Event) -> list[Record]:
    return [
        Record(offset, json.loads(text), {**ledger, "records": [[offset, text]]})
        for offset, text in ledger["records"]
    ]


def _zombies(history: History) -> Iterator[Anomaly]:
    """The epochs of a producer id grow, and a producer id that was replaced does not come back."""
    for ledger in history.ledgers:
        newest: Record | None = None
        replaced: dict[int, Record] = {}
        for record in records_of(ledger):
            producer_id, epoch = record.identity
            successor = replaced.get(producer_id)
            if newest is not None and newest.identity[0] != producer_id:
                replaced[newest.identity[0]] = record
            elif newest is not None and newest.identity[1] >= epoch:
                successor = newest
            if successor is not None:
                text = f"{record.identity} committed after its successor {successor.identity}"
                yield Anomaly("zombie commit", text, (successor.event, record.event))
            newest = record


def _gaps(history: History) -> Iterator[Anomaly]:
    for ledger in history.ledgers:
        at: dict[int, tuple[int, Record]] = {}
        for record in records_of(ledger):
            begins = record.starts if record.is_micro_batch else record.ends
            for number, start in begins.items():
                end, before = at.get(number, (start, record))
                if end != start:
                    text = f"partition {number} ends at {end}, and the next record is at {start}"
                    yield Anomaly("ledger gap", text, (before.event, record.event))
            at |= {number: (end, record) for number, end in record.ends.items()}


def _counts(history: History) -> Iterator[Anomaly]:
    partitions = {place: Partition(event) for place, event in history.all.items()}
    for ledger in history.ledgers:
        for record in filter(lambda each: each.is_micro_batch, records_of(ledger)):
            receipts = {each["partition"]: each for each in record.body["attempt"]["receipts"]}
            for number, start in record.starts.items():
                receipt = receipts.get(number, _NOTHING)
                read = partitions[ledger["source"], number].between(start, record.ends[number] - 1)
                written = partitions[ledger["target"], number].between(
                    receipt["offset_first"], receipt["offset_last"]
                )
                values = [[value for _, value in each["records"]] for each in (read, written)]
                if receipt["records"] != len(values[0]) or values[0] != values[1]:
                    text = (
                        f"the micro-batch from offset {start} of partition {number} read "
                        f"{len(values[0])} records, its receipt has {receipt['records']}, and its "
                        f"offsets in the target have {len(values[1])}"
                    )
                    yield Anomaly("miscounted", text, (record.event, read, written))


def _reports(history: History) -> Iterator[Anomaly]:
    known = {
        (ledger["pipeline"], record.identity): record
        for ledger in history.ledgers
        for record in records_of(ledger)
    }
    for report in history.reports:
        producer_id, epoch = report["identity"]
        found = known.get((report["pipeline"], (producer_id, epoch)))
        if (found is not None) != (report["outcome"] == "ok"):
            text = f"{report['identity']} is {'not ' if found is None else ''}in the ledger"
            yield Anomaly("false report", text, (report, *([found.event] if found else [])))


CHECKS: tuple[Callable[[History], Iterator[Anomaly]], ...] = (_zombies, _gaps, _counts, _reports)
