"""What `eos verify` can't know is out of reach, and no damage."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eos.finding import FindingKind, Witness
from eos.kafka.api import Identity, TopicPartition
from eos.verify.chain import CommitChain
from eos.verify.dropped_records import DropCheck, Log
from eos.verify.findings import Findings
from eos.verify.history import CommittedAttempt
from eos.verify.stamps import Stamps, hash_of
from eos.verify.verify import Verification

IN, OUT = TopicPartition("in", 0), TopicPartition("out", 0)


def committed(
    number: int, start: int, end: int, kind: str = "attempt", dropped: int = 0
) -> CommittedAttempt:
    told = Witness(number, kind, number, 1, Identity(5, number))
    ranges = {IN: (start, end)} if kind == "attempt" else {}
    verdicts = {"verdicts": {"duplicate": dropped}, "producers": ()} if dropped else {}
    return CommittedAttempt(told, "q", ranges, None, [], verdicts)


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


@pytest.mark.parametrize("is_cut", [False, True])
def test_the_first_copy_may_be_in_trimmed_records(is_cut: bool) -> None:
    """Offset 10 repeats offset 2, which no known transaction read."""
    every = np.full(20, hash_of("a"), np.int64)
    numbers = np.arange(20)
    numbers[10] = 2
    stamps = Stamps(every, np.zeros(20, np.int64), numbers, np.arange(20))
    check = DropCheck(Findings(), lambda *_: Log(lambda: iter([stamps]), is_cut=False))
    check.is_cut = is_cut
    check.see(committed(7, 10, 20, dropped=1))
    check.prove()
    kind = FindingKind.GONE if is_cut else FindingKind.WRONG
    assert [each.case for each in check.findings.listed[kind]] == ["unproven"]
    assert check.findings.counts.total() == 1


def test_records_of_a_topic_that_was_forgotten_prove_nothing() -> None:
    check = DropCheck(Findings(), None)
    check.see(committed(1, 0, 5))
    assert check.covered == {IN: [(0, 5)]}
    check.see(committed(2, 0, 0, "recovery"))
    check.see(committed(3, 0, 3))
    assert check.covered == {IN: [(0, 3)]}


def test_a_target_that_the_last_verification_did_not_know_has_not_begun() -> None:
    """Records that others wrote before the pipeline's first one are no finding there."""
    point = SimpleNamespace(targets={OUT: 5})
    resumed: Any = SimpleNamespace(_point=point, _chain=CommitChain(), _findings=Findings())
    assert Verification._target(resumed, OUT, 5).has_begun
    assert not Verification._target(resumed, IN, 0).has_begun
