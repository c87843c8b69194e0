"""A request of a copy that is dead already, on its way to the broker, arrives under its successor.

The network holds it while its sender is killed, the next copy takes over, and it arrives at any
moment of that one's life. Nothing of it may join the newer one's transactions, or end them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import pytest
from support.copies.owners import Forked
from support.copies.pipeline_copy import Copy, Job
from support.copies.scenes import ProxiedKafka, run_to_end
from support.doubles import At, WatchedClient
from support.errors import in_turn
from support.kafka.proxy_rules import Do

from eos.observe import events


class Request(NamedTuple):
    """The nth of this API from this client: of the first micro-batch."""

    api: str
    nth: int
    client: str = ""


REQUESTS = {
    "first produce": Request("Produce", 1, ".writer"),
    "ledger record": Request("Produce", 2),
    "offsets": Request("TxnOffsetCommit", 2),
    "commit": Request("EndTxn", 2),
}
FENCE = "init_producer_id"  # no step, but a request
MOMENTS = {
    "before its look": "",
    "between its look and its fence": FENCE,
    "after the fence": "start.ledger_record:before",
    "before its first produce": "first_produce:before",
    "beside its records": "all_acked:before",
    "beside its ledger record": "offsets:before",
    "before its commit": "end_txn_sent:before",
    "after its commit": "commit_log:before",
}


@pytest.mark.parametrize(
    ("request_of", "moment"),
    in_turn(product(REQUESTS, MOMENTS), len(MOMENTS), every=6, of_these=3),
)
def test_it_does_nothing_to_the_newer_one(
    proxied: ProxiedKafka, job: Callable[..., Job], request_of: str, moment: str
) -> None:
    copy, (api, nth, client) = job(), REQUESTS[request_of]
    rule = proxied.proxy.rule(api, Do.HOLD_REQUEST, client=copy.name + client, nth=nth)
    with Forked(copy) as dead:
        dead.wait_until(lambda: bool(rule.struck), "did not ask")

    def arrive() -> None:
        rule.release()
        rule.wait_answered()

    at = MOMENTS[moment]
    if not at:
        arrive()
    with Copy(copy, At(at, arrive)) as newer:
        newer.client = WatchedClient(newer.client, At(at, arrive).reached)
        assert run_to_end(newer) is None
    assert rule.is_released
    assert not newer.told.of(events.AttemptFailed), "it was disturbed"
    proxied.check(copy)


def test_the_logs_of_all_of_them_are_well_formed(behind_proxy: ProxiedKafka) -> None:
    """Nothing of an older epoch lies behind its marker."""
    behind_proxy.check_logs("dead-owners-*.*")
