"""The tables of the report. Each has a limited number of rows, and shows how many are hidden."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import escape

from eos.audit.history import Transaction
from eos.inspect.audit_live import ClusterState
from eos.inspect.audit_render import kind_of as what
from eos.inspect.audit_render import owner_text
from eos.kafka.api import TopicPartition
from eos.report.content import PageContent
from eos.report.timeline import (
    COMMITTED,
    KINDS,
    Spans,
    is_try,
    kind_of,
    read_by,
    written_by,
)
from eos.report.units import counted, duration, ms_between, number, size, time

PARTITIONS_MAX, FIELDS_SHOWN, RECENT_SHOWN, RANGES_SHOWN = 300, 100, 20, 8
_BYTES_MAX = 600_000  # HTML of the table of unusual events
_WORDS_MAX = 300
OTHER = "another deployment or host than before"
RESTARTED = "the pipeline was restarted"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A cell with the outcome of a transaction, in its colour. `shade` is a CSS class."""

    text: str
    shade: str


Cell = str | Outcome | Sequence[str]  # a sequence: a line each


@dataclass(frozen=True, slots=True)
class Row:
    """A table's row. `slot` is the interval of the timeline to which it belongs."""

    cells: Sequence[Cell]
    slot: int | None = None

    @property
    def bytes(self) -> int:
        """Return about how many bytes of HTML it has."""
        return sum(len(escape(cell)) + 9 for cell in self.cells) + 30


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the page. Without rows, it shows "None.".

    `more` is a text about hidden rows. With `is_titled` its name is already in a heading above, so
    the caption is hidden."""

    name: str
    heads: Sequence[str]
    rows: Sequence[Row]
    more: str = ""
    id: str = ""
    is_titled: bool = False


def notable(content: PageContent) -> Table:
    """Return the table of unusual transactions, newest first."""
    rows = (_notable_row(each, at, content) for each, at in reversed(content.notable))
    shown, bytes_ = [], 0
    for row in rows:
        bytes_ += row.bytes
        if bytes_ > _BYTES_MAX:
            break
        shown.append(row)
    hidden = content.notable_count - len(shown)
    more = f"{counted(hidden, 'older one')} not shown; `eos audit --json` has all."
    heads = ("ended", "what", "became", "ledger offset", "identity", "by", "why")
    return Table(
        "Unusual events",
        heads,
        shown,
        more=omitted(hidden, more),
        id="notable",
        is_titled=True,
    )


def _notable_row(each: Transaction, at: datetime, content: PageContent) -> Row:
    kind = kind_of(each) if is_try(each) else each.kind
    # A transaction that did not fail is listed because it is the first one of another process.
    is_other = kind == COMMITTED or (not is_try(each) and not each.is_reset)
    first = OTHER if each in content.sums.takeovers else RESTARTED
    reason = ": ".join(filter(None, (each.error, each.reason))) or first * is_other
    cells = (
        time(each.ended_at),
        what(each),
        Outcome(kind, kind if kind in KINDS else "other"),
        str(each.ledger_offset),
        str(each.identity),
        owner_text(each),
        cut(reason),
    )
    return Row(cells, content.timeline.place_of(at) - content.timeline.first)


def sources(content: PageContent, cluster: ClusterState | None) -> Table:
    ends = cluster.ends if cluster else {}
    position, spans = content.position, content.sources
    known = sorted(position, key=lambda tp: (position[tp] - ends.get(tp, position[tp]), tp))
    rows = [
        (
            name_of(*tp),
            _from_to(spans, tp),
            number(spans[tp].count) if tp in spans else "0",
            str(position[tp]),
            _end(tp, ends, cluster),
            _lag(tp, position[tp], ends),
        )
        for tp in known[:PARTITIONS_MAX]
    ]
    heads = ("source", "read, first to last", "offsets", "next offset", "end offset", "lag")
    return Table("Read", heads, rows_of(rows), more=_partitions_left(known))


def targets(content: PageContent) -> Table:
    spans = content.targets
    known = sorted(spans)
    rows = [
        (
            name_of(*tp),
            f"{spans[tp].first} to {spans[tp].last}",
            number(spans[tp].count),
            size(spans[tp].bytes),
            number(spans[tp].transactions),
        )
        for tp in known[:PARTITIONS_MAX]
    ]
    heads = ("target", "written, first to last", "records", "size", "transactions")
    return Table("Written", heads, rows_of(rows), more=_partitions_left(known))


def recent(content: PageContent) -> Table:
    """Return the table of the newest committed micro-batches, with their offsets."""
    newest = [each for each in content.recent if each.is_attempt and each.is_committed]
    rows = [
        (
            time(each.ended_at),
            what(each),
            ranges(read_by(each)),
            ranges(written_by(each)),
            f"{_read(each)} / {number(each.records_out)}",
            _duration(each),
        )
        for each in reversed(newest[-RECENT_SHOWN:])
    ]
    heads = ("committed", "what", "source ranges", "target ranges", "read / written", "took")
    return Table("Last micro-batches", heads, rows_of(rows), is_titled=True)


def refused(content: PageContent) -> Table:
    """Return the table of rejected source records: how many each rule dropped or sent to the
    dead letters."""
    rows = [
        (rule, answer.replace("_", " "), number(count))
        for rule, answers in sorted(content.sums.refused.items())
        for answer, count in sorted(answers.items())
    ]
    heads = ("rule", "became", "records")
    return Table("Rejected by rule", heads, rows_of(rows), is_titled=True)


def _read(each: Transaction) -> str:
    if each.records_read is None:
        return f"{number(each.offsets_in)} offsets"
    return number(each.records_read)


def fields(cluster: ClusterState) -> Table:
    ordered = sorted(cluster.fields, key=lambda each: each.is_same)
    rows = [
        (each.name, str(each.table), str(each.broker), "same" if each.is_same else "differs")
        for each in ordered[:FIELDS_SHOWN]
    ]
    heads = ("value", "audit table", "cluster", "")
    hidden = len(ordered) - len(rows)
    differing = sum(not each.is_same for each in ordered[FIELDS_SHOWN:])
    more = f"{hidden} more; {differing} of them differ."
    return Table("Audit table and cluster", heads, rows_of(rows), more=omitted(hidden, more))


def rows_of(found: Iterable[Sequence[Cell]]) -> list[Row]:
    return [Row(cells) for cells in found]


def omitted(count: int, text: str) -> str:
    return text if count > 0 else ""


def cut(text: str, most: int = _WORDS_MAX) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def ranges(spans: Spans) -> list[str]:
    """Return a line for each partition with its first and last offset; if many, for some."""
    shown = sorted(spans)[:RANGES_SHOWN]
    lines = [f"{name_of(*tp)}: {_from_to(spans, tp)}" for tp in shown]
    more = len(spans) - len(shown)
    return [*lines, f"and {more} more"] if more else lines


def name_of(topic: str, partition: int) -> str:
    return f"{cut(topic, 260)}-{partition}"


def _from_to(spans: Spans, tp: TopicPartition) -> str:
    return f"{spans[tp].first} to {spans[tp].last}" if tp in spans else "nothing"


def _end(
    tp: TopicPartition, ends: Mapping[TopicPartition, int], cluster: ClusterState | None
) -> str:
    if tp in ends:
        return str(ends[tp])
    return "deleted" if cluster is not None and not cluster.problem else "not known"


def _lag(tp: TopicPartition, position: int, ends: Mapping[TopicPartition, int]) -> str:
    return number(max(0, ends[tp] - position)) if tp in ends else "not known"


def _duration(each: Transaction) -> str:
    if each.begun_at is None or each.ended_at is None:
        return "not known"
    return duration(ms_between(each.begun_at, each.ended_at))


def _partitions_left(known: Sequence[TopicPartition]) -> str:
    count = len(known) - PARTITIONS_MAX
    return omitted(count, f"{counted(count, 'partition')} more.")
