"""Offsets and what a transaction consists of, on the simulated broker as on the real one."""

from __future__ import annotations

from support.simulated_broker.conformance import BOTH, Script, Scripts, compare

from eos.kafka.api import CommittedOffset, TransactionProfile

script = Scripts()


@script(*BOTH)
def offsets_replace_one_another_until_the_end(s: Script):
    identity = s.init()
    s.offsets(identity, {s.source(): 5})
    s.offsets(identity, {s.source(): 4})
    identity = s.next(s.end(identity, commit=True))
    s.offsets(identity, {s.source(): 6})
    s.init(s.end(identity, commit=False))
    s.look()


@script(*BOTH)
def long_metadata(s: Script):
    identity = s.init()
    s.offsets(identity, {s.source(): CommittedOffset(1, "m" * 4096)})
    s.offsets(identity, {s.source(): CommittedOffset(2, "m" * 4097), s.source(1): 3})
    s.end(identity, commit=True)
    s.init(identity)
    s.look()


@script(*BOTH)
def unknown_topics(s: Script):
    identity = s.init()
    s.add(identity, s.target(), s.gone())
    s.add(identity, s.gone())
    s.offsets(identity, {s.source(): 1, s.gone(): 1})
    s.offsets(identity, {s.gone(): 1})
    s.end(identity, commit=True)
    s.init(identity)
    s.look()


@script(TransactionProfile.TV1)
def tv1_wants_partitions_and_groups_added_first(s: Script):
    identity = s.init()
    s.write(identity, 0, "a", adds=False)
    s.offsets(identity, {s.source(): 1}, adds=False)
    s.write(identity, 0, "a")
    s.write(identity, 0, "x", at=s.target(1), adds=False)
    s.offsets(identity, {s.source(): 1}, adds=False)
    s.end(identity, commit=True)
    s.closed()
    s.write(identity, 1, "late", adds=False)
    s.offsets(identity, {s.source(): 1}, adds=False)
    s.init(identity)
    s.look()


@script(TransactionProfile.TV2)
def tv2_allows_partitions_and_groups_to_be_added_first(s: Script):
    identity = s.init()
    s.add(identity, s.target(), s.target(1))
    s.add_offsets(identity)
    s.write(identity, 0, "a")
    s.offsets(identity, {s.source(): 4})
    identity = s.end(identity, commit=True)
    s.write(identity, 0, "b", at=s.target(1))
    s.init(s.end(identity, commit=True))
    s.look()


@script.each
def test_the_simulated_broker_answers_as_the_real_one(clients, readers_of, request, function, on):
    compare(function, on, clients, readers_of(request.getfixturevalue(on.broker)))
