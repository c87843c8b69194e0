"""On an older broker: requests of a run and their answers are lost, late, broken, or repeated.

As `test_lost_answers.py` has it for all requests, here for those that TV1 has beside, and those
that mean something else under it. And transactions that outlive their timeout, which a TV1 broker
ends under a new epoch, as if there were another owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import pytest
from support.copies.pipeline_copy import Copy, Job
from support.copies.scenes import ProxiedKafka, SideBySide, proxied_kafka, run_copy
from support.doubles import At, Hurried
from support.errors import raises
from support.kafka.brokers import LOOKS_OFTEN, wait_for_state
from support.kafka.proxy_rules import Do, Rule

from eos.deadline import Deadline
from eos.observe import events
from eos.transaction.coordinator import Coordinator

pytestmark = pytest.mark.long

RECORDS = 17  # of each partition: two micro-batches
WRITER = ".writer"
# The nth of this API from this client id: all are of the first micro-batch.
REQUESTS = {
    "epoch of the attempt": ("InitProducerId", 2, ""),
    "writer's partitions": ("AddPartitionsToTxn", 1, WRITER),
    "first produce": ("Produce", 1, WRITER),
    "ledger's partition": ("AddPartitionsToTxn", 2, ""),
    "group": ("AddOffsetsToTxn", 2, ""),
    "offsets": ("TxnOffsetCommit", 2, ""),
    "commit": ("EndTxn", 2, ""),
}
FAULTS = {
    "request lost": Do.DROP_REQUEST,
    "closed after it": Do.CLOSE_AFTER,
    "answer lost": Do.LOSE_ANSWER,
    "answer too late": Do.HOLD_ANSWER,
    "repeated later": Do.NOTHING,
    "request late": Do.HOLD_REQUEST,
}
# An init ends whatever is open, before its epoch is compared: this costs an attempt.
COSTLY = {"epoch of the attempt: repeated later", "epoch of the attempt: request late"}
Play = Callable[[Callable[[ProxiedKafka, str], None], str], None]  # fixture `side_by_side`


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedKafka]:
    root = tmp_path_factory.mktemp("proxied-older")
    with proxied_kafka(root, LOOKS_OFTEN, version="3.9") as made:
        yield made


@pytest.fixture(scope="module")
def begun(behind_proxy: ProxiedKafka) -> Iterator[SideBySide]:
    """Rules are for client ids, so that the cases don't meet one another's."""
    made = SideBySide(behind_proxy)
    yield made
    made.close()


def a_job(kafka: ProxiedKafka, **options: int) -> Job:
    return kafka.job("tv1-lost-answers", profile="TV1", records=RECORDS, **options)


def haunt(rule: Rule) -> None:
    """Lets the request, or its double, reach the broker now, and waits until it is answered."""
    if rule.do is Do.NOTHING:
        rule.repeat()
    elif rule.do is Do.HOLD_REQUEST:
        rule.release()
        rule.wait_answered()


def comes_through_once(kafka: ProxiedKafka, case: str) -> None:
    """A double comes while the next micro-batch's transaction is open."""
    request, fault = case.split(": ")
    api, nth, client = REQUESTS[request]
    small = a_job(kafka, request_timeout_ms=300)
    rule = kafka.proxy.rule(api, FAULTS[fault], client=small.name + client, nth=nth)
    ended = run_copy(small, At("ledger_record:after", lambda: haunt(rule), nth=2))
    assert rule.struck
    assert ended.error is None
    assert ended.committed == [0, 1]
    assert bool(ended.failed) is (case in COSTLY)
    kafka.check(small)


@pytest.mark.parametrize("case", [": ".join(case) for case in product(REQUESTS, FAULTS)])
def test_it_comes_through_once(side_by_side: Play, case: str) -> None:
    side_by_side(comes_through_once, case)


def doubled_at_rest(kafka: ProxiedKafka, client: str) -> None:
    """It opens another transaction under the old epoch, once nobody needs it. The next init ends
    that, and is refused for it."""
    small, nth = a_job(kafka), 1 if client else 2
    rule = kafka.proxy.rule("AddPartitionsToTxn", Do.NOTHING, client=small.name + client, nth=nth)
    ended = run_copy(small, At("begin:before", rule.repeat, nth=2))
    assert rule.struck
    assert ended.error is None
    assert ended.failed == []
    kafka.check(small)


@pytest.mark.parametrize("client", ["", WRITER])
def test_a_double_between_two_transactions_is_no_takeover(side_by_side: Play, client: str) -> None:
    side_by_side(doubled_at_rest, client)


@pytest.mark.parametrize(("do", "is_committed"), [(Do.DROP_REQUEST, False), (Do.LOSE_ANSWER, True)])
def test_a_commit_that_nobody_answers_is_settled_by_the_ledger(
    proxied: ProxiedKafka, hurried: Callable[..., Hurried], do: Do, is_committed: bool
) -> None:
    small = a_job(proxied, request_timeout_ms=300)
    never = proxied.proxy.rule("EndTxn", do, client=small.name, nth=3, times=10_000)
    redone = At("begin:before", proxied.proxy.clear_rules, nth=3)
    ended = run_copy(small, hurried(redone, and_stop=is_committed))
    if is_committed:  # its clean end meets the same, and is settled, too
        proxied.proxy.clear_rules()
    assert len(never.struck) > 1
    assert ended.error is None
    assert len(ended.failed) == (not is_committed)
    proxied.check(small)


def outlived(kafka: ProxiedKafka, point: str) -> None:
    short = a_job(kafka, transaction_timeout_ms=8_000)
    client = short.client(".looks")

    def wait() -> None:
        wait_for_state(client, short.name, "Ongoing")
        wait_for_state(client, short.name, "CompleteAbort")

    ended = run_copy(short, At(point, wait, nth=2))
    client.close()
    assert ended.error is None
    assert ended.committed == [0, 1]
    assert len(ended.failed) == 1
    kafka.check(short)


@pytest.mark.parametrize("point", ["first_produce:after", "ledger_record:after", "offsets:after"])
def test_a_transaction_that_outlived_its_timeout_is_redone(side_by_side: Play, point: str) -> None:
    side_by_side(outlived, point)


def taken_over(kafka: ProxiedKafka, point: str) -> None:
    for is_started in (True, False):
        small = a_job(kafka)
        with Copy(small) as newer:
            fence = Coordinator(newer.client, small.name, small.name, 60_000).fence
            takes = newer.start if is_started else partial(fence, Deadline.after_ms(300_000))
            with Copy(small, At(point, takes)) as older:
                older.start()
                with raises("newer_instance_running"):
                    older.drain()
            if not is_started:
                newer.start()
            newer.drain()
            newer.stop()
        assert newer.told.of(events.AttemptFailed) == []
        kafka.check(small)


@pytest.mark.parametrize("point", ["begin:after", "offsets:after", "end_txn_answered:after"])
def test_who_is_taken_over_is_fenced_whether_the_newer_one_has_written_or_not(
    side_by_side: Play, point: str
) -> None:
    side_by_side(taken_over, point)


def test_the_logs_of_all_of_them_are_well_formed(behind_proxy: ProxiedKafka) -> None:
    """One marker an epoch, no record after it, no sequence missing or twice."""
    markers = behind_proxy.check_logs("tv1-lost-answers-*.*")
    assert markers["COMMIT"] > 0
    assert markers["ABORT"] > 0
