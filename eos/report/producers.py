"""The report's section about dedup: records that it dropped or flagged, by producer and reason."""

from __future__ import annotations

from dataclasses import dataclass

from eos.audit.dedup_summary import ProducerResult, Producers
from eos.report.tables import Cell, Table, cut, name_of, omitted, rows_of
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


@dataclass(frozen=True, slots=True)
class ProducersSection:
    sentence: str
    tables: list[Table]


def section(sums: Producers) -> ProducersSection | None:
    """Return the section, or None if dedup gave no record a verdict."""
    if not sums.verdicts:
        return None
    tables = [_verdicts(sums), *_by_producer(sums), *_gaps(sums)]
    return ProducersSection(_sentence(sums), tables)


def _verdicts(sums: Producers) -> Table:
    rows = [
        (name, _became(sums, name), number(sums.verdicts[name]), reason)
        for name, reason in _WHY.items()
        if sums.verdicts[name]
    ]
    heads = ("verdict", "became", "records", "why")
    return Table("Records that were not the next of their producer", heads, rows_of(rows))


def _by_producer(sums: Producers) -> list[Table]:
    each = sums.each.most_common(PRODUCERS_SHOWN)
    if not each:
        return []
    rows = rows_of(_row(sums, of, count) for of, count in each)
    hidden = len(sums.each) + sums.more - len(each)
    more = omitted(hidden, f"{number(hidden)} more; `eos audit --json` has more of them.")
    heads = ("producer", "source", "verdict", "records", "first to last offset")
    return [Table("Records by producer", heads, rows, more=more, id="producers")]


def _gaps(sums: Producers) -> list[Table]:
    gaps = list(sums.gaps)[-GAPS_SHOWN:]
    if not gaps:
        return []
    rows = rows_of(
        (
            cut(gap.producer, _ID_MAX),
            str(gap.epoch),
            name_of(gap.topic, gap.partition),
            str(gap.expected),
            str(gap.got),
            str(gap.offset),
        )
        for gap in reversed(gaps)
    )
    older = len(sums.gaps) - len(gaps)
    more = omitted(older, f"{number(older)} older ones; `eos audit --json` has more.")
    heads = ("producer", "epoch", "source", "expected", "got", "offset")
    return [Table("Gaps, newest first", heads, rows, more=more)]


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


def _row(sums: Producers, of: ProducerResult, count: int) -> tuple[Cell, ...]:
    first, last = sums.spans[of]
    return (
        cut(of.producer, _ID_MAX),
        name_of(of.topic, of.partition),
        of.verdict,
        number(count),
        f"{first} to {last}",
    )
