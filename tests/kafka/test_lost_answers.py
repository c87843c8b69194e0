"""Each request of a run, and its answer: lost, late, broken, or repeated. Nothing else may change.

A run ends committed, not committed, or in doubt and settled at the next start. What it says of a
micro-batch is what any reader sees, and in the end everything came through once, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import NamedTuple

import pytest
from support.copies.pipeline_copy import Copy, Job
from support.copies.scenes import Outcome, ProxiedKafka, SideBySide, run_copy
from support.doubles import At, Hurried
from support.errors import in_turn
from support.kafka.brokers import wait_ended
from support.kafka.proxy_rules import Do, Rule

from eos.errors import Recovery
from eos.ledger import group_offsets
from eos.observe import events

RECORDS = 17  # of each partition: two micro-batches


class Request(NamedTuple):
    """The nth of this API from this client id. Its ghost comes while the transaction of the
    micro-batch `ghost_in` is open, the first or the second."""

    api: str
    nth: int
    ghost_in: int = 1
    client: str = ""
    processes_before: int = 0


CHANGING = {
    "create the ledger": Request("CreateTopics", 1),
    "fence": Request("InitProducerId", 1),
    "start record": Request("Produce", 1),
    "commit of the start record": Request("EndTxn", 1),
    "first produce": Request("Produce", 1, ghost_in=2, client=".writer"),
    "produce": Request("Produce", 2, ghost_in=2, client=".writer"),
    "ledger record": Request("Produce", 2, ghost_in=2),
    "offsets": Request("TxnOffsetCommit", 2, ghost_in=2),
    "commit": Request("EndTxn", 2, ghost_in=2),
}
LOOKING = {
    "settings of the ledger": Request("DescribeConfigs", 2),
    "look": Request("ListOffsets", 1),
    "find the coordinator": Request("FindCoordinator", 1),
    "find the group's coordinator": Request("FindCoordinator", 2),
    "end of the ledger": Request("ListOffsets", 4),
    "read the ledger": Request("Fetch", 2, ghost_in=2, processes_before=1),
    "group's offsets": Request("OffsetFetch", 2, ghost_in=2),
    "topic ids": Request("Metadata", 5, ghost_in=2),
    "who wrote here": Request("DescribeProducers", 1, ghost_in=2, client=".writer"),
}
FAULTS = {
    "request lost": Do.DROP_REQUEST,
    "closed before it": Do.CLOSE_BEFORE,
    "closed after it": Do.CLOSE_AFTER,
    "answer lost": Do.LOSE_ANSWER,
    "half an answer": Do.HALF_ANSWER,
    "answer too late": Do.HOLD_ANSWER,
    "repeated later": Do.NOTHING,
}
WORSE = {"noise for an answer": Do.GARBAGE_ANSWER, "request late": Do.HOLD_REQUEST}

REQUESTS = {**CHANGING, **LOOKING}
CASES = [
    *in_turn(map(": ".join, product(REQUESTS, FAULTS)), len(FAULTS), every=5, of_these=2),
    *in_turn(map(": ".join, product(CHANGING, WORSE)), len(WORSE), every=4, of_these=2),
]
# A blank init ends whatever is open, before it is told that it must come again (51).
COSTLY = {"fence: repeated later", "fence: request late"}


def haunt(rule: Rule) -> None:
    """Lets the request, or its double, reach the broker now, and waits until it is answered."""
    if rule.do is Do.NOTHING:
        rule.repeat()
    elif rule.do is Do.HOLD_REQUEST:
        rule.release()
        rule.wait_answered()


def comes_through_once(kafka: ProxiedKafka, case: str) -> None:
    request, fault = case.split(": ")
    api, nth, ghost_in, client, processes_before = REQUESTS[request]
    small = kafka.job("lost-answers", records=RECORDS, request_timeout_ms=300)
    for _ in range(processes_before):
        assert run_copy(small, micro_batches=1).error is None
        ghost_in -= 1  # it belongs to the second process
    rule = kafka.proxy.rule(api, {**FAULTS, **WORSE}[fault], client=small.name + client, nth=nth)
    ended = run_copy(small, At("ledger_record:after", lambda: haunt(rule), nth=ghost_in))
    assert rule.struck
    assert ended.error is None
    assert ended.committed == [0, 1][processes_before:]
    assert bool(ended.failed) is (case in COSTLY)
    kafka.check(small)


@pytest.fixture(scope="module")
def begun(behind_proxy: ProxiedKafka) -> Iterator[SideBySide]:
    """Rules are for client ids, so that the cases don't meet one another's."""
    made = SideBySide(behind_proxy)
    yield made
    made.close()


@pytest.mark.parametrize("case", CASES)
def test_it_comes_through_once(
    side_by_side: Callable[[Callable[[ProxiedKafka, str], None], str], None], case: str
) -> None:
    side_by_side(comes_through_once, case)


@pytest.fixture
def small(job: Callable[..., Job]) -> Job:
    return job(records=RECORDS, request_timeout_ms=300)


@pytest.mark.parametrize("api", ["AddPartitionsToTxn", "WriteTxnMarkers"])
@pytest.mark.parametrize(
    "do", [Do.CLOSE_BEFORE, Do.CLOSE_AFTER, Do.LOSE_ANSWER, Do.HALF_ANSWER], ids=lambda do: do.name
)
def test_what_brokers_ask_one_another_is_asked_again(
    proxied: ProxiedKafka, small: Job, api: str, do: Do
) -> None:
    """A leader adds its partition to the transaction, a coordinator has the markers written."""
    rule = proxied.proxy.rule(api, do, nth=3)  # the second micro-batch's, or before
    ended = run_copy(small)
    assert rule.struck
    assert ended == Outcome([0, 1], [], None)
    proxied.check(small)


def test_markers_that_are_late_are_waited_for(
    proxied: ProxiedKafka, small: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next first Produce is refused (51) until the partition's last transaction is closed."""
    monkeypatch.setattr(
        group_offsets, "_COMPARE_TIMEOUT_MS", 200
    )  # the group's markers are late too
    markers = proxied.proxy.rule("WriteTxnMarkers", Do.HOLD_REQUEST, nth=2)
    produced = proxied.proxy.rule("Produce", Do.NOTHING, client=f"{small.name}.writer", times=1_000)

    def let_go() -> None:
        markers.wait_struck()
        produced.wait_answered(len(produced.struck) + 2)
        markers.release()

    with ThreadPoolExecutor() as pool:
        network = pool.submit(let_go)
        ended = run_copy(small)
        network.result()
    assert ended == Outcome([0, 1], [], None)
    proxied.check(small)


