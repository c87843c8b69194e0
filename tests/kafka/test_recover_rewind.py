"""`--rewind-to`: back to a position that the ledger had."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from support.copies.recovery import Pipeline

from eos.startup import topic_lookup


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_lookup, "_PASSES_WITHIN_MS", 300)


@pytest.fixture
def ran(pipeline: Pipeline) -> Pipeline:
    """Ledger: 0 start, 2 micro-batch 0 up to 5, 4 micro-batch 1 up to 8, 6 stop."""
    return pipeline.ran(5, 3)


def times(pipeline: Pipeline) -> dict[int, datetime]:
    """When each record was written."""
    history = pipeline.explained().json["history"]
    return {
        each["offset"]: datetime.fromisoformat(each["at"].replace("Z", "+00:00"))
        for each in history
    }


def test_back_to_a_record_what_came_after_is_read_again(ran: Pipeline) -> None:
    did = ran.did("--rewind-to", "2")
    assert did["ends"] == {ran.source: {"0": [8, 5], "1": [8, 5]}}
    assert did["group"] == did["ends"]
    assert did["says"][1] == (
        f"6 offsets of {ran.source}-0, {ran.source}-1 are read again: their output is written a "
        f"second time to {ran.name}.out"
    )
    assert (ran.last().position.batch_id, ran.last().position.is_reset) == (0, True)
    assert ran.group() == {0: 5, 1: 5}
    assert ran.explained().code == 0
    with ran.running() as run:
        assert run.location.endswith("/0002")
        run.step()
        assert [set(step.starts.values()) for step in run.read] == [{5}]


def test_tables_that_rows_are_appended_to_receive_them_twice(ran: Pipeline) -> None:
    place = Path(ran.words[0]) / "pipeline.yaml"
    tables = "[{path: lake/all}, {path: lake/last, mode: merge, keys: [k]}]"
    sink = f"create: {{partitions: 1}}}}, delta: {tables}}}"
    text = place.read_text().replace("create: {partitions: 1}}}", sink)
    assert tables in text
    place.write_text(text)
    told = ran.recover("--rewind-to", "2", "--json").json["says"]
    appended, merged = (each for each in told if each.startswith("the Delta table"))
    assert re.match(
        r"the Delta table all \(/.*/lake/all\) receives those rows a second time", appended
    )
    assert "table last" in merged
    assert "is merged with those rows again" in merged
    # The ledger does not know these tables, so it has no version of them.
    assert all("or RESTORE the table and accept it" in each for each in (appended, merged))
    refused = ran.recover("--rewind-to", "2", "--restore-tables", "--yes")
    assert (refused.code, "[table_restore_unknown]" in refused.err) == (2, True), refused
    assert "the ledger has no version of it at that position" in refused.err
    forward = ran.recover("--rewind-to", "4", "--json")
    assert "a second time" not in forward.out


def test_tables_are_restored_only_if_there_are_some(ran: Pipeline) -> None:
    refused = ran.recover("--rewind-to", "2", "--restore-tables", "--yes")
    assert (refused.code, "the pipeline has no Delta table" in refused.err) == (2, True), refused


def test_a_rewind_is_undone_by_going_to_a_later_record(ran: Pipeline) -> None:
    ran.did("--rewind-to", "2")
    did = ran.did("--rewind-to", "4")
    assert did["ends"] == {ran.source: {"0": [5, 8], "1": [5, 8]}}
    assert "are skipped: this pipeline will not read them" in did["says"][1]


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where the machine stands must not matter."""
    with monkeypatch.context() as there:
        there.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("tokyo")
def test_a_time_means_the_last_record_at_or_before_it(ran: Pipeline) -> None:
    at = times(ran)
    offset = {"verb": "--rewind-to 2"}
    exact = at[2].isoformat()
    later = (at[4] - timedelta(milliseconds=1)).astimezone(timezone(timedelta(hours=5)))
    bare = at[2].replace(tzinfo=None).isoformat()  # without a zone: UTC
    for text in (exact, later.isoformat(), bare, exact.replace("+00:00", "Z")):
        assert ran.recover("--rewind-to", text, "--json").json.items() >= offset.items(), text
    too_early = (at[0] - timedelta(milliseconds=1)).isoformat()
    refused = ran.recover("--rewind-to", too_early, "--yes")
    assert (refused.code, "no record that old: its first record is 0" in refused.err) == (2, True)
    assert ran.recover("--rewind-to", "2099-01-01").out.startswith("nothing to do")


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("3", "at offset 3, which `--rewind-to` names; the one before is 2; the next is 4"),
        ("99", "at offset 99, which `--rewind-to` names; the one before is 6\n"),
        ("yesterday", "neither an offset of the ledger nor a time"),
        ("-1", "neither an offset of the ledger nor a time"),
    ],
)
def test_what_is_no_record_is_refused(ran: Pipeline, to: str, words: str) -> None:
    refused = ran.recover(f"--rewind-to={to}", "--yes")
    assert (refused.code, words in refused.err) == (2, True), refused


def test_an_empty_ledger_has_nothing_to_go_back_to(pipeline: Pipeline) -> None:
    for to in ("0", "2099-01-01"):
        refused = pipeline.recover("--rewind-to", to, "--yes")
        assert (refused.code, "no record that old: it is empty" in refused.err) == (2, True)


def test_records_that_the_source_no_longer_has_are_refused(ran: Pipeline) -> None:
    ran.truncate(1, 6)
    refused = ran.recover("--rewind-to", "2", "--yes")
    assert refused.code == 2
    assert f"is at offset 5 of {ran.source}-1, which has 6 to 8" in refused.err
    assert "the source no longer has those records" in refused.err


def test_to_where_the_ledger_is_there_is_nothing_to_do(ran: Pipeline) -> None:
    before = ran.ledger_ends()
    done = ran.recover("--rewind-to", "6", "--yes")
    assert (done.code, done.out.splitlines()[0]) == (0, "nothing to do")
    assert ran.ledger_ends() == before


def test_a_partition_that_was_not_known_then_begins_again(ran: Pipeline) -> None:
    ran.add_partitions(3)
    ran.fill(2)
    with ran.running() as run:
        run.step()
        run.stop()
    assert ran.ends() == {ran.source: {"0": 10, "1": 10, "2": 2}}
    did = ran.did("--rewind-to", "4")
    assert did["ends"][ran.source]["2"] == [2, None]
    assert f"{ran.source}-2: not in that record, so it is read from its" in did["says"][-1]
    with ran.running() as run:
        run.step()
        assert {tp.partition: at for tp, at in run.read[0].starts.items()} == {0: 8, 1: 8, 2: 0}


def test_over_a_topic_that_was_made_anew_only_the_others_go_back(pipeline: Pipeline) -> None:
    pipeline.pattern = f"{pipeline.name}[.](in|more)"
    pipeline.declare()
    more = f"{pipeline.name}.more"
    pipeline.create(more, 1)
    pipeline.fill(4, more)
    pipeline.ran(5, 3)
    pipeline.delete(more)
    pipeline.create(more, 1)
    pipeline.fill(2, more)
    pipeline.did("--forget-topic", more)
    forgotten = pipeline.recover("--rewind-to", "2", "--json").json
    assert f"{more} was removed from the ledger since, and is not added again" in forgotten["says"]
    with pipeline.running() as run:
        run.step()
        run.stop()
    did = pipeline.did("--rewind-to", "2")
    assert did["ends"] == {pipeline.source: {"0": [8, 5], "1": [8, 5]}}
    assert f"{more} was recreated since, and keeps its current ends" in did["says"]
    assert pipeline.ends()[more] == {"0": 2}
