"""Does each committed transaction follow the previous one, in its offsets and its identity?

Each offset of a source partition is read once if every range begins where the previous range ended.
Only an operator's recovery record may move the position. The identity is producer id and epoch. The
epochs of a producer id rise, and a replaced producer id is never used again. A record that breaks
this rule was written to the ledger by another producer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from eos.finding import Finding, FindingKind, Witness
from eos.kafka.api import Identity, TopicPartition
from eos.verify.history import CommittedAttempt

_EPOCHS = 1 << 15


@dataclass(slots=True)
class Owners:
    """Producer ids and epochs with which the pipeline committed.

    The epochs of a producer id are the bits of a number, which takes 4 KB at most."""

    _epochs: dict[int, int] = field(default_factory=dict)
    _trimmed: dict[int, int] = field(default_factory=dict)  # by producer id, the epochs below
    _is_after_trimmed: bool = False

    def add(self, identity: Identity) -> None:
        if self._is_after_trimmed:
            self._trimmed[identity.producer_id] = identity.epoch
            self._is_after_trimmed = False
        self.know(identity.producer_id)
        self._epochs[identity.producer_id] |= 1 << identity.epoch

    def know(self, producer_id: int) -> None:
        """Add a producer id of the pipeline. Which of its epochs committed is not known yet."""
        self._epochs.setdefault(producer_id, 0)

    def is_ours(self, producer_id: int) -> bool:
        return producer_id in self._epochs

    def committed(self, identity: Identity) -> bool:
        return bool(self._epochs.get(identity.producer_id, 0) >> identity.epoch & 1)

    def forget_trimmed(self) -> None:
        """Note that the transactions between the last one and the next one are not known."""
        self._trimmed.update(dict.fromkeys(self._epochs, _EPOCHS))
        self._is_after_trimmed = True

    def may_be_trimmed(self, identity: Identity) -> bool:
        """Return whether the record of a transaction may be one that is not known."""
        return identity.epoch < self._trimmed.get(identity.producer_id, 0)

    @property
    def producer_ids(self) -> list[int]:
        return list(self._epochs)


@dataclass(slots=True)
class CommitChain:
    """Check of the committed transactions, in order.

    `position` has the next offset of each source partition. `covered` has the range of source
    offsets (start, end) that the verified transactions read. `last` is the newest transaction seen
    so far, and `current` its producer id and epoch.
    """

    position: dict[TopicPartition, int] = field(default_factory=dict)
    covered: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    owners: Owners = field(default_factory=Owners)
    last: Witness | None = None
    current: Identity | None = None
    attempts: int = 0
    records: int = 0
    moved: list[Witness] = field(default_factory=list)  # recovery records that moved the position

    def forget_trimmed(self) -> None:
        """Expect no range next to the last one: the transactions in between are not known."""
        self.position.clear()
        self.owners.forget_trimmed()

    def see(self, each: CommittedAttempt) -> Iterator[Finding]:
        yield from self._identity(each)
        if each.witness.kind == "recovery":
            yield from self._move(each)
        else:
            yield from self._ranges(each)
        self.attempts += each.is_attempt
        self.records += sum(receipt.records for receipt in each.receipts)
        self.last = each.witness
        self.current = each.witness.identity
        self.owners.add(each.witness.identity)

    def _identity(self, each: CommittedAttempt) -> Iterator[Finding]:
        identity, before = each.witness.identity, self.current
        if before is None or not self.owners.is_ours(identity.producer_id):
            return
        if identity.producer_id != before.producer_id:
            yield Finding(
                "forged",
                f"producer id {identity.producer_id} appears again at ledger offset "
                f"{each.witness.ledger_offset}, although {before} wrote in between: replaced "
                "ids are never used again, so another producer wrote this record",
                witness=self.last,
            )
        elif identity.epoch <= before.epoch:
            again = "a second time" if identity.epoch == before.epoch else f"after {before}"
            yield Finding("twice", f"producer {identity} committed {again}", witness=each.witness)

    def _ranges(self, each: CommittedAttempt) -> Iterator[Finding]:
        for tp, (start, end) in sorted(each.ranges.items()):
            before = self.position.get(tp, start)
            yield from self._step(each, tp, before, start)
            if end < start:
                yield self._finding("overlap", each, tp, end, f"ends at {end} before its start")
            self.position[tp] = end
            if each.is_attempt:
                low, high = self.covered.get(tp, (start, end))
                self.covered[tp] = min(low, start), max(high, end)
        for tp, end in sorted((each.ends or {}).items()):
            before = self.position.setdefault(tp, end)
            yield from self._step(each, tp, before, end)
            self.position[tp] = end

    def _step(
        self, each: CommittedAttempt, tp: TopicPartition, before: int, start: int
    ) -> Iterator[Finding]:
        if start > before:
            text = f"offsets {before} to {start - 1} are covered by no transaction"
            yield self._finding("gap", each, tp, before, text)
        elif start < before:
            text = f"offsets {start} to {before - 1} are covered a second time"
            yield self._finding("overlap", each, tp, start, text)

    def _finding(
        self, case: str, each: CommittedAttempt, tp: TopicPartition, offset: int, text: str
    ) -> Finding:
        message = f"source {tp}: {text}, at {each.witness}"
        return Finding(case, message, tp, offset, each.witness)

    def _move(self, each: CommittedAttempt) -> Iterator[Finding]:
        """Replace the position by the position of a recovery record.

        An operator may move the position back, so that the pipeline reads these offsets again. If
        the operator removed a topic, a new topic of that name has other offsets.
        """
        ends = {tp: end for tp, (_, end) in each.ranges.items()}
        if any(self.position.get(tp) != end for tp, end in ends.items()):
            self.moved.append(each.witness)
        self.position = ends
        for tp in each.removed(self.covered):
            start, end = self.covered.pop(tp)
            message = f"{tp}: offsets {start} to {end - 1} were read before {each.witness}, with "
            message += "which an operator removed the topic from the pipeline"
            yield Finding("source_forgotten", message, tp, start, kind=FindingKind.GONE)
