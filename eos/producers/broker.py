"""The answer of a partition's leader to a record batch.

`state` has the rules. Its verdicts are finer than the leader's answers: this module joins them
again. The leader recognizes a duplicate only if its range equals a retained one.
"""

from __future__ import annotations

from enum import Enum

from eos.producers.state import KAFKA, ProducerState, Range, SequenceEvent, Verdict, after, decide


class BrokerVerdict(Enum):
    """A broker's decision about a record batch or a transaction. Tables use the values."""

    APPENDED = "appended"
    # Acknowledged with the offset of the first copy, and not appended again.
    DUPLICATE = "duplicate"
    OUT_OF_ORDER = "out_of_order"
    # A newer epoch of this producer has written to the partition.
    INVALID_EPOCH = "invalid_epoch"
    # The coordinator has granted a newer producer id or epoch, or a newer coordinator has written.
    FENCED = "fenced"
    # The leader has no state of this producer, and the sequence does not begin at 0.
    UNKNOWN_PRODUCER = "unknown_producer"


_OF = {
    Verdict.APPENDED: BrokerVerdict.APPENDED,
    Verdict.LATE: BrokerVerdict.OUT_OF_ORDER,
    Verdict.GAP: BrokerVerdict.OUT_OF_ORDER,
    Verdict.FENCED: BrokerVerdict.INVALID_EPOCH,
    Verdict.UNKNOWN_PRODUCER: BrokerVerdict.UNKNOWN_PRODUCER,
}


def broker_verdict(state: ProducerState | None, event: SequenceEvent) -> BrokerVerdict:
    """Return the leader's answer. `state` is None if it does not know the producer."""
    verdict = decide(state, event, KAFKA)
    if verdict is Verdict.APPENDED:  # nearly always; a look into `_OF` takes as long as the rest
        return BrokerVerdict.APPENDED
    if verdict is not Verdict.DUPLICATE:
        return _OF[verdict]
    is_retained = state is not None and Range(event.first, event.last) in state.ranges
    return BrokerVerdict.DUPLICATE if is_retained else BrokerVerdict.OUT_OF_ORDER


def acknowledged(
    state: ProducerState | None, event: SequenceEvent, verdict: BrokerVerdict
) -> ProducerState:
    """Return the state after the leader acknowledged a record batch and appended it.

    If the verdict is that it should have been rejected, nothing is known of the sequences before
    it.
    """
    is_next = verdict is BrokerVerdict.APPENDED or verdict is BrokerVerdict.UNKNOWN_PRODUCER
    found = after(state if is_next else None, event, Verdict.APPENDED, KAFKA)
    assert found is not None
    return found
