"""A TV1 writer adds its partitions before it sends: what it does when that does not go well."""

from __future__ import annotations

import pytest
from support.errors import raises
from support.simulated_broker.runs import TARGETS, WriterRun
from support.simulated_broker.wire import Lose, Refuse

from eos.errors import AttemptFailedError, KafkaRefusedError, UnavailableError
from eos.kafka.api import TransactionProfile

A0, A1 = TARGETS.partitions[0], TARGETS.partitions[1]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, AttemptFailedError) for code in (47, 48, 49, 90, 120, -1, 999)),
        *((code, KafkaRefusedError) for code in (29, 53)),
    ],
)
def test_a_partition_that_can_not_be_added_gets_nothing(code, kind):
    run = WriterRun(profile=TransactionProfile.TV1, adds=[Refuse(51), Refuse(code)])
    run.add(0)
    run.add(3)
    with pytest.raises(kind, match=rf"\({code}\) to AddPartitionsToTxn for (a-0|b-0)"):
        run.writer.finish()
    assert run.client.sent == []
    assert run.check_log() == 0


@pytest.mark.parametrize(
    ("happens", "kind", "words"),
    [
        (Refuse(51), UnavailableError, r"CONCURRENT_TRANSACTIONS \(51\) to AddPartitionsToTxn"),
        (Refuse(3), KafkaRefusedError, r"UNKNOWN_TOPIC_OR_PARTITION \(3\)"),
        (Lose(), UnavailableError, "AddPartitionsToTxn had no response.*the connection broke"),
    ],
)
def test_what_keeps_a_partition_out_until_the_deadline_is_named(happens, kind, words):
    run = WriterRun(profile=TransactionProfile.TV1, adds=[happens] * 500, pauses_max=20)
    run.add(0)
    with pytest.raises(kind, match=words):
        run.writer.finish()
    assert len(run.client.asked_to_add) == 20
    assert run.client.sent == []


def test_partitions_are_added_together_and_once_and_later_ones_when_they_come():
    run = WriterRun(profile=TransactionProfile.TV1, adds=[Lose(is_carried_out=True)])
    run.add(0)
    run.add(1)
    run.writer.advance()
    run.add(1)
    run.add(3)
    run.check_receipts(run.writer.finish())
    assert run.client.asked_to_add == [frozenset({A0, A1})] * 2 + [
        frozenset({TARGETS.partitions[3]})
    ]


def test_a_partition_that_was_written_to_is_not_even_added():
    run = WriterRun(profile=TransactionProfile.TV1)
    run.add(1)
    run.writer.finish()
    again = WriterRun(profile=TransactionProfile.TV1)
    again.broker = again.client.broker = run.broker
    again.identity = again.writer._identity = run.identity
    again.add(1, records=2)
    with raises("epoch_already_used"):
        again.writer.finish()
    assert again.client.asked_to_add == []
