"""What contradicts itself in a pipeline's transactions, each seeded into a clean history."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from eos.audit.history import ends, findings, summary, transactions
from eos.errors import KafkaRefusedError
from eos.inspect import cluster_view
from eos.inspect.audit_live import live
from eos.inspect.audit_render import AuditResult, as_json, lines
from eos.inspect.cluster_view import ClusterView
from eos.kafka.api import (
    CommittedOffset,
    DescribedProducer,
    DescribedTransaction,
    Identity,
    TopicPartition,
)
from eos.kafka.cluster import TopicInfo
from eos.kafka.record_reader import StoredRecord
from eos.kafka.transactions import ListedTransaction
from eos.report.content import gather

NOW = datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
LEDGER, OUT, IN = TopicPartition("l", 0), TopicPartition("out", 0), TopicPartition("in", 0)


def row(number: int, **values) -> dict:
    """Of micro-batch `number`: ten records from in-0 to out-0, with a marker behind them."""
    return {
        "ledger_id": "lid",
        "ledger_offset": 2 * number,
        "kind": "attempt",
        "outcome": "CompleteCommit",
        "query_id": "q",
        "batch_id": number,
        "attempt": 1,
        "producer_id": 9,
        "epoch": number,
        "error": None,
        "reason": None,
        "begun_at": NOW,
        "ended_at": NOW + timedelta(seconds=number),
        "deployment": "here",
        "host": "h",
        "process": 7,
        "is_reset": False,
        "sources": [{"topic": "in", "partition": 0, "start": number * 10, "end": number * 10 + 10}],
        "records_in": 10,
        "target_topic": "out",
        "target_partition": 0,
        "records": 10,
        "bytes": 100,
        "sequence_first": 0,
        "sequence_last": 9,
        "offset_first": 11 * number,
        "offset_last": 11 * number + 9,
        **values,
    }


def history(**of_third) -> list[dict]:
    return [row(0), row(1), row(2, **of_third), row(3)]


def moved(start: int, end: int) -> dict:
    return {"sources": [{"topic": "in", "partition": 0, "start": start, "end": end}]}


@pytest.mark.parametrize(
    ("rows", "cases"),
    [
        (history(), []),
        (history(**moved(25, 30)), ["gap"]),
        (history(**moved(15, 30)), ["overlap"]),
        (history(**moved(20, 33)), ["overlap"]),  # the next one begins below
        ([row(0), row(2), row(3)], ["gap"]),  # a row is lost
        ([*history(), row(3)], ["twice", "twice", "overlap", "offsets_back"]),
        (history(epoch=0, producer_id=9), ["older_epoch"]),
        (history(epoch=1, producer_id=9), ["twice"]),
        (history(epoch=5, producer_id=9), ["older_epoch"]),  # the next one has epoch 3
        (history(batch_id=1), ["twice"]),
        (history(batch_id=0), ["twice"]),
        ([row(0), row(1, is_reset=True), row(2, batch_id=1), row(3)], []),  # the parts of one
        (history(records=9), ["receipt"]),
        (history(records=20, sequence_last=19), ["receipt"]),
        (history(offset_first=5, offset_last=14), ["offsets_back"]),
        (history(outcome="CompleteAbort"), ["gap"]),  # as if it had not been committed
        (history(producer_id=10, epoch=0), []),  # epochs ran out: another id
    ],
)
def test_what_can_t_be_is_found(rows, cases):
    assert [finding.case for finding in findings(transactions(rows))] == cases


def test_what_a_person_moved_is_no_gap_and_another_ledger_another_history():
    position = {"is_reset": True, "kind": "recovery", "target_topic": None, **moved(5, 5)}
    again = row(2, batch_id=0, **moved(5, 15)), row(3, batch_id=1, **moved(15, 20))
    rows = [row(0), row(1, **position), *again]
    assert not list(findings(transactions(rows)))
    rows = [row(0), row(1, ledger_id="another", **moved(70, 80), offset_first=20, offset_last=29)]
    assert not list(findings(transactions(rows)))


def test_a_record_without_a_micro_batch_has_the_whole_position():
    """As of `eos recover --forget-topic`, or of a ledger that was created again."""
    others = [{"topic": "gone", "partition": 0, "start": 0, "end": 7}]
    rows = [
        row(0, sources=others),
        row(1),
        row(2, kind="recovery", target_topic=None, **moved(20, 20)),
    ]
    assert ends(transactions(rows[:2])) == {TopicPartition("gone", 0): 7, IN: 20}
    assert ends(transactions(rows)) == gather(transactions(rows)).position == {IN: 20}


def test_sums():
    aborted = {"outcome": "CompleteAbort", "target_topic": None}
    rows = [
        row(0),
        row(1, epoch=90, error="fenced", reason="another owner", **aborted),
        row(1, epoch=91, reason="a task died", **aborted),
        row(1, process=8, target_partition=1),
        row(1, process=8),
    ]
    found = transactions(rows)
    sums = summary(found)
    assert (sums.committed, sums.aborted, sums.redo_ratio) == (2, 2, 1.0)
    assert (sums.offsets_in, sums.records_in, sums.records_out) == (20, None, 30)
    assert [each.identity.epoch for each in sums.fenced] == [90]
    assert [each.batch_id for each in sums.restarts] == [1]
    assert not sums.takeovers
    audited = AuditResult("p", "l", "/t", found, sums, list(findings(found)))
    said = "\n".join(lines(audited))
    assert "2 committed, 2 aborted: 1.000 retries per commit" in said
    assert "restarts    1, the last: process 8 on h (here) from" in said
    assert "records     20 offsets read, 30 records written" in said
    assert "taken over" not in said
    assert "no findings" in said
    assert as_json(audited)["transactions"][0]["targets"]["out-1"] == [11, 20, 10]
    assert as_json(audited)["transactions"][-1]["sources"] == {"in-0": [0, 10]}


def test_another_deployment_or_host_took_over():
    for other in ({"deployment": "there"}, {"host": "h2"}):
        sums = summary(transactions([row(0), row(1, **other)]))
        assert ([each.batch_id for each in sums.takeovers], sums.restarts) == ([1], ())


def test_records_that_were_visible_are_summed_beside_offsets_and_dead_letters_by_rule():
    refused = {"paid": {"dead_letter": 2}, "malformed": {"drop": 1}}
    rows = [
        row(0, records_read=7, offsets_in=10, refused=json.dumps(refused)),
        row(1, records_read=10, offsets_in=10, refused=json.dumps({"paid": {"dead_letter": 3}})),
    ]
    found = transactions(rows)
    audited = AuditResult("p", "l", "/t", found, summary(found), [])
    said = list(lines(audited))
    assert "records     17 records read in 20 offsets, 20 records written" in said
    assert "dead letter 5 records by rule paid" in said
    assert "dropped     1 records by rule malformed" in said
    told = as_json(audited)
    assert told["refused"] == {"paid": {"dead_letter": 5}, "malformed": {"drop": 1}}
    assert (told["records_read"], told["offsets_in"], told["records_in"]) == (17, 20, 20)


class Cluster:
    """What a cluster says of the pipeline whose last row is `row(3)`. A transaction that hangs
    can't be made on a broker that verifies partitions."""

    def __init__(self) -> None:
        self.group = {IN: 40}
        self.end = 8
        self.producers = {
            LEDGER: [DescribedProducer(Identity(9, 3), 0, -1)],
            OUT: [DescribedProducer(Identity(9, 3), 9, -1)],
        }
        self.listed = [ListedTransaction("eos.p", 9, "CompleteCommit")]
        self.state = DescribedTransaction("CompleteCommit", Identity(9, 4), 60_000)
        self.other_id = 105  # the answer to a request for any other transactional id
        self.then_commits = False  # before the request for the group's offsets
        self.then: list[Callable[[Cluster], None]] = []  # after each list of transactions

    def topics(self, names, _deadline):
        return {name: TopicInfo(topic_id="id", partitions=1, error=0) for name in names}

    def describe_producers(self, partitions, _deadline):
        return {tp: tuple(self.producers[tp]) for tp in partitions}

    def list_offsets(self, partitions, at, *, committed, deadline):
        assert committed
        assert deadline
        return dict.fromkeys(partitions, 0 if at == "earliest" else self.end)

    def read_records(self, _ledger, first, end, *, committed, deadline):
        assert committed
        assert deadline
        last = end - 2
        return [StoredRecord(last, 0, None, b"", (), 9, 3)] if last >= first else []

    def committed_offsets(self, group, _deadline, partitions):
        assert group == "eos.p"
        if self.then_commits:
            is_newer(self)
        return {tp: CommittedOffset(self.group[tp]) for tp in partitions if tp in self.group}

    def transaction_state(self, transactional_id, _deadline):
        if transactional_id != "eos.p":
            raise KafkaRefusedError("example", "refused", error=self.other_id)
        if self.state is None:
            raise KafkaRefusedError("example", "TRANSACTIONAL_ID_NOT_FOUND")
        return self.state

    def list_transactions(self, _deadline):
        listed = list(self.listed)
        if self.then:
            self.then.pop(0)(self)
        return listed


