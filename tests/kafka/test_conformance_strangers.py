"""Requests of the wrong identity, on the simulated broker as on the real one."""

from __future__ import annotations

from support.simulated_broker.conformance import BOTH, NEWER, UPGRADED, Script, Scripts, compare

from eos.kafka.api import TransactionProfile

script = Scripts()


@script(*BOTH)
def a_straggler_of_an_ended_attempt(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    s.write(identity, 0, "x", at=s.target(1))
    after = s.end(identity, commit=False)
    s.closed()
    s.closed(s.target(1))
    s.write(identity, 1, "late", adds=False)
    s.write(identity, 1, "late", at=s.target(1), adds=False)
    s.write(identity, 0, "late", at=s.target(2), adds=False)
    after = s.next(after)
    s.write(identity, 1, "later", adds=False)
    s.write(after, 0, "b")
    s.write(identity, 1, "latest", adds=False)
    s.write(identity, 0, "latest", at=s.target(2), adds=False)
    s.end(after, commit=True)
    s.next(after) if s.profile is TransactionProfile.TV1 else None
    s.look()


@script(*BOTH)
def a_stale_epoch_is_refused_everywhere(s: Script):
    stale = s.init()
    current = s.init()
    s.write(stale, 0, "a", adds=False)
    s.add(stale, s.target())
    s.add_offsets(stale)
    s.offsets(stale, {s.source(): 1}, adds=False)
    s.end(stale, commit=True)
    s.end(stale, commit=False)
    s.init(stale)
    s.write(current, 0, "b")
    s.write(stale, 0, "a", adds=False)
    s.offsets(stale, {s.source(): 1}, adds=False)
    s.end(stale, commit=True)
    s.end(current, commit=True)
    s.init(current)
    s.look()


# Before 4.0 a refused commit takes what the current epoch has pending with it: see test_older.py.
@script(*BOTH, where=(NEWER, UPGRADED))
def a_stale_epochs_offsets_change_nothing(s: Script):
    stale = s.init()
    current = s.init()
    s.offsets(current, {s.source(): 2})
    s.offsets(stale, {s.source(): 3}, adds=False)
    s.end(current, commit=True)
    s.init(current)
    s.look()


@script(*BOTH)
def a_foreign_producer_id_is_refused_everywhere(s: Script):
    own, other = s.init(), s.init(name="other")
    s.write(other, 0, "a", adds=False)
    s.add(other, s.target())
    s.add_offsets(other)
    s.offsets(other, {s.source(): 1}, adds=False)
    s.end(other, commit=True)
    s.end(other, commit=False)
    s.init(other)
    s.write(own, 0, "b")
    s.end(own, commit=True)
    s.init(own)
    s.look()


@script(*BOTH)
def an_unknown_transactional_id(s: Script):
    other = s.init(name="other")
    s.write(other, 0, "a", name="nobody", adds=False)
    s.add(other, s.target(), name="nobody")
    s.add_offsets(other, name="nobody")
    s.offsets(other, {s.source(): 1}, name="nobody", adds=False)
    s.end(other, commit=True, name="nobody")
    s.init(other, name="nobody")
    s.init(other, name="nobody")


@script.each
def test_the_simulated_broker_answers_as_the_real_one(clients, readers_of, request, function, on):
    compare(function, on, clients, readers_of(request.getfixturevalue(on.broker)))
