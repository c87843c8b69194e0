"""Ends of transactions, on the simulated broker as on the real one."""

from __future__ import annotations

from support.simulated_broker.conformance import BOTH, Script, Scripts, compare

from eos.kafka.api import TransactionProfile

script = Scripts()


@script(*BOTH)
def a_commit_shows_everything(s: Script):
    identity = s.init()
    s.write(identity, 0, "a", "b")
    s.write(identity, 2, "c")
    s.write(identity, 0, "x", at=s.target(1))
    s.offsets(identity, {s.source(): 7, s.source(1): 9})
    identity = s.end(identity, commit=True)
    identity = s.next(identity)
    s.write(identity, 0, "open", at=s.target(2))
    s.end(identity, commit=True)
    s.next(identity)
    s.look()


@script(*BOTH)
def an_abort_shows_nothing(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    s.offsets(identity, {s.source(): 7})
    identity = s.next(s.end(identity, commit=False))
    s.write(identity, 0, "b")
    s.offsets(identity, {s.source(): 8})
    s.next(s.end(identity, commit=True))
    s.look()


@script(*BOTH)
def an_end_may_be_repeated_but_not_changed(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    s.end(identity, commit=True)
    s.end(identity, commit=True)
    s.end(identity, commit=False)
    identity = s.init(identity)
    s.write(identity, 0, "b")
    s.end(identity, commit=False)
    s.end(identity, commit=False)
    s.end(identity, commit=True)
    s.look()


@script(*BOTH)
def the_epoch_after_an_end_has_nothing_to_end(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    after = s.end(identity, commit=True)
    s.end(after, commit=True)
    after = s.end(after, commit=False)
    s.end(after, commit=True)
    s.end(after, commit=False)
    s.look()


@script(*BOTH)
def an_empty_transaction(s: Script):
    identity = s.init()
    s.end(identity, commit=True)
    after = s.end(identity, commit=False)
    s.end(identity, commit=False)
    s.end(identity, commit=True)
    if s.profile is TransactionProfile.TV2:
        s.write(identity, 0, "late")
        s.write(after, 0, "a")
        s.end(after, commit=True)
    s.look()


@script(*BOTH)
def an_end_below_the_open_epoch_is_refused(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    after = s.next(s.end(identity, commit=True))
    s.write(after, 0, "b")
    s.end(identity, commit=True)
    s.end(identity, commit=False)
    s.end(after, commit=True)
    s.look()


@script(TransactionProfile.TV1)
def tv1_keeps_the_epoch_through_an_end(s: Script):
    identity = s.init()
    s.write(identity, 0, "a")
    s.end(identity, commit=True)
    s.write(identity, 1, "b")
    s.write(identity, 0, "a", adds=False)
    s.end(identity, commit=True)
    s.init(identity)
    s.look()


@script.each
def test_the_simulated_broker_answers_as_the_real_one(clients, readers_of, request, function, on):
    compare(function, on, clients, readers_of(request.getfixturevalue(on.broker)))
