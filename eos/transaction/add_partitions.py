"""Add a writer's target partitions to its transaction, under transaction version 1 (TV1).

Under TV2 (KIP-890), the first Produce to a partition does this, without a request of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from eos.deadline import Backoff, Deadline
from eos.errors import NoAnswerError
from eos.kafka.api import Api, Identity, TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.outcomes import Outcome
from eos.transaction import effects

_REPEATED = frozenset({None, Outcome.RETRY, Outcome.REFRESH})


def join_transaction(
    client: KafkaClient,
    transactional_id: str,
    identity: Identity,
    partitions: frozenset[TopicPartition],
    deadline: Deadline,
    backoff: Callable[[], Backoff],
) -> None:
    """Send AddPartitionsToTxn for the partitions. Nothing may be sent to them before this returns.

    Retries are harmless while the attempt lasts. CONCURRENT_TRANSACTIONS is routine while the
    broker completes the previous transaction. A delayed request can have this effect:
    1. The attempt ends, and its AddPartitionsToTxn is still on its way.
    2. The request arrives before the next InitProducerId, and opens a transaction under the old
       epoch.
    3. No record can get into that transaction. The next InitProducerId aborts it.

    To the driver, step 3 looks like a takeover by another instance. `ownership_check` detects the
    difference.
    """
    pauses = backoff()
    while True:
        try:
            answered, error = effects.add_partitions(
                client, transactional_id, identity, partitions, deadline
            )
        except NoAnswerError as lost:
            answered, error = effects.unanswered(Api.ADD_PARTITIONS, lost)
        if answered.outcome is Outcome.OK:
            return
        if answered.outcome not in _REPEATED:
            raise error
        pauses.sleep(deadline)
        if deadline.has_passed:
            raise error