def hangs(cluster):
    cluster.producers[OUT].append(DescribedProducer(Identity(5, 1), 3, 77))


def has_an_owner_that_is_not_listed(cluster):
    hangs(cluster)
    cluster.other_id = 53  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def ends_meanwhile(cluster):
    hangs(cluster)
    cluster.listed.append(ListedTransaction("somebody", 5, "CompleteCommit"))
    cluster.then = [lambda _: None, lambda _: cluster.producers[OUT].pop()]


def ours_never_ends(cluster):
    cluster.producers[OUT] = [DescribedProducer(Identity(9, 4), 3, 77)]


def foreign(cluster):
    hangs(cluster)
    cluster.listed.append(ListedTransaction("somebody", 5, "Ongoing"))


def ours_is_open(cluster):
    cluster.producers[OUT] = [DescribedProducer(Identity(9, 4), 3, 77)]
    cluster.listed = [ListedTransaction("eos.p", 9, "Ongoing")]
    cluster.state = DescribedTransaction("Ongoing", Identity(9, 4), 60_000)


def writes_the_ledger(cluster):
    cluster.producers[LEDGER].append(DescribedProducer(Identity(5, 0), 0, -1))


def moves_the_group(cluster):
    cluster.group[IN] = 41


def loses_the_group(cluster):
    cluster.group.clear()


