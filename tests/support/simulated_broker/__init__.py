"""A Kafka broker in the process, as far as transactions see one: same rules, manual clock.

It follows what brokers of versions 4.3 and 3.9 answer, for both profiles at once; `tests/kafka`
runs the same scripts against real ones. What it simplifies:

- One broker: leaders and coordinators never move, so 5, 6, 13, 14, 15, 16, 74 only come as faults.
- A request is one step: two never overlap, so 19 (verification under way) only comes as a fault.
- No permissions, quotas, topic policies, retention, compaction, replication, disks, recompression.
- Record batches are taken as they are: CRC, ids, sequences and counts are checked, records not;
  attributes (the transactional bit, codecs) and `max.message.bytes` are ignored.
- A producer is remembered for ever by a partition, a transactional id until `expire`.
- Groups have no members; offsets of a group never expire. A refused commit changes nothing: before
  4.0 it takes along what the producer id has pending, whatever its epoch.
- Markers are written at once, unless `hold_markers`; then of all transactions together.
- Time passes by `advance`, which also aborts what timed out; the real one looks every ten seconds.
"""

from __future__ import annotations

from eos.kafka.transaction_states import TransactionPhase as Phase
from support.simulated_broker.client import SimulatedPort
from support.simulated_broker.log import Entry, Kind
from support.simulated_broker.simulated import Fault, SimulatedBroker, Strike

__all__ = ["Entry", "Fault", "Kind", "Phase", "SimulatedBroker", "SimulatedPort", "Strike"]
