"""A timed-out transaction, on the simulated broker as on a real one that looks for it often."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.conformance import Script, answers
from support.worlds import Readers, RealWorld, SimulatedWorld, reading

from eos.deadline import Deadline
from eos.launch.embedded import EmbeddedKafka
from eos.transaction.port import Profile
from eos.transaction.wire import Wire


def a_timed_out_transaction(s: Script) -> None:
    """Its owner may go on with (id, epoch); TV1 requests of the old epoch are refused as fenced."""
    identity = s.init(timeout_ms=1000)
    s.write(identity, 0, "a")
    s.offsets(identity, {s.source(): 1})
    s.closed(after_ms=1000)
    s.write(identity, 1, "late", adds=False)
    s.add(identity, s.target())
    s.add_offsets(identity)
    s.offsets(identity, {s.source(): 2}, adds=False)
    s.end(identity, commit=True)
    s.end(identity, commit=False)
    after = s.init(identity)
    s.init(identity)
    s.write(after, 0, "b")
    s.init(s.end(after, commit=True))
    s.look()


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    """A broker that looks for timed-out transactions five times a second, not every ten."""
    looks = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    root = tmp_path_factory.mktemp("impatient")
    with EmbeddedKafka(root, config=looks) as kafka, reading(kafka.bootstrap, 2) as made:
        yield made


@pytest.mark.parametrize("profile", Profile)
def test_a_timeout_ends_a_transaction_as_it_does_for_real(
    wires: Callable[..., Wire], impatient: Readers, profile: Profile
) -> None:
    world = RealWorld(wires(profile, impatient.bootstrap), impatient)
    real = answers(world, a_timed_out_transaction)
    assert answers(SimulatedWorld(profile), a_timed_out_transaction) == real


def test_the_scripts_run_on_a_cluster_like_the_simulated_one(wire: Wire) -> None:
    """Its own transaction version decides how it ends what a client left open."""
    assert wire.transaction_version(Deadline.after_ms(20_000)) == 2
