"""`on_sent`: the moment between a request and its answer, at which a crash test dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eos.deadline import Backoff, Deadline
from eos.kafka.api import NO_IDENTITY, TopicPartition
from eos.kafka.client import KafkaClient


def test_on_sent_comes_when_the_bytes_have_left_and_before_the_answer_is_known(
    clients: Callable[..., KafkaClient],
    topic: str,
    name: str,
    settled: Callable[[Callable[[], Any]], Any],
    within: Callable[..., Deadline],
    make_batch: Callable[..., bytes],
) -> None:
    """While it runs nothing more leaves: the commit is carried out all the same, or it never left.

    A process that is killed here must be one whose commit succeeds, and whose answer is lost.
    """
    client, other, tp = clients(), clients(), TopicPartition(topic, 0)
    begun = settled(lambda: client.init_producer_id(name, 60_000, NO_IDENTITY, within()))
    batch = {tp: make_batch(begun.identity, 0, b"a")}
    settled(lambda: client.produce(name, batch, within()))
    answered: list[Any] = []
    seen: list[tuple[int, int]] = []

    def look() -> None:
        deadline, backoff = within(), Backoff()
        while not deadline.has_passed:
            found = other.list_offsets([tp], "latest", committed=True, deadline=within())
            if found[tp] == 2:  # the record and the marker
                break
            backoff.sleep(deadline)
        seen.append((found[tp], len(answered)))

    answered.append(client.end_txn(name, begun.identity, True, within(), on_sent=look))
    assert seen == [(2, 0)]
    assert answered[0].error == 0
