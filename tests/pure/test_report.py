"""What a page says of a history. A browser looks at it in tests/browser."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise

import pytest
from jinja2 import UndefinedError
from support.report_page import (
    NOW,
    aborted,
    history,
    make_page,
    past_ends,
    transaction,
)

from eos.finding import Finding
from eos.inspect.audit_live import ClusterState
from eos.inspect.cluster_view import PastEnds
from eos.kafka.api import TopicPartition
from eos.report.conclusion import Level, verdict
from eos.report.content import gather
from eos.report.lag import MOMENTS_MAX, lags, moments
from eos.report.rendering import render
from eos.report.timeline import (
    BETWEEN,
    END,
    INTERVALS_MAX,
    KINDS,
    LEDGER,
    OFFSETS,
    REDO,
    RUN,
    STEPS,
    TABLES,
    WIDTHS_MS,
    Timeline,
    Times,
)
from eos.report.units import duration, number, size, time


@pytest.mark.parametrize(
    ("rows", "live", "level", "words"),
    [
        ([], (), Level.NOTHING, "there is no transaction"),
        ([aborted(0)], (), Level.NOTHING, "no micro-batch committed"),
        (list(history(3)), (), Level.KEPT, "3 micro-batches committed once each"),
        (list(history(1)), (), Level.KEPT, "1 micro-batch committed once each"),
        ([*history(3), transaction(4)], (), Level.BROKEN, "offsets 30 to 39 were skipped"),
        ([*history(3), transaction(2)], (), Level.BROKEN, "4 contradictions among 4 transactions"),
        (list(history(3)), [Finding("hanging", "one hangs")], Level.LOOK, "one hangs."),
    ],
)
def test_one_sentence_says_it(rows, live, level, words):
    cluster = ClusterState("Empty", findings=live, at=NOW)
    found = gather(rows)
    judged = verdict(found, cluster)
    assert judged.level is level
    assert words in judged.sentence
    page = make_page(found, cluster=cluster)
    assert f"<title>{judged.word}: orders_enriched</title>" in page
    assert f'<p class="sentence">{judged.sentence}</p>' in page
    assert "<code>eos verify orders_enriched</code>" in page
    assert "this page reads no records" in page


@pytest.mark.parametrize(
    ("cluster", "lag", "words"),
    [
        (None, "not known", "it was not queried (--offline)"),
        (
            ClusterState(at=NOW, problem="no answer from k:1"),
            "not known",
            "it did not respond. no answer",
        ),
        (
            ClusterState("Empty", ends={TopicPartition("orders", 0): 37}, at=NOW),
            "7",
            "outside of Kafka",
        ),
        (
            ClusterState("Empty", ends={TopicPartition("orders", 0): 1}, at=NOW),
            "0",
            "outside of Kafka",
        ),
        (ClusterState("Empty", ends={}, at=NOW), "0", "deleted"),
    ],
)
def test_lag_is_told_or_why_it_is_not_known(cluster, lag, words):
    page = make_page(history(3), cluster=cluster)
    assert f'<dt>Lag</dt><dd class="value">{lag}</dd>' in page
    assert words in page


def test_lag_over_time_is_the_sources_end_minus_the_position_of_that_moment():
    found = gather(history(60))
    cluster = ClusterState(past=past_ends(found, ahead=7))
    assert [each.offsets for each in lags(found, cluster)] == [7] * 60
    page = make_page(found, cluster=cluster)
    about = "not committed at 60 moments, by the timestamps of the records: at most {0}, last {0}."
    assert f"{about.format(7)}</title>" in page
    assert '"lag":["7 offsets",' in page
    # The pipeline had read all records.
    cluster = ClusterState(past=past_ends(found, ahead=0))
    assert [each.offsets for each in lags(found, cluster)] == [0] * 60
    assert f"{about.format(0)}</p>" in make_page(found, cluster=cluster)


def test_lag_is_unknown_where_the_source_or_the_brokers_do_not_tell():
    found = gather(history(60))
    deleted = ClusterState(past=past_ends(found, ahead=7, first=300))
    assert [each.offsets for each in lags(found, deleted)] == [None] * 29 + [7] * 31
    assert "offsets, known at 31 of 60 moments" in make_page(found, cluster=deleted)
    # What a broker still has is known, if the pipeline had read it all: nothing was left to read.
    quiet = ClusterState(past=past_ends(found, ahead=-1, first=300))
    assert [each.offsets for each in lags(found, quiet)] == [None] * 29 + [0] * 31
    known = past_ends(found, ahead=7)
    late = PastEnds(known.starts, {at: known.by_time[at] for at in moments(found)[-2:]})
    expected = [None] * 58 + [7, 7]
    assert [each.offsets for each in lags(found, ClusterState(past=late))] == expected
    for cluster, words in (
        (None, "Not known: the cluster was not queried."),
        (ClusterState(problem="no answer"), "Not known: the cluster did not respond."),
        (ClusterState(), "records of that time were deleted, or the brokers did not answer"),
    ):
        assert f"{words}" in make_page(found, cluster=cluster)


def test_a_partition_counts_before_the_period_has_a_record_of_it():
    """As with `--since`: an attempt names only the partitions that it read."""
    one, other = TopicPartition("orders", 0), TopicPartition("orders", 1)
    last = transaction(2, at=NOW + timedelta(seconds=2), sources={other: (40, 50)})
    found = gather([*history(2), last])
    ends = {at: {one: 20, other: 45} for at in moments(found)}
    cluster = ClusterState(past=PastEnds(dict.fromkeys((one, other), 0), ends))
    first, *_, end = (each.offsets for each in lags(found, cluster))
    assert (first, end) == (10 + 5, 0)
    # A partition that was deleted is left out; a topic that was deleted has no lag.
    ends = {at: {one: 20} for at in ends}
    cluster = ClusterState(past=PastEnds({one: 0}, ends))
    assert next(iter(lags(found, cluster))).offsets == 10


def test_a_page_asks_for_a_bounded_number_of_moments():
    rows = (transaction(n, at=NOW + timedelta(seconds=n)) for n in range(5000))
    found = gather(rows)
    assert MOMENTS_MAX / 2 < len(moments(found)) <= MOMENTS_MAX
    many = {TopicPartition("orders", p): (0, 10) for p in range(2000)}
    found = gather([*history(500), transaction(500, sources=many)])
    assert len(moments(found)) <= 4


def test_the_time_of_a_micro_batch_is_told_by_step():
    def at(ms: int):
        return NOW + timedelta(milliseconds=ms)

    rows = [
        transaction(0, kind="start", begun_at=None, ended_at=at(0), sources={}),
        transaction(0, begun_at=at(10), ended_at=at(40)),
        aborted(1, begun_at=at(45), ended_at=at(65)),
        transaction(1, begun_at=at(66), ended_at=at(99), attempt=2),
        transaction(2, begun_at=at(1099), ended_at=at(1100)),
        transaction(3, begun_at=at(1000), ended_at=at(1110)),  # a clock that went back
    ]
    found = gather(rows)
    first, last = (each for _, each in sorted(found.timeline.intervals.items()))
    assert known(first.step_ms) == {RUN: 63, REDO: 20, BETWEEN: 10 + 5 + 1}
    assert known(first.step_averages_ms()) == {RUN: 31.5, REDO: 10, BETWEEN: 8}
    assert known(last.step_ms) == {RUN: 111, BETWEEN: 1000}
    page = make_page(found)
    told = "a micro-batch on average: 32 ms read, transform, write; 10 ms attempts that failed; "
    assert f"{told}8 ms wait, other" in page
    assert "".join(f'<th scope="col">{step}</th>' for step in STEPS) in page
    assert "at most 0.5 in an interval" in page
    joined = gather([*rows, transaction(4, at=NOW + timedelta(days=1))]).timeline
    ms = [each.step_ms for _, each in sorted(joined.intervals.items())]
    assert known(ms[0]) == {RUN: 174, REDO: 20, BETWEEN: 1016}


def known(step_ms: Mapping[str, float]) -> dict[str, float]:
    return {step: ms for step, ms in step_ms.items() if ms}


def test_the_steps_of_the_commit_before_are_part_of_the_time_between():
    def at(ms: int):
        return NOW + timedelta(milliseconds=ms)

    steps = {"ledger": 4, "offsets": 2, "end": 10, "tables": 24, "of a newer release": 4}
    rows = [
        transaction(0, begun_at=at(0), ended_at=at(10)),
        transaction(1, begun_at=at(60), ended_at=at(80), previous_ms=steps),
    ]
    found = gather(rows)
    (only,) = found.timeline.intervals.values()
    expected = {RUN: 30, LEDGER: 4, OFFSETS: 2, END: 10, TABLES: 24, BETWEEN: 50 - 40}
    assert known(only.step_ms) == expected
    page = make_page(found)
    assert "2 ms ledger record; 1 ms group offsets; 5 ms EndTxn; 12 ms Delta tables" in page


def test_the_longest_lag_of_each_interval_is_shown_in_time():
    page = make_page(history(3))
    assert "The runs of this period did not record it." in page
    rows = [
        transaction(n, begun_at=NOW, ended_at=NOW + timedelta(milliseconds=n), lag_ms=ms)
        for n, ms in enumerate((200, None, 61_000, 4_000))
    ]
    found = gather(rows)
    assert [each.lag_ms for each in found.timeline.intervals.values()] == [61_000]
    joined = gather([*rows, transaction(4, at=NOW + timedelta(days=1), lag_ms=5)]).timeline
    assert [each.lag_ms for _, each in sorted(joined.intervals.items())] == [61_000, 5]
    page = make_page(found)
    assert f"since the run saw them: at most {duration(61_000)}." in page
    assert '<th scope="col">lag in time</th>' in page


def test_a_chart_without_data_says_why():
    page = make_page([aborted(0, begun_at=None, ended_at=None)])
    assert '<p class="none">No attempt was committed, or its begin is unknown.</p>' in page
    assert '<p class="none">No attempt failed.</p>' not in page
    page = make_page(history(3))
    assert '<p class="none">No attempt failed.</p>' in page
    assert 'd=""' not in page


def test_intervals_grow_and_lose_nothing():
    line, times = Timeline(), []
    for n in range(5000):
        times.append(NOW + timedelta(seconds=n * n / 10))
        line.add(transaction(n, at=times[-1], ended_at=times[-1]))
        assert line.length <= INTERVALS_MAX
    assert line.width_ms > 3_600_000
    expected = Counter(line.place_of(at) for at in times)
    assert {n: each.counts["committed"] for n, each in line.intervals.items()} == dict(expected)
    for low, high in pairwise(WIDTHS_MS):
        assert high % low == 0
    place = line.place_of(times[7])
    assert line.start_of(place) <= times[7] < line.start_of(place + 1)


def test_a_clock_that_went_back_and_one_that_nobody_read_lose_nothing():
    rows = [
        transaction(0, at=NOW),
        transaction(1, at=NOW - timedelta(minutes=5)),
        aborted(2, begun_at=None, ended_at=None),
        transaction(2, at=NOW + timedelta(seconds=1), attempt=2),
    ]
    found = gather(rows)
    assert dict(found.kinds) == {"committed": 2, "aborted": 1, "redone": 1}
    assert sum(each.counts[k] for each in found.timeline.intervals.values() for k in KINDS) == 4
    assert found.first_at == rows[1].ended_at
    assert found.last_at == rows[3].ended_at
    page = make_page(found)
    # Told where the one before it is, in the list as in the charts.
    slots = found.timeline.place_of(rows[3].ended_at) - found.timeline.first
    assert '<tr data-at="0"><td>unknown</td><td>micro-batch 2</td>' in page
    assert f'<tr data-at="{slots}"><td>{time(rows[3].ended_at)}</td>' in page


def test_what_is_out_of_the_ordinary_says_why():
    other = ("elsewhere", "host-2", 12)
    rows = [
        *history(3, aborts=3),
        transaction(3, writer=other),
        transaction(4, writer=other, kind="recovery", is_reset=True, reason="moved by hand"),
    ]
    found = gather(rows)
    assert [(each.batch_id, each.kind) for each, _ in found.notable] == [
        (1, "attempt"),
        (1, "attempt"),
        (3, "attempt"),
        (4, "recovery"),
    ]
    page = make_page(found)
    assert "<td>task_failed: a writer&#39;s task failed</td>" in page
    assert page.count("<td>another deployment or host than before</td>") == 1
    assert "<td>moved by hand</td>" in page
    assert found.sums.takeovers == (rows[-2],)


def test_dead_letters_are_shown_by_rule_and_records_beside_offsets():
    rule = {"paid": {"dead_letter": 1200}, "malformed": {"drop": 3}}
    page = make_page(
        [transaction(0, refused=rule, records_read=7), transaction(1, records_read=10)]
    )
    assert "<h2>Dead letters and dropped records</h2>" in page
    assert "<td>paid</td><td>dead letter</td><td>1,200</td>" in page
    assert "<td>malformed</td><td>drop</td><td>3</td>" in page
    assert '<dt>Read</dt><dd class="value">17</dd>' in page
    assert "records, in 20 offsets, with markers" in page
    assert "Dead letters" not in make_page([transaction(0)])


def test_the_pipelines_own_restart_is_no_other_process():
    rows = [transaction(0), transaction(1, writer=("/var/lib/eos", "host-1", 99))]
    found = gather(rows)
    assert (found.sums.takeovers, found.sums.restarts) == ((), (rows[1],))
    assert "<td>the pipeline was restarted</td>" in make_page(found)


def test_what_dedup_did_is_told_with_why():
    first = {
        "verdicts": {"appended": 1200, "duplicate": 40, "fenced": 2, "gap": 3, "late": 2},
        "dead_letters": {"gap": 3, "late": 1},
        "producers": [["in", 0, "<till>", "duplicate", 40, 7, 90], ["in", 1, "b", "gap", 3, 5, 6]],
        "producers_more": 4,
        "states": 17,
        "gaps": [["in", 1, "b", 0, 20, 25, 5]],
    }
    page = make_page(
        [transaction(0, dedup=first), transaction(1, dedup={"verdicts": {"appended": 1}})]
    )
    for words in (
        "<h2>Upstream producers</h2>",
        "1,201 records in sequence; 42 dropped",
        "17 states of producers kept.",
        "<td>duplicate</td><td>dropped</td><td>40</td><td>accepted before",
        "<td>fenced</td><td>dropped</td><td>2</td>",
        "<td>gap</td><td>dead letter</td><td>3</td>",
        "<td>late</td><td>1 dead letter, the others accepted</td>",
        "<td>&lt;till&gt;</td><td>in-0</td><td>duplicate</td><td>40</td><td>7 to 90</td>",
        "4 more; `eos audit --json`",
        "<td>b</td><td>0</td><td>in-1</td><td>20</td><td>25</td><td>5</td>",
    ):
        assert words in page, words
    assert "Upstream producers" not in make_page(history(3))


def test_of_many_producers_a_page_shows_some():
    told = [["in", 0, "x" * 5000 + str(n), "duplicate", 1, n, n] for n in range(100)]
    dedup = {"verdicts": {"duplicate": 100}, "producers": told}
    dedup["gaps"] = [["in", 0, "y" * 5000, 0, 0, n, n] for n in range(20)]
    rows = [transaction(n, dedup=dedup) for n in range(200)]
    small = make_page([transaction(n) for n in range(200)])
    assert len(make_page(rows)) < len(small) + 200_000
    assert "950 older ones" in make_page(rows)


def test_quantiles_are_right_to_two_percent():
    times, half = Times(), Times()
    for ms in range(1, 1001):
        (times if ms % 2 else half).add(ms)
    times.join(half)
    for share in (0.01, 0.5, 0.95, 0.99):
        assert times.at(share) == pytest.approx(1000 * share, rel=0.021)
    assert times.longest_ms == 1000
    assert Times().at(0.5) == 0
    assert not Times()


def test_text_stays_text():
    evil = "</script><b a='\"'>&\u2028"
    rows = history(3, topic=evil, aborts=3, reason=evil)
    page = make_page(rows, evil, ClusterState(problem=evil), since=evil)
    plain = make_page(history(3, topic="t", aborts=3, reason="r"), "p", ClusterState(problem="x"))
    for opened in ("<b", "</script>", "<script"):
        assert page.count(opened) == plain.count(opened), opened
    assert page.count("&lt;/script&gt;&lt;b a=&#39;&#34;&#39;&gt;&amp;") > 5
    told = page.partition('id="intervals">')[2].partition("</script>")[0]
    assert not set(told) & set("<>&'\u2028")
    assert json.loads(told)["sources"] == [f"{evil}-0"]


def test_a_template_without_one_of_its_values_is_an_error():
    with pytest.raises(UndefinedError, match="'policy' is undefined"):
        render("page.html")


def test_numbers_have_units():
    assert [number(n) for n in (0, 0.25, 9, 1234, 1.5e6, 2e9)] == [
        "0",
        "0.2",
        "9",
        "1,234",
        "1.50 million",
        "2.00 billion",
    ]
    assert [duration(ms) for ms in (0, 0.5, 80, 1500, 120_000, 5_400_000, 172_800_000)] == [
        "0 ms",
        "0.5 ms",
        "80 ms",
        "1.5 s",
        "2 min",
        "1.5 h",
        "2 d",
    ]
    assert [size(n) for n in (12, 1200, 3.4e6)] == ["12 B", "1.2 kB", "3.4 MB"]
