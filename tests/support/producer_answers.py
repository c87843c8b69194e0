"""A leader's possible error codes for each verdict on a record batch."""

from __future__ import annotations

from collections.abc import Mapping

from eos.producers.broker import BrokerVerdict
from eos.producers.state import Verdict

# If it knows the producer. It acknowledges a duplicate with NONE (0) and the offset of the first
# copy.
KAFKA_ANSWERS: Mapping[Verdict, frozenset[int]] = {
    Verdict.APPENDED: frozenset({0}),
    Verdict.DUPLICATE: frozenset({0, 45}),
    Verdict.LATE: frozenset({45}),
    Verdict.GAP: frozenset({45}),
    Verdict.FENCED: frozenset({47}),
    Verdict.UNKNOWN_PRODUCER: frozenset({0, 45}),
}
# Under TV2 a leader rejects the first sequence of an unknown producer unless it is 0; otherwise it
# accepts any.
ERROR_CODES: Mapping[BrokerVerdict, frozenset[int]] = {
    BrokerVerdict.APPENDED: frozenset({0}),
    BrokerVerdict.DUPLICATE: frozenset({0}),
    BrokerVerdict.OUT_OF_ORDER: frozenset({45}),
    BrokerVerdict.INVALID_EPOCH: frozenset({47}),
    BrokerVerdict.FENCED: frozenset({90}),
    BrokerVerdict.UNKNOWN_PRODUCER: frozenset({0, 45}),
}
