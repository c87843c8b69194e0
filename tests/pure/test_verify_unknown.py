"""What `eos verify` can't know is out of reach, and no damage."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from eos.deadline import Deadline
from eos.finding import FindingKind, Witness
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.cluster import TopicInfo
from eos.verify.chain import CommitChain
from eos.verify.dropped_records import DropCheck
from eos.verify.findings import Findings
from eos.verify.history import CommittedAttempt
from eos.verify.source_logs import Log, SourceLogs, SourceRange
from eos.verify.stamps import Stamps, hash_of
from eos.verify.target import LogBounds, Retention
from eos.verify.verify import Verification

STATES = f"4/{'a' * 12}/17"
IN, OUT = TopicPartition("in", 0), TopicPartition("out", 0)


def committed(
    number: int,
    start: int,
    end: int,
    kind: str = "attempt",
    dropped: int = 0,
    spans: tuple = (),
    topic_id: str = "",
    producers: str = "",
) -> CommittedAttempt:
    told = Witness(number, kind, number, 1, Identity(5, number))
    ranges = {IN: (start, end)} if kind == "attempt" else {}
    verdicts = {"verdicts": {"duplicate": dropped}, "producers": spans} if dropped else {}
    ids = {"in": topic_id} if topic_id else {}
    return CommittedAttempt(told, ranges, None, [], verdicts, None, ids, producers)


class Silent:
    def expects(self, offsets: int) -> None:
        pass


def test_the_range_behind_trimmed_records_has_no_gap() -> None:
    chain = CommitChain()
    assert list(chain.see(committed(1, 0, 5))) == []
    chain.forget_trimmed()
    assert list(chain.see(committed(7, 40, 50))) == []
    assert [each.case for each in chain.see(committed(8, 51, 60))] == ["gap"]


def test_only_epochs_before_the_next_known_one_may_be_trimmed() -> None:
    chain = CommitChain()
    list(chain.see(committed(1, 0, 5)))
    assert not chain.owners.may_be_trimmed(Identity(5, 2))
    chain.forget_trimmed()
    list(chain.see(committed(7, 40, 50)))
    epochs = [epoch for epoch in range(10) if chain.owners.may_be_trimmed(Identity(5, epoch))]
    assert epochs == [0, 1, 2, 3, 4, 5, 6]  # of these, 1 is known to have committed
    assert not chain.owners.may_be_trimmed(Identity(6, 0))


def repeating(*, is_spread: bool = False, rules: str = "") -> DropCheck:
    """A check of a log whose offset 10 repeats offset 2."""
    numbers = np.arange(20)
    numbers[10] = 2
    every = np.full(20, hash_of("a"), np.int64)
    stamps = Stamps(every, np.zeros(20, np.int64), numbers, np.arange(20))

    def log(wanted: SourceRange) -> Log:
        return Log(lambda: iter([stamps.where(stamps.offset < wanted.end)]), lambda: False)

    return DropCheck(Findings(), log, rules, is_spread=is_spread)


def cases(check: DropCheck) -> list[tuple[FindingKind, str]]:
    check.prove()
    listed = check.findings.listed.items()
    return [(kind, each.case) for kind, findings in listed for each in findings]


SPAN = ("in", 0, "a", "duplicate", 1, 10, 10)


@pytest.mark.parametrize("spans", [(), (SPAN,)])
@pytest.mark.parametrize("is_spread", [False, True])
@pytest.mark.parametrize("is_cut", [False, True])
def test_the_first_copy_may_be_in_trimmed_records(is_cut, is_spread, spans) -> None:
    """No known transaction read offset 2."""
    check = repeating(is_spread=is_spread)
    check.is_cut = is_cut
    check.see(committed(7, 10, 20, dropped=1, spans=spans))
    kind = FindingKind.GONE if is_cut else FindingKind.WRONG
    assert cases(check) == [(kind, "unproven")]


@pytest.mark.parametrize(("producers", "kind"), [(STATES, "GONE"), ("", "WRONG")])
def test_the_first_copy_may_be_in_records_of_a_copied_ledger(producers, kind) -> None:
    """Its transactions are not known, but dedup's states may have been copied along."""
    check = repeating()
    witness = Witness(6, "recovery", -1, None, Identity(5, 6))
    ranges = {IN: (10, 10)}
    accepted = CommittedAttempt(witness, ranges, {IN: 10}, [], producers=producers, is_copied=True)
    check.see(accepted)
    check.see(committed(7, 10, 20, dropped=1, spans=(SPAN,)))
    assert cases(check) == [(FindingKind[kind], "unproven")]


def test_drops_under_other_settings_of_dedup_are_not_verified() -> None:
    """The stamps of that time can't be read with the file's present settings."""
    check = repeating(rules="b" * 12)
    check.see(committed(1, 0, 10))
    check.see(committed(7, 10, 20, dropped=1, spans=(SPAN,), producers=STATES))
    assert cases(check) == [(FindingKind.GONE, "dropped_unread")]
    check = repeating(rules="a" * 12)
    check.see(committed(1, 0, 10))
    check.see(committed(7, 10, 20, dropped=1, spans=(SPAN,), producers=STATES))
    assert cases(check) == []