def test_a_takeover_by_our_own_ghost_costs_an_attempt_and_no_more(
    proxied: ProxiedKafka, small: Job
) -> None:
    """A blank init that comes again between two transactions. The timeout that it asks for is
    ours, which tells it from another copy's."""
    rule = proxied.proxy.rule("InitProducerId", Do.NOTHING, client=small.name)
    with Copy(small) as copy:
        copy.start()
        wait_ended(copy.client, small.name)  # before that, an init is refused (51)
        rule.repeat()
        copy.drain()
        assert copy.committed == [0, 1]
        assert len(copy.told.of(events.AttemptFailed)) == 1
        copy.stop()
    proxied.check(small)


UNANSWERED = [
    (commit, is_committed, first_init)
    for commit, is_committed in ((Do.DROP_REQUEST, False), (Do.LOSE_ANSWER, True))
    for first_init in (Do.NOTHING, Do.DROP_REQUEST, Do.LOSE_ANSWER)
]


@pytest.mark.parametrize(("do", "is_committed", "first_init"), in_turn(UNANSWERED, width=3))
def test_a_commit_that_nobody_answers_is_settled_by_the_ledger(
    proxied: ProxiedKafka,
    small: Job,
    hurried: Callable[..., Hurried],
    do: Do,
    is_committed: bool,
    first_init: Do,
) -> None:
    proxy = proxied.proxy
    never = proxy.rule("EndTxn", do, client=small.name, nth=3, times=10_000)
    init = proxy.rule("InitProducerId", first_init, client=small.name, nth=2)
    with Copy(small, hurried(At("begin:before", proxy.clear_rules, nth=3))) as copy:
        copy.start()
        copy.drain()
        attempts = [event.attempt for event in copy.told.of(events.MicroBatchCommitted)]
        proxy.clear_rules()
        copy.stop()
    assert len(never.struck) > 1
    assert init.struck
    assert attempts == ([1, 1] if is_committed else [1, 2])
    proxied.check(small)


@pytest.mark.parametrize(("do", "is_committed"), [(Do.DROP_REQUEST, False), (Do.LOSE_ANSWER, True)])
def test_what_ends_in_doubt_is_settled_by_the_next_start(
    proxied: ProxiedKafka,
    small: Job,
    hurried: Callable[..., Hurried],
    do: Do,
    is_committed: bool,
) -> None:
    plan = hurried(and_after=True)
    for api, kind, nth in (("EndTxn", do, 3), ("InitProducerId", Do.DROP_REQUEST, 2)):
        proxied.proxy.rule(api, kind, client=small.name, nth=nth, times=10_000)
    ended = run_copy(small, plan)
    assert ended.error is not None
    assert ended.error.recovery is Recovery.RESTART
    assert ended.committed == [0]
    proxied.proxy.clear_rules()
    plan.over()
    with Copy(small) as copy:
        copy.start()
        copy.drain()
        assert bool(copy.told.of(events.MicroBatchSkipped)) is is_committed
        copy.stop()
    proxied.check(small)


def test_the_logs_of_all_of_them_are_well_formed(behind_proxy: ProxiedKafka) -> None:
    """One marker an epoch, no record after it, no sequence missing or twice."""
    behind_proxy.check_logs("lost-answers-*.*")
