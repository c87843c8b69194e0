"""The report as one HTML file that loads nothing else.

Its content security policy allows no request, and only its own style and script, by their hashes.
All content is visible without the script, which only shows the details of a selected interval.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files

from eos.finding import Finding
from eos.inspect.audit_live import ClusterState
from eos.report import chart_panels, figures, producers, tables
from eos.report.conclusion import Conclusion, Level, evidence, not_checked, verdict
from eos.report.content import FINDINGS_MAX, PageContent
from eos.report.markup import Content, Markup, data, raw, tag
from eos.report.timeline import ABORTED, COMMITTED, FENCED, REDONE
from eos.report.units import number, time

_MARKS = {Level.KEPT: "\u2713", Level.LOOK: "!", Level.BROKEN: "\u2717", Level.NOTHING: "?"}


@dataclass(frozen=True, slots=True)
class Subject:
    """The pipeline and the period of a report. `since` is the requested beginning, or None."""

    pipeline: str
    ledger: str
    table: str
    version: str
    made_at: datetime
    since: str = ""


def page(subject: Subject, content: PageContent, cluster: ClusterState | None) -> str:
    conclusion = verdict(content, cluster)
    style, script = _package_file("page.css"), _package_file("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{conclusion.word}: {subject.pipeline}"),
        tag("style", raw(style)),
    )
    body = tag(
        "body",
        tag("main", list(_sections(subject, content, cluster, conclusion))),
        tag(
            "script",
            data(chart_panels.intervals(content)),
            type="application/json",
            id="intervals",
        ),
        tag("script", raw(script)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _sections(
    subject: Subject, content: PageContent, cluster: ClusterState | None, conclusion: Conclusion
) -> Iterator[Content]:
    yield tag(
        "header",
        tag("p", "Pipeline", class_="over"),
        tag("h1", subject.pipeline),
        tag("p", f"Created at {time(subject.made_at)}.", class_="soft"),
    )
    yield _conclusion(subject, content, cluster, conclusion)
    live = cluster.findings if cluster else ()
    if content.findings or live:
        yield _section("Contradictions", _findings(content, live))
    if content.is_empty:
        yield tag("p", "The audit table has no transactions of this pipeline in this time range.")
        return
    yield _section("Key figures", figures.cards(content, cluster, subject.made_at))
    yield _section("Timeline", chart_panels.timeline(content))
    yield _section(
        "From source to target", tables.sources(content, cluster), tables.targets(content)
    )
    if producers.has_verdicts(content.sums.producers):
        parts = list(producers.section(content.sums.producers))
        yield _section("Upstream producers", *parts)
    if content.sums.refused:
        yield _section("Dead letters and dropped records", tables.refused(content))
    yield _section("Last micro-batches", tables.recent(content))
    yield _section("Unusual events", _NOTABLE, tables.notable(content))
    if cluster is not None and not cluster.problem:
        phase = cluster.phase or "none for this transactional id"
        state = f"The transaction's state at {time(cluster.at)}: {phase}."
        yield _section("The cluster", tag("p", state), tables.fields(cluster))
    yield _section("Glossary", _glossary())
    footer = f"spark-eos {subject.version}. Table {subject.table}, ledger {subject.ledger}."
    yield tag("footer", tag("p", footer))


_NOTABLE = tag(
    "p",
    "Attempts that were aborted, fenced or redone, restarts, takeovers, and positions that an "
    "operator moved. None of them is a contradiction. Newest first.",
)


def _conclusion(
    subject: Subject, content: PageContent, cluster: ClusterState | None, conclusion: Conclusion
) -> Markup:
    unchecked = not_checked(cluster, subject.since)
    return tag(
        "section",
        tag("div", _MARKS[conclusion.level], class_="mark", aria_hidden="true"),
        tag(
            "div",
            tag("h2", conclusion.word, id="verdict"),
            tag("p", conclusion.sentence, class_="sentence"),
            tag(
                "div",
                _reasons("Evidence", evidence(content, cluster)),
                _reasons("Not checked", unchecked),
                class_="reasons",
            ),
            tag(
                "p",
                "To prove it, record by record, from source to targets: ",
                tag("code", f"eos verify {subject.pipeline}"),
            ),
        ),
        class_=f"verdict {conclusion.level.value}",
        aria_labelledby="verdict",
    )


def _reasons(title: str, found: Iterator[str]) -> Markup | None:
    lines = [tag("li", each) for each in found]
    return tag("div", tag("h3", title), tag("ul", lines)) if lines else None


def _section(title: str, *content: Content) -> Markup:
    return tag("section", tag("h2", title), content, class_="part")


def _findings(content: PageContent, live: Sequence[Finding]) -> Content:
    shown = [*content.findings, *live[:FINDINGS_MAX]]
    rows = [
        tables.row(
            each.case, tables.cut(each.message), str(each.ledger_offset) if each.witness else ""
        )
        for each in shown
    ]
    hidden = content.findings_count + len(live) - len(shown)
    more = f"{number(hidden)} more are not shown; `eos audit --live --json` has all."
    heads = ("case", "what", "ledger offset")
    return [
        tables.table("Contradictions", heads, rows, is_titled=True),
        tables.omitted(hidden, more),
    ]


def _glossary() -> Markup:
    return tag(
        "dl",
        [
            [tag("dt", name), tag("dd", meaning)]
            for name, meaning in (
                ("attempt", "one Kafka transaction, with the output of one micro-batch"),
                (COMMITTED, "a read_committed reader sees all its records"),
                (REDONE, "committed, after an earlier attempt of the same micro-batch was not"),
                (ABORTED, "a read_committed reader sees none of its records"),
                (FENCED, "aborted because another instance took over the pipeline"),
                (
                    "took",
                    "from the start of an attempt to just before its end, by the driver's clock",
                ),
                (
                    "offsets",
                    "also count transaction markers, so there are more offsets than records",
                ),
                (
                    "lag",
                    "offsets of the source that the pipeline had not read when the page was made",
                ),
            )
        ],
        class_="words",
    )


@cache
def _package_file(name: str) -> str:
    return files("eos.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()
