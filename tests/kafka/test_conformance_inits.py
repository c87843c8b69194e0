"""Inits, on the simulated broker as on the real one: who gets which identity, and what they end."""

from __future__ import annotations

from support.simulated_broker.conformance import BOTH, Script, Scripts, compare

from eos.kafka.api import Identity

script = Scripts()


@script(*BOTH)
def inits_with_id_and_epoch(s: Script):
    first = s.init()
    second = s.init(first)
    s.init(first)
    s.init(first)
    third = s.init(second)
    s.init(first)
    s.init(second)
    taken = s.init()
    s.init(third)
    s.init(second)
    s.init(taken)
    s.init(Identity(taken.producer_id, taken.epoch + 5))


@script(*BOTH)
def inits_that_can_not_be_meant(s: Script):
    identity = s.init()
    s.init(name="")
    s.init(timeout_ms=900_001)
    s.init(timeout_ms=0)
    s.init(Identity(identity.producer_id, -1))
    s.init(Identity(-1, 0))


@script(*BOTH)
def our_own_init_ends_our_open_transaction(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    s.offsets(identity, {s.source(): 1})
    after = s.init(identity)
    s.state()
    s.write(identity, 1, "late", adds=False)
    s.end(identity, commit=True)
    after = after if after.epoch >= 0 else s.init()
    s.write(after, 0, "b")
    s.end(after, commit=True)
    s.init(after)
    s.look()


@script(*BOTH)
def a_takeover_ends_the_open_transaction(s: Script):
    former = s.init()
    s.write(former, 0, "a")
    s.offsets(former, {s.source(): 1})
    s.state()
    newer = s.init()
    s.state()
    s.write(former, 1, "late", adds=False)
    s.end(former, commit=True)
    s.end(former, commit=False)
    s.init(former)
    s.write(newer, 0, "b")
    s.end(newer, commit=True)
    s.init(newer)
    s.look()


@script(*BOTH)
def an_init_of_a_replaced_owner_while_the_newer_ones_transaction_is_open(s: Script):
    former = s.init()
    newer = s.init()
    s.write(newer, 0, "a")
    s.init(former)
    s.state()
    s.end(newer, commit=True)
    s.init(newer)
    s.state()
    s.look()


@script.each
def test_the_simulated_broker_answers_as_the_real_one(clients, readers_of, request, function, on):
    compare(function, on, clients, readers_of(request.getfixturevalue(on.broker)))
