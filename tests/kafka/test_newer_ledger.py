"""A ledger that a newer release wrote in its own format: no verb of this release skips a record of
it, and none writes after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.copies.recovery import WAIT_S, Pipeline, soon
from support.errors import raises
from support.kafka import kafka_io
from support.verbs import status, verify

import eos
from eos.audit.projection import Projection
from eos.errors import PromiseBrokenError
from eos.ledger import decoder, record
from eos.ledger.ledger import CONFIG
from eos.startup.acquire import ledger_of


@contextmanager
def newer_release(writes: int) -> Iterator[None]:
    """This process is a release that reads format 2, and writes this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "FORMAT", 2)
        patch.setattr(record, "FORMAT", writes)
        patch.setattr(eos, "__version__", "9.9.0")
        yield


def audited(pipeline: Pipeline) -> None:
    client, names = pipeline.asks, pipeline.planned().names
    (end,) = pipeline.ledger_ends().values()
    Projection(None, client, names.pipeline, names.ledger)._read_chunk(0, end, soon())


def test_an_older_release_neither_starts_nor_skips_its_records(pipeline: Pipeline) -> None:
    pipeline.ran(3)
    with newer_release(writes=2):
        pipeline.ran(2)
        last = pipeline.last().offset
    ends = pipeline.ledger_ends()
    with raises("ledger_newer", PromiseBrokenError) as caught:
        pipeline.running().__enter__()
    assert caught.value.fields["offset"] == last
    assert "9.9.0 wrote it in format 2" in caught.value.message
    assert "upgrade this installation to release 9.9.0 or later" in caught.value.hint
    for read in (status, verify):
        with raises("ledger_newer"):
            read(pipeline.words)
    with raises("ledger_newer"):
        audited(pipeline)
    for words in ((), ("--skip-foreign",), ("--accept-ledger",), ("--rewind-to", "0")):
        said = pipeline.recover(*words, *(["--yes"] if words else []))
        assert (said.code, "[ledger_newer]" in said.err) == (4, True), said
    assert pipeline.ledger_ends() == ends
    with newer_release(writes=2):
        pipeline.ran(1)


def test_a_release_that_still_writes_the_older_format_can_be_rolled_back(
    pipeline: Pipeline,
) -> None:
    with newer_release(writes=1):
        pipeline.ran(3)
    pipeline.ran(2)
    assert pipeline.ends() == {pipeline.source: {"0": 5, "1": 5}}


def test_a_copied_record_of_a_newer_release_is_not_accepted(pipeline: Pipeline) -> None:
    """A copy has no transaction, so it counts as another producer's record."""
    with newer_release(writes=2):
        pipeline.ran(3)
        topic = pipeline.planned().names.ledger
        copied = kafka_io.read(pipeline.bootstrap, topic)[-1].value
    pipeline.delete(topic)
    pipeline.asks.create_topic(topic, 1, 1, CONFIG, soon())
    producer = kafka_io.producer(pipeline.bootstrap)
    producer.produce(topic, copied, partition=0)
    assert producer.flush(WAIT_S) == 0
    said = pipeline.recover("--accept-ledger", "--yes")
    assert (said.code, "[ledger_newer]" in said.err) == (4, True), said


def test_no_decision_of_an_operator_covers_a_newer_record(pipeline: Pipeline) -> None:
    with newer_release(writes=2):
        pipeline.ran(3)
        last = pipeline.last().offset
    with newer_release(writes=1), pipeline.running() as run:
        run.batches.note("recovery", note={"foreign_until": last + 1})
        run.settled()
    assert pipeline.last().kind == "recovery"
    with raises("ledger_newer") as caught:
        ledger_of(pipeline.planned(), pipeline.asks, skips_foreign=True).history(9, soon())
    assert caught.value.fields["offset"] >= last
    with raises("ledger_newer"):
        audited(pipeline)
    with raises("ledger_newer"):
        verify(pipeline.words)
