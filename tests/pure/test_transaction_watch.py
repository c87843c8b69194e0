"""The thread that cancels the job of an attempt whose transaction the broker has ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from support.waiting import wait_until

from eos.errors import NoAnswerError
from eos.kafka.api import DescribedTransaction, Identity
from eos.micro_batch.transaction_watch import _Watch

MINE, NEXT = Identity(7, 3), Identity(7, 4)
TIMEOUT_MS = 20


def test_a_failed_look_and_a_failed_cancel_are_repeated() -> None:
    looks: list[Any] = [
        NoAnswerError("example", "no response"),
        OSError("too many open files"),
        DescribedTransaction("Ongoing", MINE, TIMEOUT_MS),
    ]
    cancels: list[Exception] = [ConnectionError("the JVM closed the connection")]
    cancelled = []

    def transaction_state(_id: str, _deadline: object) -> DescribedTransaction:
        found = looks.pop(0) if looks else DescribedTransaction("Empty", NEXT, TIMEOUT_MS)
        if isinstance(found, Exception):
            raise found
        return found

    def cancel(tag: str) -> None:
        if cancels:
            raise cancels.pop()
        cancelled.append(tag)

    context: Any = SimpleNamespace(cancelJobsWithTag=cancel)
    client: Any = SimpleNamespace(transaction_state=transaction_state)
    watch = _Watch(context, client, "id", MINE, TIMEOUT_MS)
    with watch:
        wait_until(lambda: cancelled)
    assert cancelled == [watch.tag]
    assert watch.state is not None
