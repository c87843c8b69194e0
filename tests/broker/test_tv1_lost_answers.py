"""On an older broker: requests of a run and their answers are lost, late, broken, or repeated.

As `test_lost_answers.py` has it for all requests, here for those that TV1 has beside, and those
that mean something else under it. And transactions that outlive their timeout, which a TV1 broker
ends under a new epoch, as if there were another owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest
from support.brokers import LOOKS_OFTEN
from support.coordinator_view import wait_for
from support.copy import Copy, Job
from support.played import At
from support.proxied import ProxiedKafka, proxied_kafka, run
from support.proxy import Do, Rule

from eos.deadline import Deadline
from eos.errors import FencedError
from eos.observe import events
from eos.transaction import micro_batch
from eos.transaction.coordinator import Coordinator

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
CASES = list(product(REQUESTS, FAULTS))


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedKafka]:
    root = tmp_path_factory.mktemp("proxied-older")
    with proxied_kafka(root, LOOKS_OFTEN, version="3.9") as made:
        yield made


@pytest.fixture
def small(job: Callable[..., Job]) -> Job:
    return job(profile="TV1", records=RECORDS, request_timeout_ms=300)


def haunt(rule: Rule) -> None:
    """Lets the request, or its double, reach the broker now, and waits until it is answered."""
    if rule.do is Do.NOTHING:
        rule.repeat()
    elif rule.do is Do.HOLD_REQUEST:
        rule.release()
        rule.wait_answered()


@pytest.mark.parametrize(("request_of", "fault"), CASES, ids=[": ".join(case) for case in CASES])
def test_it_comes_through_once(
    proxied: ProxiedKafka, small: Job, request_of: str, fault: str
) -> None:
    """A double comes while the next micro-batch's transaction is open."""
    api, nth, client = REQUESTS[request_of]
    rule = proxied.proxy.rule(api, FAULTS[fault], client=small.name + client, nth=nth)
    ended = run(small, At("ledger_record:after", lambda: haunt(rule), nth=2))
    assert rule.struck
    assert ended.error is None
    assert ended.committed == [0, 1]
    proxied.check(small)


@pytest.mark.parametrize("client", ["", WRITER])
def test_a_double_between_two_transactions_is_no_takeover(
    proxied: ProxiedKafka, small: Job, client: str
) -> None:
    """It opens another one under the old epoch. The next init ends it, and is refused for that."""
    nth = 1 if client else 2
    rule = proxied.proxy.rule("AddPartitionsToTxn", Do.NOTHING, client=small.name + client, nth=nth)
    ended = run(small, At("begin:before", rule.repeat, nth=2))
    assert rule.struck
    assert ended.error is None
    assert ended.failed == []
    proxied.check(small)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a step up sooner, so that it leaves an attempt in doubt."""
    monkeypatch.setattr(micro_batch, "STEP_TIMEOUT_MS", 1_500)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("do", "is_committed"), [(Do.DROP_REQUEST, False), (Do.LOSE_ANSWER, True)])
def test_a_commit_that_nobody_answers_is_settled_by_the_ledger(
    proxied: ProxiedKafka, small: Job, do: Do, is_committed: bool
) -> None:
    never = proxied.proxy.rule("EndTxn", do, client=small.name, nth=3, times=10_000)
    ended = run(small, At("begin:before", proxied.proxy.clear_rules, nth=3))
    if is_committed:  # its clean end meets the same, and is settled, too
        proxied.proxy.clear_rules()
    assert len(never.struck) > 1
    assert ended.error is None
    assert len(ended.failed) == (not is_committed)
    proxied.check(small)


@pytest.fixture
def short(job: Callable[..., Job]) -> Job:
    """Its transactions may last two seconds."""
    return job(profile="TV1", records=RECORDS, transaction_timeout_ms=2_000)


@pytest.mark.parametrize("point", ["first_produce:after", "ledger_record:after", "offsets:after"])
def test_a_transaction_that_outlived_its_timeout_is_redone(
    proxied: ProxiedKafka, short: Job, point: str
) -> None:
    wire = short.wire(".looks")

    def outlived() -> None:
        wait_for(wire, short.name, "Ongoing")
        wait_for(wire, short.name, "CompleteAbort")

    ended = run(short, At(point, outlived, nth=2))
    wire.close()
    assert ended.error is None
    assert ended.committed == [0, 1]
    assert len(ended.failed) == 1
    proxied.check(short)


@pytest.mark.parametrize("is_started", [True, False])
@pytest.mark.parametrize("point", ["begin:after", "offsets:after", "end_txn_answered:after"])
def test_who_is_taken_over_is_fenced_and_the_newer_one_goes_on(
    proxied: ProxiedKafka, small: Job, point: str, is_started: bool
) -> None:
    """From its fence on, whether it has written to the ledger by then or not."""
    with Copy(small) as newer:

        def takes_over() -> None:
            if is_started:
                newer.start()
            else:
                fence = Coordinator(newer.wire, small.name, small.name, 60_000).fence
                fence(Deadline.after_ms(20_000))

        with Copy(small, At(point, takes_over)) as older:
            older.start()
            with pytest.raises(FencedError, match="another copy took over"):
                older.drain()
        if not is_started:
            newer.start()
        newer.drain()
        newer.stop()
    assert newer.told.of(events.AttemptFailed) == []
    proxied.check(small)


def test_the_logs_of_all_of_them_are_well_formed(behind_proxy: ProxiedKafka) -> None:
    """One marker an epoch, no record after it, no sequence missing or twice."""
    markers = behind_proxy.check_logs("tv1-lost-answers-*.*")
    assert markers["COMMIT"] > 0
    assert markers["ABORT"] > 0
