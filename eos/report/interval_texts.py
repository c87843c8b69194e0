"""The texts that the page's script shows for a selected interval of the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eos.inspect.audit_live import ClusterState
from eos.kafka.api import TopicPartition
from eos.report import charts
from eos.report.charts import placed
from eos.report.content import PageContent
from eos.report.lag import intervals_each, lags
from eos.report.tables import name_of
from eos.report.timeline import ABORTED, FENCED, KINDS, REDONE, Interval, Spans
from eos.report.units import counted, duration, moment, number

# How many source and how many target partitions an interval lists: those with the most records.
_PARTITIONS_SHOWN = 24


def interval_texts(content: PageContent, cluster: ClusterState | None) -> dict[str, Any]:
    """Return the texts of each interval, with the names and times that they share."""
    sources, targets = _busiest(content.sources), _busiest(content.targets)
    line = content.timeline
    return {
        "sources": [name_of(*tp) for tp in sources],
        "targets": [name_of(*tp) for tp in targets],
        "left": [len(content.sources) - len(sources), len(content.targets) - len(targets)],
        "slots": [
            moment(line.start_of(line.first + slot), line.width_ms)
            for slot in range(charts.slots(line) + 1)
        ],
        "found": {
            str(slot): [
                list(_texts(each, line.width_ms)),
                _spans(each.sources, sources),
                _spans(each.targets, targets),
                sum(each.counts[kind] for kind in (REDONE, ABORTED, FENCED)),
            ]
            for slot, each in placed(line)
        },
        "lag": [_lag_text(each.offsets) for each in lags(content, cluster)],
        "lag_each": intervals_each(content),
    }


def _texts(each: Interval, width_ms: int) -> Iterator[str]:
    counts = ", ".join(f"{number(each.counts[kind])} {kind}" for kind in KINDS if each.counts[kind])
    others = ", ".join(
        counted(count, kind)
        for kind, count in sorted(each.counts.items())
        if kind not in KINDS and count
    )
    yield from filter(None, (counts, others))
    if not each.times:
        return
    rate = number(each.records_written * 1000 / width_ms)
    yield (
        f"{number(each.offsets_read)} offsets read, {number(each.records_written)} records written "
        f"({rate}/s)"
    )
    yield (
        f"took {duration(each.times.at(0.5))} (median), 95% at most "
        f"{duration(each.times.at(0.95))}, longest {duration(each.times.longest_ms)}"
    )
    steps = (f"{duration(ms)} {step}" for step, ms in each.step_averages_ms().items() if ms)
    yield f"a micro-batch on average: {'; '.join(steps)}"
    if each.lag_ms is not None:
        yield f"lag in time: at most {duration(each.lag_ms)}"


def _lag_text(offsets: int | None) -> str:
    return "not known" if offsets is None else counted(offsets, "offset")


def _spans(spans: Spans, shown: Iterable[TopicPartition]) -> list[list[int]]:
    return [
        [place, spans[tp].first, spans[tp].last] for place, tp in enumerate(shown) if tp in spans
    ]


def _busiest(spans: Spans) -> list[TopicPartition]:
    most = sorted(spans, key=lambda tp: -spans[tp].count)[:_PARTITIONS_SHOWN]
    return sorted(most)
