"""What a broker's list of API versions says of it."""

from __future__ import annotations

from types import SimpleNamespace

from support.errors import raises

from eos.deadline import Deadline
from eos.kafka.features import _lacking, profile_of

# Of Kafka 3.6, as far as they are asked for: the oldest that is supported.
OF_3_6 = {0: 9, 9: 8, 22: 4, 24: 4, 25: 3, 26: 3, 28: 3, 65: 0}


def offering(highest: dict[int, int]) -> SimpleNamespace:
    keys = [
        SimpleNamespace(api_key=key, min_version=0, max_version=version)
        for key, version in highest.items()
    ]
    return SimpleNamespace(api_keys=keys)


def test_the_oldest_supported_broker_lacks_nothing():
    assert _lacking(offering(OF_3_6)) == []


def test_a_broker_that_can_not_verify_is_named_for_it():
    """Kafka 3.4: its coordinators answer clients' AddPartitionsToTxn, but no leader's question."""
    assert _lacking(offering({**OF_3_6, 24: 3})) == ["AddPartitionsToTxn version 4"]


def test_each_request_that_is_unknown_or_too_old_is_named():
    without = {key: version for key, version in OF_3_6.items() if key != 65}
    assert _lacking(offering({**without, 0: 8, 26: 2})) == [
        "Produce version 9",
        "EndTxn version 3",
        "DescribeTransactions version 0",
    ]


class Cluster:
    """Three brokers with the same API versions, and without finalized features."""

    def __init__(self, highest: dict[int, int]) -> None:
        self.answer = SimpleNamespace(**vars(offering(highest)), finalized_features=None)

    def query_any(self, _build: object, _deadline: Deadline) -> SimpleNamespace:
        return self.answer

    def query_each(self, _build: object, _deadline: Deadline) -> dict[int, SimpleNamespace]:
        return dict.fromkeys((1, 2, 3), self.answer)


def test_the_remedy_is_right_for_an_old_broker_and_for_another_product():
    """AddPartitionsToTxn 3 is the newest of Kafka 3.4 and of Redpanda: they can't be told apart."""
    with raises("kafka_unsupported_version") as caught:
        profile_of(Cluster({**OF_3_6, 24: 3}), Deadline.after_ms(1000))
    assert "broker 1 does not support AddPartitionsToTxn version 4" in caught.value.message
    assert "transaction.version is below 2" in caught.value.message
    assert "upgrade an Apache Kafka broker older than 3.6" in caught.value.hint
    assert "Other products may lack this in all releases: docs/brokers.md" in caught.value.hint
