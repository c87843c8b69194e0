"""`eos report`: the verb beside a real cluster, and pages about histories that are long or wide."""

from __future__ import annotations

import io
import json
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from support.copies.audit import catch_up, projection_of
from support.copies.recovery import Pipeline
from support.errors import raises
from support.report_page import NOW, RECORDS, aborted, history, make_page, transaction
from support.verbs import report
from support.waiting import wait_until

from eos.audit.rows import table
from eos.errors import UsageError
from eos.finding import Finding
from eos.inspect import cluster_view
from eos.inspect.audit_live import ClusterState
from eos.inspect.cluster_view import ClusterView, PastEnds
from eos.kafka.api import TopicPartition
from eos.report.content import FINDINGS_MAX, NOTABLE_MAX, gather
from eos.report.timeline import INTERVALS_MAX
from eos.report.units import number

SIZE_MAX = 2_000_000


def said(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = report(words)
    return code, out.getvalue(), err.getvalue()


def test_the_verb(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch):
    words = pipeline.words
    monkeypatch.chdir(pipeline.folder)
    pipeline.ran(3, 4)
    pipeline.fill(5)
    kept = projection_of(pipeline)
    catch_up(kept)

    code, out, err = said(*words)
    assert (code, err) == (0, "")
    page = pipeline.folder / f"{pipeline.planned().names.pipeline}.report.html"
    sentence, path = out.splitlines()
    assert "Kept: According to the audit table, 2 micro-batches committed once each" in sentence
    assert path == page.name
    text = page.read_text()
    assert f"<title>Kept: {pipeline.name}</title>" in text
    assert '<dt>Lag</dt><dd class="value">10</dd>' in text, "5 in each of 2 partitions"
    assert ": CompleteCommit." in text
    assert f"<td>{pipeline.source}-0</td>" in text
    assert "Source offsets that were not committed at" in text
    assert "Not known" not in text

    other = pipeline.folder / "other.html"
    code, out, _ = said(*words, "--output", str(other), "--json", "--offline", "--since", "1 hour")
    assert json.loads(out) == {
        "page": str(other),
        "verdict": "kept",
        "sentence": sentence.removeprefix("Kept: "),
    }
    assert "it was not queried" in other.read_text()
    assert "Not known: the cluster was not queried." in other.read_text()
    assert "the page begins at" in other.read_text()

    code, out, _ = said(*words, "--output", str(other), "--since", "2999-01-01T00:00:00Z")
    assert (code, out.splitlines()[0][:17]) == (0, "Nothing to check:")
    for path, problem in (
        (pipeline.folder, "report_output_is_folder"),
        (pipeline.folder / "none" / "x.html", "report_folder_missing"),
    ):
        with raises(problem, UsageError):
            said(*words, "--output", str(path))

    committed = "SELECT * FROM transactions WHERE batch_id = 1 AND kind = 'attempt'"
    rows = kept.table.query(committed)
    app = f"{pipeline.planned().names.pipeline}/{rows[0]['ledger_id']}"
    version = kept.table.known(app)
    kept.table.append(table(dict(row) for row in rows), app, version + 1)
    code, out, _ = said(*words, "--output", str(other), "--offline")
    assert code == 1
    assert out.startswith("Broken: ")
    assert "committed twice" in other.read_text()

    profile = Path(words[2])
    profile.write_text(profile.read_text().replace(pipeline.bootstrap, "127.0.0.1:1"))
    monkeypatch.setattr(cluster_view, "TIMEOUT_MS", 500)
    code, _, err = said(*words, "--output", str(other))
    assert code == 1
    assert "eos: the page has no data of the cluster: " in err
    assert "it did not respond" in other.read_text()


def test_the_ends_of_the_source_at_earlier_moments(pipeline: Pipeline):
    def moment() -> datetime:
        """Later than all records so far, earlier than all that follow."""
        at = int(time.time() * 1000) + 1
        wait_until(lambda: time.time() * 1000 > at + 1)
        return datetime.fromtimestamp(at / 1000, timezone.utc)

    names = pipeline.planned().names
    view = ClusterView(pipeline.client(), names.transactional_id, names.group, names.ledger)
    tps = view.partitions([pipeline.source])
    moments = [moment()]
    for count in (5, 3):
        pipeline.fill(count)
        moments.append(moment())
    past = view.past_ends([*tps, TopicPartition(pipeline.source, 9)], moments)
    assert past.starts == dict.fromkeys(tps, 0)
    assert past.by_time == {
        at: dict.fromkeys(tps, end) for at, end in zip(moments, (0, 5, 8), strict=True)
    }
    pipeline.truncate(0, 7)  # from there on a moment before has the oldest record that is left
    past = view.past_ends(tps[:1], moments)
    assert past.starts == {tps[0]: 7}
    assert [ends[tps[0]] for _, ends in sorted(past.by_time.items())] == [7, 7, 8]
    assert view.past_ends([TopicPartition(pipeline.source, 9)], moments) == PastEnds()
    assert view.past_ends(tps, []) == PastEnds()


def test_without_time_for_earlier_ends_the_other_data_of_the_cluster_are_there(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
):
    names = pipeline.planned().names
    view = ClusterView(pipeline.client(), names.transactional_id, names.group, names.ledger)
    tps = view.partitions([pipeline.source])
    monkeypatch.setattr(cluster_view, "_PAST_MS", 0)
    assert view.past_ends(tps, [datetime.now(timezone.utc)]).by_time == {}
    assert set(view.committed_ends(tps)) == set(tps)


@pytest.mark.nightly
def test_a_hundred_thousand_attempts_are_all_counted_and_stay_small():
    found = gather(history(100_000, every_s=7, aborts=40, fences=10_000))
    kinds = {"committed": 97_490, "redone": 2_510, "aborted": 2_500, "fenced": 10}
    assert dict(found.kinds) == kinds
    assert found.timeline.length <= INTERVALS_MAX
    for kind, count in kinds.items():
        told = sum(each.counts[kind] for each in found.timeline.intervals.values())
        assert told == count
    (written,) = found.targets.values()
    assert (written.count, written.transactions) == (100_000 * RECORDS, 100_000)
    assert (written.first, written.last) == (0, 100_000 * (RECORDS + 1) - 2)
    assert not found.findings_count
    page = make_page(found)
    assert len(page) < SIZE_MAX
    assert "100,000 micro-batches committed once each" in page
    # Half of what was out of the ordinary were the attempts that went wrong.
    assert found.notable_count == 2 * 2_510
    assert page.count("data-at=") == NOTABLE_MAX
    assert f"{5020 - NOTABLE_MAX:,} older ones not shown" in page


@pytest.mark.nightly
def test_a_page_has_a_bound_whatever_it_is_about():
    """Names as long as Kafka has them, as many partitions, and reasons that grow when escaped."""
    topic = "t" * 249
    sources = {TopicPartition(topic, p): (p, p + 10**15) for p in range(1000)}
    row = next(iter(transaction(0).targets.values()))
    row = {**row, "offset_first": 10**15, "offset_last": 2 * 10**15}
    targets = {TopicPartition(topic[:-1] + "u", p): row for p in range(1000)}
    wide = {"sources": sources, "targets": targets}

    def rows():
        for n in range(3000):
            yield aborted(n, reason="<&>\"'" * 200, writer=("<" * 300, ">" * 300, 1))
        for n in range(INTERVALS_MAX):
            yield replace(transaction(n, at=NOW + timedelta(hours=n)), **wide)

    found = gather(rows())
    hanging, ends = [Finding("hanging", "<" * 400)] * 1000, dict.fromkeys(sources, 10**16)
    page = make_page(found, cluster=ClusterState("Empty", findings=hanging, ends=ends))
    assert len(page) < SIZE_MAX
    assert "700 partitions more" in page
    left_out = found.findings_count - FINDINGS_MAX + 1000 - FINDINGS_MAX
    assert f"{number(left_out)} more are not shown" in page
    assert "older ones not shown" in page
    assert "and 992 more" in page, "ranges of a micro-batch"
