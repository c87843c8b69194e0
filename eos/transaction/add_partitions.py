"""TV1: who writes to a partition adds it to the transaction before (under TV2 its leader does)."""

from __future__ import annotations

from collections.abc import Callable

from eos.deadline import Backoff, Deadline
from eos.errors import NoAnswerError
from eos.kafka.api import Api, Identity, TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.outcomes import Outcome
from eos.transaction import effects

_REPEATED = frozenset({None, Outcome.RETRY, Outcome.REFRESH})


def join(
    wire: KafkaClient,
    transactional_id: str,
    identity: Identity,
    partitions: frozenset[TopicPartition],
    deadline: Deadline,
    backoff: Callable[[], Backoff],
) -> None:
    """Returns once all of them are in the transaction; until then nothing may be sent to them.

    The same request again is harmless as long as the attempt lasts. 51 comes as a matter of course
    while the transaction before is being completed. A request that was lost may still arrive when
    the attempt is over, before the next init: then it opens a transaction under the old epoch. No
    record can get into it, and the next attempt's init ends it; on a TV1 cluster that looks like a
    takeover, which `ownership_check` tells apart.
    """
    pauses = backoff()
    while True:
        try:
            answered, error = effects.add_partitions(
                wire, transactional_id, identity, partitions, deadline
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
