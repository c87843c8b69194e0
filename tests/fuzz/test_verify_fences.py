"""Fences between partitions: `eos verify` proves what dedup dropped, and nothing else.

The oracle is dedup itself: `producer_scope.decide` validates random histories with rejected
records, and its drops are the claims that `DropCheck` has to prove from the logs.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from eos.dedup import producer_scope
from eos.dedup.producer_scope import Epochs, ScopeRules, decide
from eos.finding import FindingKind, Witness
from eos.kafka.api import Identity, TopicPartition
from eos.producers.state import VERDICTS
from eos.verify.dropped_records import DropCheck
from eos.verify.findings import Findings
from eos.verify.history import CommittedAttempt
from eos.verify.source_logs import Log, SourceRange
from eos.verify.stamps import Stamps, hash_of

PLACES = [TopicPartition("in", number) for number in range(3)]
RULES = ScopeRules(window=3)
NAMES = [each.value for each in VERDICTS]
Sent = tuple[int, int, int]  # producer, epoch, number


@dataclass
class History:
    """What producers sent, what dedup decided, and what the ledger says about it."""

    logs: dict[TopicPartition, list[Sent]] = field(default_factory=lambda: {p: [] for p in PLACES})
    rejected: dict[TopicPartition, list[int]] = field(default_factory=dict)
    attempts: list[CommittedAttempt] = field(default_factory=list)
    fenced: int = 0
    _known: Epochs = field(default_factory=Epochs.none)

    def add(self, sent: list[tuple[Sent, int]]) -> list[str]:
        """Add a micro-batch of records and their partitions. Return the verdicts."""
        starts = {tp: len(log) for tp, log in self.logs.items()}
        rows = []
        for each, place in sorted(sent, key=lambda row: row[1]):
            rows.append((*each, place, len(self.logs[PLACES[place]])))
            self.logs[PLACES[place]].append(each)
        columns = [np.array([row[at] for row in rows], np.int64) for at in range(5)]
        decided = decide(producer_scope.Stamps(*columns), self._known, RULES)
        self._known = decided.epochs
        verdicts = [NAMES[code] for code in decided.codes]
        spans: dict[tuple[int, int, str], list[int]] = {}
        for (producer, _, _, place, offset), verdict in zip(rows, verdicts, strict=True):
            if verdict in ("gap", "late"):
                self.rejected.setdefault(PLACES[place], []).append(offset)
            if verdict in ("duplicate", "fenced"):
                spans.setdefault((place, producer, verdict), []).append(offset)
        counts = Counter(verdicts)
        self.fenced += counts["fenced"]
        dropped = [
            ["in", place, str(producer), verdict, len(at), at[0], at[-1]]
            for (place, producer, verdict), at in spans.items()
        ]
        number = len(self.attempts)
        witness = Witness(number, "attempt", number, 1, Identity(1, number))
        ranges = {tp: (starts[tp], len(log)) for tp, log in self.logs.items()}
        facts = {"verdicts": dict(counts), "producers": dropped}
        self.attempts.append(CommittedAttempt(witness, ranges, None, [], facts))
        return verdicts

    def verified(self) -> DropCheck:
        def log(wanted: SourceRange) -> Log:
            sent = self.logs[wanted.at][: wanted.end]
            columns = (
                [hash_of(str(producer)) for producer, _, _ in sent],
                [epoch for _, epoch, _ in sent],
                [number for _, _, number in sent],
                range(len(sent)),
            )
            found = Stamps(*(np.array(each, np.int64) for each in columns))
            return Log(lambda: iter([found]), lambda: False)

        check = DropCheck(Findings(), log, is_spread=True)
        check.letters = lambda: {tp: np.array(at, np.int64) for tp, at in self.rejected.items()}
        for each in self.attempts:
            check.see(each)
        check.prove()
        return check


def random_history(seen: random.Random) -> History:
    history = History()
    for _ in range(seen.randrange(2, 7)):
        history.add(
            [
                ((seen.randrange(2), seen.randrange(3), seen.choice((0, 0, 1, 1, 2, 3, 9))), place)
                for place in range(len(PLACES))
                for _ in range(seen.randrange(5))
            ]
        )
    return history


def test_each_record_that_dedup_fenced_has_a_proof():
    rejected = fenced = 0
    for seed in range(300):
        history = random_history(random.Random(seed))
        check = history.verified()
        assert not check.findings.counts, (seed, check.findings.listed)
        rejected += sum(map(len, history.rejected.values()))
        fenced += history.fenced
    assert min(rejected, fenced) > 300, "too few to mean anything"


def test_a_rejected_record_fences_if_dedup_knows_its_epoch():
    """It was accepted in another partition, in an earlier micro-batch or in the same one."""
    history = History()
    history.add([((0, 0, 0), 0), ((0, 1, 0), 0)])
    assert history.add([((0, 1, 50), 1), ((0, 0, 1), 1)]) == ["gap", "fenced"]
    assert not history.verified().findings.counts
    history = History()
    history.add([((0, 0, 0), 0)])
    sent = [((0, 1, 0), 0), ((0, 1, 50), 1), ((0, 0, 1), 1)]
    assert history.add(sent) == ["appended", "gap", "fenced"]
    assert not history.verified().findings.counts


def test_an_epoch_that_was_rejected_as_a_whole_fences_nothing():
    """A dedup that drops the older epoch's record anyway is found."""
    history = History()
    history.add([((0, 0, 0), 0)])
    assert history.add([((0, 1, 50), 1), ((0, 0, 1), 1)]) == ["gap", "appended"]
    assert not history.verified().findings.counts
    facts = history.attempts[-1].dedup
    facts["verdicts"] |= {"fenced": 1}
    facts["producers"].append(["in", 1, "0", "fenced", 1, 1, 1])
    (finding,) = history.verified().findings.listed[FindingKind.WRONG]
    assert (finding.case, finding.at, finding.offset) == ("unproven", PLACES[1], 1)


def test_a_copy_that_was_read_later_proves_nothing():
    """The partition of the copy had no record in the earlier micro-batch."""
    history = History()
    history.add([((0, 0, 0), 0)])
    history.add([((0, 0, 0), 1)])
    history.attempts[0].dedup["verdicts"] |= {"duplicate": 1}
    history.attempts[0].dedup["producers"].append(["in", 0, "0", "duplicate", 1, 0, 0])
    wrong = history.verified().findings.listed[FindingKind.WRONG]
    assert [(each.at, each.offset) for each in wrong] == [(PLACES[0], 0)]
