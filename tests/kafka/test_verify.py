"""`eos verify` on finished runs: what is right is found right, and what was changed is found."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from support.copies.audit import CopyingPipeline
from support.errors import raises
from support.kafka import kafka_io

from eos.errors import PromiseBrokenError
from eos.finding import FindingKind
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.compression_type import Codec
from eos.verify import ledger, log_reader
from eos.verify.findings import Findings
from eos.verify.ledger import LedgerLog
from eos.verify.log_reader import short_deadline
from eos.verify.source import SourcePartition
from eos.verify.target import Retention


@pytest.fixture
def finished(broker, tmp_path):
    made = []

    def make(**options):
        made.append(
            CopyingPipeline(tmp_path, broker.bootstrap, f"v-{uuid.uuid4().hex[:8]}", **options)
        )
        return made[-1]

    yield make
    for each in made:
        each.close()


def produce(of: CopyingPipeline, topic: str, value: bytes, partition: int = 0) -> None:
    producer = kafka_io.producer(of.bootstrap)
    producer.produce(topic, value, partition=partition)
    assert producer.flush(300) == 0


def witness(told: dict) -> tuple:
    one = told["smallest"]
    return one["case"], one["topic"], one["partition"], one["offset"]


def test_a_clean_run_and_where_it_ended(finished):
    """Micro-batches of many sizes, an attempt that was aborted, and one that is not noted."""
    one = finished(codec=Codec.ZSTD)
    stranger = Producer(
        {"bootstrap.servers": one.bootstrap, "transactional.id": one.name, "log_level": 3}
    )
    stranger.init_transactions(300)
    for is_kept in (True, False):  # the source has markers, and records that nobody reads
        stranger.begin_transaction()
        stranger.produce(one.source, b"5", partition=0)
        assert stranger.flush(300) == 0
        (stranger.commit_transaction if is_kept else stranger.abort_transaction)(300)
    kafka_io.wait_closed(one.bootstrap, one.source)
    with one.running() as run:
        for count in (3, 17, 1):
            one.fill(count)
            run.fails = count == 17
            run.step(is_noted=count != 1)
        run.stop()
    one.audited()
    said = one.verify("--json")
    told = said.json
    assert (said.code, told["findings"]) == (0, [])
    assert told["same"] == [
        "transactions",
        "group offsets",
        "checkpoint",
        "transactional id",
        "no open transaction",
    ]
    assert told["targets"] == {
        f"{one.target}-0": {"records": 22, "receipts": 3},
        f"{one.target}-1": {"records": 21, "receipts": 3},
    }
    first = told["sources"][f"{one.source}-0"]
    assert {name: first[name] for name in ("records", "control", "aborted", "removed")} == {
        "records": 22,
        "control": 2,
        "aborted": 1,
        "removed": 0,
    }
    assert (told["attempts"], told["from_start"]) == (3, True)

    said = one.verify("--dropped", str(one.folder / "dropped"))
    assert (said.code, (one.folder / "dropped").exists()) == (2, False)
    assert "[dropped_without_dedup]" in said.err
    again = one.verify()
    assert again.code == 0
    assert "nothing is newer than ledger offset" in again.out
    assert "--from-start verifies all" in again.out
    one.ran(4, 4)  # the first repeats what was not noted, and is skipped
    newer = one.verify("--json").json
    assert (newer["attempts"], newer["from_start"]) == (1, False)
    assert newer["ledger_first"] == told["ledger_last"] + 1
    assert newer["targets"][f"{one.target}-1"] == {"records": 8, "receipts": 1}
    whole = one.verify("--json", "--from-start").json
    assert (whole["attempts"], whole["counts"]["disagreement"]) == (4, 0)

    point = one.folder / "state" / "verified" / f"{one.planned().names.transactional_id}.json"
    kept = point.read_text()
    point.write_text("{")
    said = one.verify()
    assert said.code == 0
    assert "from the start: " in said.out
    # One that knows of a later record than there is: the ledger lost its end.
    point.write_text(json.dumps({**json.loads(kept), "ledger_offset": 1}))
    assert witness(one.found())[0] == "ledger_lost"
    point.write_text(json.dumps({**json.loads(kept), "identity": [1, 1]}))
    assert witness(one.found())[0] == "ledger_lost"


def test_while_it_runs(finished):
    """Its table is behind for a moment, its checkpoint by a micro-batch, and more comes."""
    one = finished()
    with one.running() as run:
        one.fill(6)
        run.step()
        one.audited()
        one.fill(6)
        run.step(is_noted=False)
        one.audited()
        said = one.verify("--json")
        assert (said.code, said.json["attempts"]) == (0, 2), said


@pytest.mark.long
def test_beside_a_run_that_commits(finished):
    """Whatever a verification meets half done is no finding, and the next one goes on from it."""
    one = finished()
    failed: list[BaseException] = []

    def run_on(run) -> None:
        try:
            for number in range(12):
                one.fill(6)
                run.fails = number % 4 == 1
                run.step()
                one.audited()
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    with one.running() as run:
        one.fill(6)
        run.step()
        one.audited()
        running = threading.Thread(target=run_on, args=(run,))
        running.start()
        beside = []
        while running.is_alive():
            beside.append(one.verify("--json"))
        running.join()
        assert not failed
        beside.append(one.verify("--json"))
    assert [said for said in beside if said.code] == []
    assert sum(said.json["attempts"] for said in beside) == 13
    assert one.verify("--json", "--from-start").json["attempts"] == 13


def test_a_source_that_was_made_anew(finished):
    one = finished().ran(5)
    one.delete(one.source)
    one.create(one.source, 2)
    told = one.found()
    assert "source_recreated" in {each["case"] for each in told["findings"]}


def test_others_records_behind_the_last_and_between(finished):
    one = finished().ran(5)
    produce(one, one.target, b"000000", partition=1)
    one.ran(5)
    produce(one, one.target, b"000000", partition=0)
    told = one.found()
    between = one.attempts()[0]["receipts"][1]["offset_last"] + 2  # the marker is in between
    assert witness(told) == ("foreign", one.target, 1, between)
    assert told["smallest"]["attempt"]["batch_id"] == 1  # its records come next
    assert told["counts"]["foreign"] == 2
    said = one.verify("--allow-foreign")
    assert said.code == 0, said
    assert "foreign (allowed)" in said.out
    assert "allowed before: 2 foreign up to ledger offset" in one.verify("--allow-foreign").out


def test_an_edited_group_offset(finished):
    one = finished().ran(5)
    one.move_group({1: 3})
    told = one.found()
    assert witness(told) == ("group", one.source, 1, 3)
    assert "is 3, but 5 in the ledger" in told["smallest"]["message"]
    one.delete_group()
    assert one.found()["counts"]["disagreement"] == 2


def test_an_edited_audit_row(finished):
    one = finished().ran(5, 5)
    table = DeltaTable(one.table)
    table.update({"records": "records + 1"}, predicate="batch_id = 1 AND target_partition = 0")
    told = one.found()
    last = one.attempts()[1]["offset"]
    assert witness(told) == ("audit_row", one.ledger, 0, last)
    assert "records is 6 in the table, 5 in the ledger" in told["smallest"]["message"]
    table.delete("batch_id = 0 AND target_partition = 1")
    told = one.found()
    assert witness(told) == ("audit_row", one.ledger, 0, one.attempts()[0]["offset"])
    assert "missing in the table" in told["smallest"]["message"]


def last_of_ledger(one: CopyingPipeline) -> dict:
    return json.loads(kafka_io.read(one.bootstrap, one.ledger)[-1].value)


def test_a_ledger_record_by_a_plain_producer(finished):
    one = finished().ran(5)
    body = last_of_ledger(one)
    body["ends"][one.source]["0"] += 1
    at = kafka_io.ends(one.bootstrap, one.ledger)[0]
    produce(one, one.ledger, json.dumps(body).encode())
    with raises("ledger_foreign", PromiseBrokenError):
        one.audited()
    told = one.found()
    assert witness(told) == ("forged", one.ledger, 0, at)
    assert "it is not part of a transaction" in told["smallest"]["message"]


def test_a_ledger_record_in_somebody_elses_transaction(finished):
    """Well formed in every part, and without an identity, as a release before this one wrote it."""
    one = finished().ran(5)
    body = last_of_ledger(one)
    del body["producer_id"], body["epoch"]
    stranger = Producer(
        {"bootstrap.servers": one.bootstrap, "transactional.id": f"{one.name}-x", "log_level": 3}
    )
    stranger.init_transactions(300)
    stranger.begin_transaction()
    at = kafka_io.ends(one.bootstrap, one.ledger)[0]
    stranger.produce(one.ledger, json.dumps({**body, "kind": "refresh"}).encode(), partition=0)
    stranger.commit_transaction(300)
    one.audited()
    told = one.found()
    assert witness(told) == ("forged", one.ledger, 0, at)
    assert "another producer wrote it" in told["smallest"]["message"]


def test_records_that_are_gone_are_never_fine(finished):
    one = finished().ran(5, 5)
    last = one.attempts()[0]["receipts"][0]["offset_last"]
    one.truncate(0, last, one.target)
    told = one.found()
    assert witness(told) == ("retention", one.target, 0, 0)
    assert told["smallest"]["kind"] == "out of reach"
    assert told["counts"]["disagreement"] == 0
    one.truncate(1, 3, one.source)
    assert one.found()["counts"]["out of reach"] == 2
    assert not (one.folder / "state" / "verified").exists()
    said = one.verify("--allow-out-of-reach")
    assert said.code == 0
    assert "out of reach (allowed): retention" in said.out
    again = one.verify()
    assert again.code == 0
    assert "allowed before: 2 out of reach up to ledger offset" in again.out


def test_a_target_that_keeps_everything_and_was_cut_all_the_same(finished):
    one = finished()
    one.set_topic(one.target, retention_ms="-1")
    one.ran(5, 5)
    one.truncate(1, 2, one.target)
    assert witness(one.found()) == ("truncated", one.target, 1, 0)


def test_a_trimmed_ledger_is_told_by_the_table(finished):
    """Records that the ledger forgot are verified by their rows; without rows they are not."""
    one = finished().ran(5, 5, 5)
    offset = one.attempts()[1]["offset"]
    one.truncate(0, offset + 1, one.ledger)
    said = one.verify("--json")
    assert (said.code, said.json["attempts"]) == (0, 3), said
    DeltaTable(one.table).update(
        {"digest": "digest + 1"}, predicate="batch_id = 1 AND target_partition = 0"
    )
    told = one.found("--from-start")
    assert witness(told)[:3] == ("changed", one.target, 0)
    assert told["smallest"]["attempt"]["ledger_offset"] == offset
    DeltaTable(one.table).delete("ledger_offset <= " + str(offset))
    told = one.found("--from-start")  # nobody tells of these any more
    assert {each["case"] for each in told["findings"]} == {"ledger_trimmed"}
    assert {each["kind"] for each in told["findings"]} == {"out of reach"}
    assert one.target in {each["topic"] for each in told["findings"]}


def test_a_ledger_that_is_trimmed_while_it_is_read(finished, monkeypatch):
    one = finished().ran(5, 5, 5)
    first, second, _ = (each["offset"] for each in one.attempts())
    read = LedgerLog.page

    def page(self, start: int, end: int):
        found = read(self, start, end)
        if start <= first < found.end:
            one.truncate(0, second + 1, one.ledger)
        return found

    monkeypatch.setattr(ledger, "RECORDS_MAX", 1)
    monkeypatch.setattr(LedgerLog, "page", page)
    said = one.verify("--json")
    assert (said.code, said.json["attempts"]) == (0, 3), said
    assert kafka_io.read(one.bootstrap, one.ledger)[0].offset > second


def test_a_ledger_that_lost_all_its_records(finished):
    """What the last verification kept, or the table, still tells of them."""
    one = finished().ran(5)
    assert one.verify().code == 0
    one.truncate(0, kafka_io.ends(one.bootstrap, one.ledger)[0], one.ledger)
    assert witness(one.found())[:2] == ("ledger_lost", one.ledger)
    assert witness(one.found("--from-start"))[:2] == ("ledger_lost", one.ledger)


def test_a_table_that_is_gone_and_one_that_is_not_meant(finished):
    one = finished().ran(5)
    shutil.rmtree(one.table)
    told = one.found()
    assert (told["smallest"]["case"], told["smallest"]["kind"]) == ("table_unread", "out of reach")
    profile = Path(one.words[2])
    without = {**json.loads(profile.read_text()), "audit": {"transactions": False}}
    profile.write_text(json.dumps(without))
    said = one.verify("--json")
    assert said.code == 0, said
    assert "transactions" not in said.json["same"]


def test_what_is_no_pipeline(finished):
    one = finished()
    said = one.verify()
    assert said.code == 2
    assert "[ledger_topic_missing]" in said.err


@dataclass
class Cut(SourcePartition):
    """Loses its beginning as soon as something of it was read."""

    client: KafkaClient | None = None

    def see(self, seen) -> None:
        super().see(seen)
        if self.client is not None:
            self.client.delete_records({self.at: 40}, short_deadline())
            self.client = None


def test_retention_while_it_reads(client, topic, monkeypatch):
    """What it took is out of reach, not lost."""
    producer = kafka_io.producer(",".join(client.settings.bootstrap))
    for number in range(300):
        producer.produce(topic, b"%d" % number, partition=0)
        if number % 10 == 9:
            assert producer.flush(300) == 0
    monkeypatch.setattr(log_reader, "_FETCH_BYTES_MAX", 1)  # a record batch at a time
    at, findings = TopicPartition(topic, 0), Findings()
    with closing(log_reader.Reader(client)) as reads:
        source = Cut(at, 0, 60, Retention(), findings, client=client)
        reads.source(source, reads.bounds([at])[at])
    findings.close()
    assert source.removed >= 10
    assert source.records + source.removed == 60
    assert {kind: count for kind, count in findings.counts.items() if count} == {
        FindingKind.GONE: 1
    }
    assert findings.listed[FindingKind.GONE][0].case == "source_retention"
