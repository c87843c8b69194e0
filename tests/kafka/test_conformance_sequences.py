"""Sequences of record batches, on the simulated broker as on the real one."""

from __future__ import annotations

from support.simulated_broker.conformance import BOTH, Script, Scripts, compare

from eos.kafka.api import TransactionProfile

script = Scripts()


@script(*BOTH)
def a_remembered_range_is_acknowledged_whatever_its_bytes(s: Script):
    identity = s.init()
    s.write(identity, 0, "a", "b")
    s.write(identity, 0, "other", "bytes")
    s.write(identity, 0, "shorter")
    s.write(identity, 1, "inside")
    s.write(identity, 4, "hole")
    for number in range(2, 7):
        s.write(identity, number, f"{number}")
    s.write(identity, 0, "forgotten", "by now")
    s.write(identity, 2, "still remembered")
    s.end(identity, commit=True)
    s.next(identity) if s.profile is TransactionProfile.TV1 else None
    s.look()


@script(*BOTH)
def a_first_sequence_above_0(s: Script):
    identity = s.init()
    s.write(identity, 5, "f")
    s.write(identity, 0, "a")
    s.write(identity, 6, "g")
    s.end(identity, commit=True)
    s.init(identity)
    s.look()


@script(*BOTH)
def each_epoch_begins_at_0(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    identity = s.next(s.end(identity, commit=True))
    s.write(identity, 1, "goes on")
    s.write(identity, 0, "b")
    s.write(identity, 1, "c")
    s.next(s.end(identity, commit=True))
    s.look()


@script(TransactionProfile.TV1)
def sequences_wrap(s: Script):
    """Under TV1, since TV2 lets no producer begin near the end."""
    identity = s.init()
    s.write(identity, 2**31 - 3, "y")
    s.write(identity, 2**31 - 2, "z", "a", "b")
    s.write(identity, 2**31 - 2, "z", "a", "b")
    s.write(identity, 1, "b?")
    s.write(identity, 2, "c")
    s.write(identity, 2**31 - 2, "y", "z", at=s.target(1))
    s.write(identity, 0, "a", at=s.target(1))
    s.end(identity, commit=True)
    s.init(identity)
    s.look()


@script(*BOTH)
def a_damaged_record_batch(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    s.write(identity, 1, "b", damaged=True)
    s.write(identity, 1, "b")
    s.init(s.end(identity, commit=True))
    s.look()


@script.each
def test_the_simulated_broker_answers_as_the_real_one(clients, readers_of, request, function, on):
    compare(function, on, clients, readers_of(request.getfixturevalue(on.broker)))
