"""The report's section about dedup: records that it dropped or flagged, by producer and reason."""

from __future__ import annotations

from collections.abc import Iterator

from eos.audit.dedup_summary import ProducerResult, Producers
from eos.report import tables
from eos.report.markup import Content, tag
from eos.report.units import counted, number

PRODUCERS_SHOWN, GAPS_SHOWN, _ID_MAX = 100, 50, 100
_DROPPED = {
    "duplicate": "accepted before with the same id, epoch and number",
    "fenced": "arrived after a newer epoch of its producer",
}
_WHY = {
    **_DROPPED,
    "gap": "earlier records of its producer had not arrived",
    "late": "below the expected number, but not proven to be a duplicate",
    "unknown_producer": "first record of an unknown producer, with a number other than 0",
    "unstamped": "no valid producer id, epoch and number",
}


def has_verdicts(sums: Producers) -> bool:
    return bool(sums.verdicts)


def section(sums: Producers) -> Iterator[Content]:
    yield tag("p", _sentence(sums))
    verdicts = [
        tables.row(name, _became(sums, name), number(sums.verdicts[name]), reason)
        for name, reason in _WHY.items()
        if sums.verdicts[name]
    ]
    yield tables.table(
        "Records that were not the next of their producer",
        ("verdict", "became", "records", "why"),
        verdicts,
    )
    each = sums.each.most_common(PRODUCERS_SHOWN)
    if each:
        rows = [_row(sums, of, count) for of, count in each]
        yield tables.table(
            "Records by producer",
            ("producer", "source", "verdict", "records", "first to last offset"),
            rows,
            id_="producers",
        )
    hidden = len(sums.each) + sums.more - len(each)
    yield tables.omitted(hidden, f"{number(hidden)} more; `eos audit --json` has more of them.")
    gaps = list(sums.gaps)[-GAPS_SHOWN:]
    if gaps:
        shown = [
            tables.row(
                tables.cut(gap.producer, _ID_MAX),
                str(gap.epoch),
                _place(gap.topic, gap.partition),
                str(gap.expected),
                str(gap.got),
                str(gap.offset),
            )
            for gap in reversed(gaps)
        ]
        yield tables.table(
            "Gaps, newest first",
            ("producer", "epoch", "source", "expected", "got", "offset"),
            shown,
        )
        older = len(sums.gaps) - len(gaps)
        yield tables.omitted(older, f"{number(older)} older ones; `eos audit --json` has more.")


def _sentence(sums: Producers) -> str:
    dropped = sum(sums.verdicts[name] for name in _DROPPED)
    text = f"{counted(sums.verdicts['appended'], 'record')} in sequence; "
    text += f"{number(dropped)} dropped as proven duplicates or fenced."
    if sums.states >= 0:
        text += f" {counted(sums.states, 'state')} of producers kept."
    if sums.expired:
        text += f" {counted(sums.expired, 'producer')} expired after a long silence."
    return text


def _became(sums: Producers, name: str) -> str:
    if name in _DROPPED:
        return "dropped"
    dead = sums.dead_letters[name]
    if not dead:
        return "accepted"
    if dead == sums.verdicts[name]:
        return "dead letter"
    return f"{counted(dead, 'dead letter')}, the others accepted"


def _row(sums: Producers, of: ProducerResult, count: int) -> Content:
    first, last = sums.spans[of]
    return tables.row(
        tables.cut(of.producer, _ID_MAX),
        _place(of.topic, of.partition),
        of.verdict,
        number(count),
        f"{first} to {last}",
    )


def _place(topic: str, partition: int) -> str:
    return f"{tables.cut(topic, 260)}-{partition}"
