"""A coordinator on the simulated broker: what the tests of its protocol begin with."""

import pytest

from eos.kafka.api import CommittedOffset, TopicPartition, TransactionProfile
from eos.transaction.coordinator import Coordinator
from support.simulated_broker import SimulatedBroker, SimulatedPort
from support.simulated_broker.kit import Tries, record_batch

BOTH = pytest.mark.parametrize("profile", TransactionProfile)
LEDGER, SOURCE = TopicPartition("ledger", 0), TopicPartition("source", 0)
TARGETS = [TopicPartition("target", number) for number in range(3)]
TIMEOUT_MS = 60_000


def cluster(server=TransactionProfile.TV2):
    return SimulatedBroker({"ledger": 1, "source": 2, "target": 3}, server)


def owner(broker, profile, reached=None):
    return Coordinator(SimulatedPort(broker, profile), "id", "group", TIMEOUT_MS, reached)


def some():
    return Tries(8)


def record(coordinator, value=b"ledger"):
    blob = record_batch(coordinator.identity, 0, [value])
    return coordinator.produce({LEDGER: blob}, some())


def begin(coordinator):
    """With the ledger's word where a producer id ran out of epochs: nobody else was there."""
    if not coordinator.is_judging:
        coordinator.begin(some())
    if coordinator.is_judging:
        coordinator.settled(committed=False)
        coordinator.begin(some())
    return coordinator.identity


def attempt(coordinator, value=b"ledger", end=5):
    """Everything of an attempt except its end."""
    identity = begin(coordinator)
    record(coordinator, value)
    coordinator.commit_offsets({SOURCE: CommittedOffset(end)}, some())
    return identity


def values(broker, at=LEDGER):
    return [entry.blob[-len(b"ledger") - 1 : -1] for entry in broker.read_committed(at)]