class ChangedTopic:
    """A reader's view of topics of which one has been deleted and recreated."""

    def __init__(self, topic_id: str) -> None:
        self.client = self
        self.topic_id, self.read, self.start = topic_id, 0, 0

    def topics(self, names: Collection[str], _deadline: Deadline) -> dict[str, TopicInfo]:
        return {name: TopicInfo(self.topic_id, 1, 0 if self.topic_id else 3) for name in names}

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds]:
        return {tp: LogBounds(self.start, 3, 3) for tp in partitions}

    def retention(self, _topic: str) -> Retention:
        return Retention()

    def source(self, *_: object) -> None:
        self.read += 1

    def stamps(self, *_: object) -> Iterator[Stamps]:
        self.read += 1
        self.start = 1  # retention deletes the first record meanwhile
        yield Stamps(*(np.zeros(0, np.int64),) * 4)


@pytest.mark.parametrize("now", ["new", ""])
@pytest.mark.parametrize("is_spread", [False, True])
def test_drops_of_a_forgotten_topic_are_no_damage(now, is_spread) -> None:
    """The topic of that name has other records now, or is gone. But dedup's states are kept."""
    reader: Any = ChangedTopic(now)
    findings, places = Findings(), cast(Any, "unused")
    logs = SourceLogs(reader, findings, Silent(), places)
    check = DropCheck(findings, logs.stamps, is_spread=is_spread)
    check.see(committed(1, 0, 10, topic_id="old"))
    check.see(committed(2, 10, 20, dropped=1, spans=(SPAN,), topic_id="old"))
    check.see(committed(3, 0, 0, "recovery"))
    assert cases(check) == [(FindingKind.GONE, "unproven")]
    assert not reader.read, "the log of another topic proves nothing"
    check.see(committed(4, 0, 3, dropped=1, topic_id="new"))
    assert cases(check) == [(FindingKind.GONE, "unproven")] * 2
    assert check.forgotten == {"in"}


def test_the_first_copy_may_be_deleted_while_the_log_is_read() -> None:
    reader: Any = ChangedTopic("new")
    logs = SourceLogs(reader, Findings(), Silent(), cast(Any, "unused"))
    assert not logs.stamps(SourceRange(IN, 0, 3, "new")).is_cut()
    check = DropCheck(Findings(), logs.stamps)
    check.see(committed(1, 0, 3, dropped=1, topic_id="new"))
    assert cases(check) == [(FindingKind.GONE, "unproven")]


def test_only_the_last_id_of_a_topic_is_compared() -> None:
    findings, reader = Findings(), cast(Any, ChangedTopic("new"))
    logs = SourceLogs(reader, findings, Silent(), None)
    assert len(logs.check({IN: (0, 3)}, {"in": "new"})) == 1
    assert not findings.counts
    assert logs.check({IN: (0, 3)}, {"in": "old"}) == []
    (finding,) = findings.listed[FindingKind.WRONG]
    assert (finding.case, finding.at) == ("source_recreated", IN)
    assert "its id is new, the ledger's offsets are of old" in finding.message


def test_a_partition_that_a_rewind_leaves_out_is_not_forgotten() -> None:
    """The record of that position is older than the partition, or than its whole topic."""
    more, added = TopicPartition("in", 1), TopicPartition("added", 0)
    chain, check = CommitChain(), DropCheck(Findings(), None)
    witness = Witness(2, "recovery", -1, None, Identity(5, 2))
    every = {IN: (0, 5), more: (0, 2), added: (0, 1)}
    begun = Witness(1, "attempt", 1, 1, Identity(5, 1))
    read = CommittedAttempt(begun, every, None, [])
    ids = {"in": "a", "added": "b"}  # a rewind keeps them
    rewound = CommittedAttempt(witness, {IN: (3, 3)}, {IN: 3}, [], topic_ids=ids)
    for each in (read, rewound):
        assert not list(chain.see(each))
        check.see(each)
    assert chain.covered == every
    assert check.covered == {tp: [covered] for tp, covered in every.items()}
    assert not check.forgotten


def test_records_of_a_topic_that_was_forgotten_prove_nothing() -> None:
    check = DropCheck(Findings(), None)
    check.see(committed(1, 0, 5))
    assert check.covered == {IN: [(0, 5)]}
    check.see(committed(2, 0, 0, "recovery"))
    check.see(committed(3, 0, 3))
    assert check.covered == {IN: [(0, 3)]}
    assert check.forgotten == {"in"}


def test_a_target_that_the_last_verification_did_not_know_has_not_begun() -> None:
    """Records that others wrote before the pipeline's first one are no finding there."""
    point = SimpleNamespace(targets={OUT: 5})
    resumed: Any = SimpleNamespace(_point=point, _chain=CommitChain(), _findings=Findings())
    assert Verification._target(resumed, OUT, 5).has_begun
    assert not Verification._target(resumed, IN, 0).has_begun


@pytest.mark.parametrize(("owner", "is_awaited"), [("eos.p", True), ("other", False), ("", False)])
def test_a_late_marker_of_the_pipelines_own_transaction_is_awaited(
    owner: str, is_awaited: bool
) -> None:
    """Its records are committed, so they are not hidden from readers."""
    ends = iter([3, 10])
    cluster = SimpleNamespace(
        transactional_id="eos.p",
        producers=lambda _: {},
        open_transactions=lambda *_, **__: [SimpleNamespace(hangs=True, owner=owner)],
    )
    reader = SimpleNamespace(bounds=lambda tps: {tps[0]: LogBounds(0, next(ends), 10)})
    looks: Any = SimpleNamespace(_cluster=cluster, _reader=reader, _stuck=set())
    found = Verification._await_markers(looks, OUT, 10, LogBounds(0, 3, 10))
    assert found.stable == (10 if is_awaited else 3)
    assert looks._stuck == (set() if is_awaited else {OUT})
