"""How a writer adds its partitions to a TV1 transaction. (Under TV2 the partition's leader does
it.)"""

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
    """Add the partitions to the transaction. Nothing may be sent to them before this returns.

    Retries are harmless while the attempt lasts. CONCURRENT_TRANSACTIONS is routine while the
    broker completes the previous transaction. A lost request can have this effect:
    1. The attempt ends, and its AddPartitionsToTxn is still on its way.
    2. It arrives before the next InitProducerId, and opens a transaction under the old epoch.
    3. No record can get into that transaction. The next InitProducerId aborts it.

    On a TV1 cluster, step 3 looks like a takeover. `ownership_check` detects the difference.
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