def forgets_the_end(cluster):
    cluster.end = 6


def is_newer(cluster):
    cluster.end = 10
    cluster.group[IN] = 50


def is_newer_before_the_group_is_read(cluster):
    cluster.then_commits = True


def had_another_id_until_its_epochs_ran_out(cluster):
    before_ms = int(NOW.timestamp() * 1000) - 1
    cluster.producers[LEDGER].append(DescribedProducer(Identity(4, 32766), 0, -1, 0, before_ms))


def mirrors_old_records(cluster):
    before_ms = int(NOW.timestamp() * 1000) - 1
    cluster.producers[LEDGER].append(DescribedProducer(Identity(4, 3), 0, -1, 0, before_ms))


def has_another_id(cluster):
    cluster.state = DescribedTransaction("CompleteCommit", Identity(8, 4), 60_000)


def expired(cluster):
    cluster.state = None
    cluster.listed = []


def wrote_more(cluster):
    cluster.producers[OUT] = [DescribedProducer(Identity(9, 3), 12, -1)]


@pytest.mark.parametrize(
    ("happens", "cases"),
    [
        (lambda _: None, []),
        (hangs, ["hanging"]),
        (has_an_owner_that_is_not_listed, ["foreign"]),
        (ends_meanwhile, []),
        (ours_never_ends, ["hanging"]),
        (foreign, ["foreign"]),
        (ours_is_open, []),
        (writes_the_ledger, ["foreign"]),
        (moves_the_group, ["differs"]),
        (loses_the_group, ["differs"]),
        (forgets_the_end, ["differs"]),
        (is_newer, []),
        (is_newer_before_the_group_is_read, []),
        (had_another_id_until_its_epochs_ran_out, []),
        (mirrors_old_records, ["foreign"]),
        (has_another_id, ["differs"]),
        (expired, []),
        (wrote_more, ["differs"]),
    ],
)
def test_the_cluster_says_something_else(happens, cases, monkeypatch):
    monkeypatch.setattr(cluster_view, "_MARKER_MS", 300)
    cluster = Cluster()
    happens(cluster)
    seen = live(ClusterView(cluster, "eos.p", "eos.p", "l"), transactions(history()))
    assert [finding.case for finding in seen.findings] == cases
    audited = AuditResult("p", "l", "/t", [], summary([]), seen.findings, seen)
    newer = {is_newer, is_newer_before_the_group_is_read}
    assert ("differs" in "\n".join(lines(audited))) == ("differs" in cases or happens in newer)
    assert len(as_json(audited)["live"]["fields"]) == len(seen.fields)
