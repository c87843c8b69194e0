"""Records of the ledger that the pipeline did not write: refused everywhere, and decided about by
an operator."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from support.copies.recovery import WAIT_S, Pipeline, soon
from support.kafka import kafka_io
from support.verbs import status

from eos.audit.projection import Projection
from eos.errors import PromiseBrokenError
from eos.kafka.api import TopicPartition
from eos.ledger.record import LedgerRecord


def values(pipeline: Pipeline) -> list[bytes]:
    return [each.value for each in kafka_io.read(pipeline.bootstrap, ledger(pipeline))]


def ledger(pipeline: Pipeline) -> str:
    return pipeline.planned().names.ledger


def plain(pipeline: Pipeline, *bodies: bytes) -> int:
    """What any producer with the right to write can do. The last record's offset."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "log_level": 3})
    for body in bodies:
        producer.produce(ledger(pipeline), body, partition=0)
        assert producer.flush(WAIT_S) == 0
    return kafka_io.ends(pipeline.bootstrap, ledger(pipeline))[0] - 1


def forged(pipeline: Pipeline, **fields: Any) -> int:
    body = json.loads(values(pipeline)[-1])
    body["ends"][pipeline.source] = {"0": 0, "1": 0}  # all of it would be written again
    return plain(pipeline, json.dumps({**body, **fields}).encode())


def audited(pipeline: Pipeline) -> list[LedgerRecord]:
    client, names = pipeline.asks, pipeline.planned().names
    (end,) = pipeline.ledger_ends().values()
    made = Projection(None, client, names.pipeline, names.ledger)
    return made._read_chunk(0, end, soon()).records


def refused(ask: Any, offset: int, case: str = "ledger_foreign") -> PromiseBrokenError:
    with pytest.raises(PromiseBrokenError) as caught:
        ask()
    assert (caught.value.code, caught.value.fields["offset"]) == (case, offset)
    assert f"offset {offset} of the ledger '" in caught.value.message
    return caught.value


