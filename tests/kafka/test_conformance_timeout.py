"""A timed-out transaction, on the simulated broker as on real ones that look for it often."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.kafka.brokers import LOOKS_OFTEN
from support.simulated_broker.conformance import (
    NEWER,
    OLDER,
    UPGRADED,
    On,
    Readers,
    Script,
    compare,
    reading,
)

from eos.deadline import Deadline
from eos.kafka.client import KafkaClient
from eos.local.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.long

# What comes before it is over has to come before it is over, on a busy machine, too.
TIMEOUT_MS = 5_000


def a_timed_out_transaction(s: Script) -> None:
    """On TV2 clusters its owner may go on with (id, epoch), on TV1 clusters nobody may: there the
    coordinator's word tells it from a takeover."""
    identity = s.init(timeout_ms=TIMEOUT_MS)
    s.write(identity, 0, "a")
    s.offsets(identity, {s.source(): 1})
    s.state()
    s.closed(after_ms=TIMEOUT_MS)
    s.state()
    s.write(identity, 1, "late", adds=False)
    s.add(identity, s.target())
    s.add_offsets(identity)
    s.offsets(identity, {s.source(): 2}, adds=False)
    s.end(identity, commit=True)
    s.end(identity, commit=False)
    after = s.init(identity)
    s.init(identity)
    s.state()
    after = after if after.epoch >= 0 else s.init()
    s.write(after, 0, "b")
    s.init(s.end(after, commit=True))
    s.look()


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    root = tmp_path_factory.mktemp("impatient")
    with EmbeddedKafka(root, config=LOOKS_OFTEN) as kafka, reading(kafka.bootstrap, 2) as made:
        yield made


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    """Newer brokers that were not told that all of them are: they end what is left open as older
    ones do."""
    root, features = tmp_path_factory.mktemp("unfinished"), {"transaction.version": 1}
    with (
        EmbeddedKafka(root, config=LOOKS_OFTEN, features=features) as kafka,
        reading(kafka.bootstrap, 1) as made,
    ):
        yield made


@pytest.fixture
def older(readers_of: Callable[[EmbeddedKafka], Readers], older_broker: EmbeddedKafka) -> Readers:
    return readers_of(older_broker)


@pytest.mark.usefixtures("readers_of")  # which counts the scripts that ask for it by name
@pytest.mark.parametrize(
    ("on", "where", "version"),
    [
        (NEWER, "impatient", 2),
        (UPGRADED, "impatient", 2),
        (OLDER, "unfinished", 1),
        (OLDER, "older", 0),
    ],
    ids=["TV2", "TV1-upgraded", "TV1-unfinished", "TV1-older"],
)
def test_a_timeout_ends_a_transaction_as_it_does_for_real(
    clients: Callable[..., KafkaClient],
    request: pytest.FixtureRequest,
    on: On,
    where: str,
    version: int,
) -> None:
    readers: Readers = request.getfixturevalue(where)
    compare(a_timed_out_transaction, on, clients, readers)
    looking, deadline = clients(None, readers.bootstrap), Deadline.after_ms(120_000)
    assert looking.transaction_version(deadline) == version
    assert looking.agree_on_profile(deadline) is looking.profile is on.server
