"""What a broker's list of API versions says of it."""

from __future__ import annotations

from types import SimpleNamespace

from eos.kafka.features import _lacking

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
