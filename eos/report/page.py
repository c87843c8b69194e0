"""The report as one HTML file that loads nothing else.

Its content security policy allows no request, and only its own style and script, by their hashes.
All content is visible without the script, which only shows the details of a selected interval.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eos.finding import Finding
from eos.inspect.audit_live import ClusterState
from eos.report import chart_panels, figures, producers, tables
from eos.report.conclusion import Level, evidence, not_checked, verdict
from eos.report.content import FINDINGS_MAX, PageContent
from eos.report.interval_texts import interval_texts
from eos.report.rendering import own_text, render
from eos.report.tables import Table
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
    style, script = own_text("page.css"), own_text("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return render(
        "page.html",
        policy=policy,
        style=style,
        script=script,
        subject=subject,
        made_at=time(subject.made_at),
        conclusion=conclusion,
        mark=_MARKS[conclusion.level],
        reasons=[
            ("Evidence", list(evidence(content, cluster))),
            ("Not checked", list(not_checked(cluster, subject.since))),
        ],
        contradictions=_contradictions(content, cluster.findings if cluster else ()),
        parts=None if content.is_empty else _parts(subject, content, cluster),
        glossary=_GLOSSARY,
        intervals=interval_texts(content, cluster),
    )


def _parts(subject: Subject, content: PageContent, cluster: ClusterState | None) -> dict[str, Any]:
    return {
        "cards": figures.cards(content, cluster, subject.made_at),
        "timeline": chart_panels.timeline(content, cluster),
        "sources": tables.sources(content, cluster),
        "targets": tables.targets(content),
        "producers": producers.section(content.sums.producers),
        "refused": tables.refused(content),
        "recent": tables.recent(content),
        "notable": tables.notable(content),
        "cluster": _cluster(cluster),
    }


def _cluster(cluster: ClusterState | None) -> dict[str, Any] | None:
    if cluster is None or cluster.problem:
        return None
    phase = cluster.phase or "none for this transactional id"
    return {"phase": phase, "at": time(cluster.at), "fields": tables.fields(cluster)}


def _contradictions(content: PageContent, live: Sequence[Finding]) -> Table | None:
    if not content.findings and not live:
        return None
    shown = [*content.findings, *live[:FINDINGS_MAX]]
    rows = (
        (each.case, tables.cut(each.message), str(each.ledger_offset) if each.witness else "")
        for each in shown
    )
    hidden = content.findings_count + len(live) - len(shown)
    more = f"{number(hidden)} more are not shown; `eos audit --live --json` has all."
    heads = ("case", "what", "ledger offset")
    return Table(
        "Contradictions",
        heads,
        tables.rows_of(rows),
        more=tables.omitted(hidden, more),
        is_titled=True,
    )


_GLOSSARY = (
    ("attempt", "one Kafka transaction, with the output of one micro-batch"),
    (COMMITTED, "a read_committed reader sees all its records"),
    (REDONE, "committed, after an earlier attempt of the same micro-batch was not"),
    (ABORTED, "a read_committed reader sees none of its records"),
    (FENCED, "aborted because another instance took over the pipeline"),
    ("took", "from the start of an attempt to just before its end, by the driver's clock"),
    ("offsets", "also count transaction markers, so there are more offsets than records"),
    ("lag", "offsets of the source that the pipeline had not committed at that time"),
)


def _hash(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()
