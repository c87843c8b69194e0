"""The tables of the report. Each has a limited number of rows, and shows how many are hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from eos.audit.history import Transaction
from eos.inspect.audit_live import ClusterState
from eos.inspect.audit_render import kind_of as what
from eos.inspect.audit_render import owner_text
from eos.kafka.api import TopicPartition
from eos.report.content import PageContent
from eos.report.markup import Content, Markup, markup, tag
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


def notable(content: PageContent) -> Markup:
    """Return the HTML table of unusual transactions, newest first."""
    rows = (_notable_row(each, at, content) for each, at in reversed(content.notable))
    shown, bytes_ = [], 0
    for row in rows:
        bytes_ += len(row)
        if bytes_ > _BYTES_MAX:
            break
        shown.append(row)
    hidden = content.notable_count - len(shown)
    more = f"{counted(hidden, 'older one')} not shown; `eos audit --json` has all."
    heads = ("ended", "what", "became", "ledger offset", "identity", "by", "why")
    return markup(
        [
            table("Unusual events", heads, shown, id_="notable", is_titled=True),
            omitted(hidden, more),
        ]
    )


def _notable_row(each: Transaction, at: datetime, content: PageContent) -> Markup:
    kind = kind_of(each) if is_try(each) else each.kind
    # A transaction that did not fail is listed because it is the first one of another process.
    is_other = kind == COMMITTED or (not is_try(each) and not each.is_reset)
    first = OTHER if each in content.sums.takeovers else RESTARTED
    reason = ": ".join(filter(None, (each.error, each.reason))) or first * is_other
    return row(
        time(each.ended_at),
        what(each),
        tag("span", kind, class_=f"key {kind if kind in KINDS else 'other'}"),
        str(each.ledger_offset),
        str(each.identity),
        owner_text(each),
        cut(reason),
        data_at=content.timeline.place_of(at) - content.timeline.first,
    )


def sources(content: PageContent, cluster: ClusterState | None) -> Markup:
    ends = cluster.ends if cluster else {}
    position, spans = content.position, content.sources
    known = sorted(position, key=lambda tp: (position[tp] - ends.get(tp, position[tp]), tp))
    rows = [
        row(
            _name(tp),
            _from_to(spans, tp),
            number(spans[tp].count) if tp in spans else "0",
            str(position[tp]),
            _end(tp, ends, cluster),
            _lag(tp, position[tp], ends),
        )
        for tp in known[:PARTITIONS_MAX]
    ]
    heads = ("source", "read, first to last", "offsets", "next offset", "end offset", "lag")
    return markup([table("Read", heads, rows), _partitions_left(known)])


def targets(content: PageContent) -> Markup:
    spans = content.targets
    known = sorted(spans)
    rows = [
        row(
            _name(tp),
            f"{spans[tp].first} to {spans[tp].last}",
            number(spans[tp].count),
            size(spans[tp].bytes),
            number(spans[tp].transactions),
        )
        for tp in known[:PARTITIONS_MAX]
    ]
    heads = ("target", "written, first to last", "records", "size", "transactions")
    return markup([table("Written", heads, rows), _partitions_left(known)])


def recent(content: PageContent) -> Markup:
    """Return the HTML table of the newest committed micro-batches, with their offsets."""
    newest = [each for each in content.recent if each.is_attempt and each.is_committed]
    rows = [
        row(
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
    return table("Last micro-batches", heads, rows, is_titled=True)


def refused(content: PageContent) -> Markup:
    """Return the HTML table of rejected source records: how many each rule dropped or sent to the
    dead letters."""
    rows = [
        row(rule, answer.replace("_", " "), number(count))
        for rule, answers in sorted(content.sums.refused.items())
        for answer, count in sorted(answers.items())
    ]
    return table("Rejected by rule", ("rule", "became", "records"), rows, is_titled=True)


def _read(each: Transaction) -> str:
    if each.records_read is None:
        return f"{number(each.offsets_in)} offsets"
    return number(each.records_read)


def fields(cluster: ClusterState) -> Markup:
    ordered = sorted(cluster.fields, key=lambda each: each.is_same)
    rows = [
        row(each.name, str(each.table), str(each.broker), "same" if each.is_same else "differs")
        for each in ordered[:FIELDS_SHOWN]
    ]
    heads = ("value", "audit table", "cluster", "")
    hidden = len(ordered) - len(rows)
    differing = sum(not each.is_same for each in ordered[FIELDS_SHOWN:])
    more = f"{hidden} more; {differing} of them differ."
    return markup([table("Audit table and cluster", heads, rows), omitted(hidden, more)])


def table(
    name: str,
    heads: Sequence[str],
    rows: Sequence[Content],
    *,
    id_: str | None = None,
    is_titled: bool = False,
) -> Markup:
    """Return an HTML table, or the text "None." if it has no rows.

    With `is_titled` its name is already in a heading above, so the caption is hidden."""
    if not rows:
        return tag("p", "None.", class_="none", id_=id_)
    head = tag("thead", tag("tr", [tag("th", each, scope="col") for each in heads]))
    return tag(
        "div",
        tag(
            "table",
            tag("caption", name, class_="unseen" if is_titled else None),
            head,
            tag("tbody", rows),
        ),
        class_="scroll",
        id_=id_,
        role="region",
        aria_label=name,
        tabindex="0",
    )


def row(*cells: Content, **attributes: object) -> Markup:
    return tag("tr", [tag("td", each) for each in cells], **attributes)


def omitted(count: int, text: str) -> Markup | None:
    return tag("p", text, class_="left") if count > 0 else None


def cut(text: str, most: int = _WORDS_MAX) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def ranges(spans: Spans) -> Markup:
    """Return a line for each partition with its first and last offset; if many, for some."""
    lines: Iterator[str] = (f"{_name(tp)}: {_from_to(spans, tp)}" for tp in sorted(spans))
    shown = [tag("div", line) for _, line in zip(range(RANGES_SHOWN), lines, strict=False)]
    more = len(spans) - len(shown)
    return markup([*shown, tag("div", f"and {more} more") if more else None])


def _name(tp: TopicPartition) -> str:
    return f"{cut(tp.topic, 260)}-{tp.partition}"


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


def _partitions_left(known: Sequence[TopicPartition]) -> Markup | None:
    count = len(known) - PARTITIONS_MAX
    return omitted(count, f"{counted(count, 'partition')} more.")