def test_every_record_names_the_identity_of_its_transaction(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    assert pipeline.recover("--set-checkpoint-aside", "--yes").code == 0
    found = [json.loads(each) for each in values(pipeline)]
    assert [each["kind"] for each in found] == ["start", "attempt", "stop", "recovery"]
    at, (end,) = TopicPartition(ledger(pipeline), 0), pipeline.ledger_ends().values()
    stored = pipeline.asks.read_records(at, 0, end, committed=True, deadline=soon())
    own = [(each["producer_id"], each["epoch"]) for each in found]
    assert own == [(each.producer_id, each.epoch) for each in stored]


def test_a_plain_producers_record_stops_every_reader_until_it_is_skipped(
    pipeline: Pipeline,
) -> None:
    pipeline.ran(5, 3)
    own = pipeline.last()
    offset = forged(pipeline)
    error = refused(lambda: pipeline.running().__enter__(), offset)
    assert "not part of a transaction (producer id -1)" in error.message
    assert f"eos recover {pipeline.name}" in error.hint
    refused(lambda: status(pipeline.words), offset)
    refused(lambda: audited(pipeline), offset)

    said = pipeline.explained()
    assert (said.code, said.cases) == (1, ["ledger_foreign"]), said
    (finding,) = said.json["findings"]
    ways = [each["command"].rpartition(" ")[2] for each in finding["ways"]]
    assert ways == ["--skip-foreign", "--accept-ledger"]
    assert said.json["ledger"]["last"]["offset"] == own.offset
    for verb in ("--set-checkpoint-aside", "--restore-group", "--from-group"):
        assert pipeline.recover(verb).code == 4, verb

    did = pipeline.did("--skip-foreign")
    assert (did["ends"], did["fresh_checkpoint"]) == ({}, False)
    assert did["foreign_until"] == offset + 1
    assert pipeline.last().position == own.position
    assert pipeline.explained().code == 0
    assert status(pipeline.words) == 0
    assert [each.kind for each in audited(pipeline)][-2:] == ["stop", "recovery"]
    pipeline.fill(2)
    with pipeline.running() as run:
        assert run.location.endswith("/0001")
        run.step()
        assert set(run.read[0].starts.values()) == {8}
    assert "nothing to do" in pipeline.recover("--skip-foreign").out


@pytest.mark.parametrize("checkpoint", ["../../..", "0001/.."])
def test_a_checkpoint_outside_of_the_state_root_is_refused(
    pipeline: Pipeline, checkpoint: str
) -> None:
    """Even of a ledger that replication copied."""
    pipeline.ran(5)
    offset = forged(pipeline, checkpoint=checkpoint)
    refused(lambda: pipeline.running().__enter__(), offset)
    said = pipeline.recover("--accept-ledger")
    assert said.code == 2
    assert f"checkpoint is '{checkpoint}'" in said.err


def test_a_running_pipeline_stops_at_its_next_commit(pipeline: Pipeline) -> None:
    pipeline.fill(5)
    with pipeline.running() as run:
        run.step()
        offset = forged(pipeline)
        pipeline.fill(1)
        refused(run.step, offset)


def test_one_between_own_records_stops_no_startup_but_other_readers(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    with pipeline.running() as run:
        offset = plain(pipeline, b"{}")
        run.batches.ledger._end = None  # a release that did not look
        run.stop()
    assert pipeline.last().kind == "stop"
    said = pipeline.explained()
    assert said.code == 0, said
    (warning,) = said.json["warnings"]
    assert f"offset {offset} of the ledger" in warning
    refused(lambda: status(pipeline.words), offset)
    refused(lambda: audited(pipeline), offset)
    pipeline.did("--skip-foreign")
    assert pipeline.explained().json["warnings"] == []
    assert status(pipeline.words) == 0
    assert [each.kind for each in audited(pipeline)][-2:] == ["stop", "recovery"]


@pytest.fixture
def copied(pipeline: Pipeline) -> Pipeline:
    """Its ledger was lost, and a copy was put in its place by a plain producer."""
    pipeline.ran(5, 3)
    bodies = values(pipeline)
    pipeline.delete(ledger(pipeline))
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    pipeline.asks.create_topic(ledger(pipeline), 1, 1, kept, soon())
    plain(pipeline, *bodies)
    return pipeline


def test_a_copied_ledger_is_accepted_by_an_operator_only(copied: Pipeline) -> None:
    said = copied.explained()
    assert (said.code, said.cases) == (1, ["ledger_foreign"]), said
    (finding,) = said.json["findings"]
    assert [each["command"].rpartition(" ")[2] for each in finding["ways"]] == ["--accept-ledger"]
    assert "no record that this pipeline wrote" in copied.recover().out
    assert copied.recover("--skip-foreign").code == 2

    did = copied.did("--accept-ledger")
    assert did["ends"] == {copied.source: {"0": [None, 8], "1": [None, 8]}}
    assert "no transaction proves who wrote it" in did["says"][0]
    assert (copied.last().kind, copied.last().position.is_reset) == ("recovery", True)
    assert copied.explained().code == 0
    assert [each.kind for each in audited(copied)] == ["recovery"]
    copied.fill(2)
    with copied.running() as run:
        assert run.location.endswith("/0002")
        run.step()
        assert set(run.read[0].starts.values()) == {8}


def test_a_copied_ledger_of_a_source_that_has_other_offsets_is_refused(copied: Pipeline) -> None:
    copied.delete(copied.source)
    copied.create(copied.source, 2)
    copied.fill(3)
    said = copied.recover("--accept-ledger")
    assert said.code == 2
    assert "which has 0 to 3" in said.err
    copied.fill(9)
    did = copied.did("--accept-ledger")
    assert any("right only if replication kept them" in each for each in did["says"])
    assert list(did["topic_ids"]) == [copied.source]
