"""Find what exactly-once forbids in a history, in the manner of Jepsen's queue checker and of Elle.

    python -m history.checker history.jsonl    # prints the smallest witness; exit code 1

A history has these events, one JSON object a line, in the order in which they ended:

    {"op": "copy", "source": S, "target": T}        a pipeline copies partition n to partition n
    {"op": "write", "producer": P, "outcome": O, "records": [[topic, partition, value], ...]}
        a transaction; O is "ok" (committed), "fail" (aborted) or "info" (nobody knows)
    {"op": "read", "consumer": C, "topic": T, "partition": N, "records": [[offset, value], ...]}
        what a read_committed consumer got, in the order in which it got it
    {"op": "all", "topic": T, "partition": N, "records": [[offset, value], ...]}
        the whole partition, read when nothing was left to do
    {"op": "ledger", "pipeline": P, "source": S, "target": T, "records": [[offset, text], ...]}
        the pipeline's ledger, as JSON, read when nothing was left to do
    {"op": "report", "pipeline": P, "outcome": O, "identity": [producer id, epoch]}
        a process of the pipeline reported that its attempt was committed ("ok") or not ("fail")

Each value is written once. The checker knows nothing of Kafka but this, and of eos only that it
copies, and what its ledger says (`history/ledger.py`). It looks for:

    aborted read          a consumer got a value of an aborted transaction
    phantom               a value that nobody wrote
    lost write            a committed value that the source does not have
    not copied            a value of the source that the target does not have
    duplicate             a value at two offsets
    torn transaction      of a transaction some values are there, others are not
    reordered             two values of a partition in another order than in the source
    inconsistent offset   two values at one offset
    unseen                a consumer passed over a value
    backwards             a consumer got a smaller offset after a larger one
    zombie commit         the ledger has a record of an owner after one of its successor
    ledger gap            a micro-batch that does not begin where the one before ended
    miscounted            a micro-batch with other records than its ledger record says
    false report          a process reported a commit that is not in the ledger, or no commit of one
                          that is
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from history import ledger
from history.events import Anomaly, Event, History, cut, named, pairs_of, values_of


def check(events: Sequence[Event]) -> list[Anomaly]:
    """All anomalies, the one with the smallest witness first."""
    history = History.of(events)
    found = [anomaly for check_one in _CHECKS for anomaly in check_one(history)]
    return sorted(found, key=lambda anomaly: (anomaly.size, anomaly.kind, anomaly.text))


def _strangers(history: History) -> Iterator[Anomaly]:
    for event in history.everything_read():
        for _, value in event["records"]:
            write = history.written.get(value)
            if write is None:
                text = f"{named(event)} got {value!r}, which nobody wrote"
                yield Anomaly("phantom", text, (cut(event, value),))
            elif write["outcome"] == "fail":
                text = f"{named(event)} got {value!r} of an aborted transaction"
                yield Anomaly("aborted read", text, (cut(write, value), cut(event, value)))


def _losses(history: History) -> Iterator[Anomaly]:
    for write in history.writes:
        for topic, partition, value in write["records"]:
            place = history.all.get((topic, partition))
            if write["outcome"] == "ok" and place is not None and value not in values_of(place):
                text = f"{value!r} is committed, and not in {topic}-{partition}"
                yield Anomaly("lost write", text, (cut(write, value), cut(place)))
    for source, target in pairs_of(history):
        there = values_of(target)
        for _, value in source["records"]:
            if value not in there:
                text = f"{value!r} is not in {target['topic']}-{target['partition']}"
                yield Anomaly("not copied", text, (cut(source, value), cut(target)))


def _duplicates(history: History) -> Iterator[Anomaly]:
    for event in history.everything_read():
        offsets: dict[str, int] = {}
        for offset, value in event["records"]:
            if offsets.setdefault(value, offset) != offset:
                text = f"{named(event)}: {value!r} is at {offsets[value]} and at {offset}"
                yield Anomaly("duplicate", text, (cut(event, value),))


def _torn(history: History) -> Iterator[Anomaly]:
    """Transactions of producers in the sources. What a pipeline commits together is not known
    here: it is a part of the source, so `not copied` covers it."""
    for write in history.writes:
        places = {(topic, partition) for topic, partition, _ in write["records"]}
        if write["outcome"] == "fail" or not places <= history.all.keys():
            continue
        there = {at: values_of(history.all[at]) for at in places}
        seen = {value: value in there[topic, part] for topic, part, value in write["records"]}
        if len(set(seen.values())) == 2:
            has = next(value for value in seen if seen[value])
            lacks = next(value for value in seen if not seen[value])
            text = f"{has!r} is there, and {lacks!r} of the same transaction is not"
            shown = [event for at in places if (event := cut(history.all[at], has))["records"]]
            yield Anomaly("torn transaction", text, (cut(write, has, lacks), *shown))


def _order(history: History) -> Iterator[Anomaly]:
    for source, target in pairs_of(history):
        rank = {value: number for number, (_, value) in enumerate(source["records"])}
        copied = [value for _, value in target["records"] if value in rank]
        for first, second in pairwise(copied):
            if rank[first] > rank[second]:
                text = f"{first!r} is before {second!r} in {target['topic']}-{target['partition']}"
                shown = (cut(source, first, second), cut(target, first, second))
                yield Anomaly("reordered", text, shown)


def _offsets(history: History) -> Iterator[Anomaly]:
    known: dict[tuple[str, int, int], tuple[str, Event]] = {}
    for event in history.everything_read():
        for offset, value in event["records"]:
            at = (event["topic"], event["partition"], offset)
            other, before = known.setdefault(at, (value, event))
            if other != value:
                text = f"offset {offset} of {at[0]}-{at[1]} is {other!r} and {value!r}"
                yield Anomaly("inconsistent offset", text, (cut(before, other), cut(event, value)))


def _progress(history: History) -> Iterator[Anomaly]:
    """Each consumer, over all its reads of a partition."""
    together: dict[tuple[str, str, int], list[tuple[int, str]]] = {}
    for event in history.reads:
        key = (event["consumer"], event["topic"], event["partition"])
        together.setdefault(key, []).extend((offset, value) for offset, value in event["records"])
    for (consumer, topic, partition), records in together.items():
        event = {"op": "read", "consumer": consumer, "topic": topic, "partition": partition}
        for (before, _), (after, _) in pairwise(records):
            if after <= before:
                text = f"{consumer} got offset {after} of {topic}-{partition} after {before}"
                pair = [list(each) for each in records if each[0] in (before, after)]
                yield Anomaly("backwards", text, ({**event, "records": pair},))
        place = history.all.get((topic, partition))
        offsets = [offset for offset, _ in records]
        if place is None or not offsets:
            continue
        first, last, seen = min(offsets), max(offsets), set(offsets)
        for offset, value in place["records"]:
            if first < offset < last and offset not in seen:
                text = f"{consumer} passed over {value!r} at offset {offset} of {topic}-{partition}"
                ends = [list(each) for each in records if each[0] in (first, last)]
                yield Anomaly("unseen", text, (cut(place, value), {**event, "records": ends}))


_CHECKS: tuple[Callable[[History], Iterator[Anomaly]], ...] = (
    _strangers,
    _losses,
    _duplicates,
    _torn,
    _order,
    _offsets,
    _progress,
    *ledger.CHECKS,
)


def main(path: str) -> int:
    with Path(path).open(encoding="utf-8") as lines:
        found = check([json.loads(line) for line in lines])
    for anomaly in found[:1]:
        print(anomaly)
    print(f"{len(found)} anomalies")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
