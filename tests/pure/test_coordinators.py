"""Coordinators that move, are away for a while, or refuse a request."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.errors import raises

from eos.deadline import Deadline
from eos.errors import KafkaRefusedError, NoAnswerError, Recovery, UnavailableError
from eos.kafka import groups, transactions
from eos.kafka.api import TopicPartition
from eos.kafka.cluster import NoCoordinatorError

UNSTABLE = SimpleNamespace(groups=[SimpleNamespace(error_code=88, topics=[])])
SOON = Deadline.after_ms(600_000)


def lost() -> NoAnswerError:
    return NoAnswerError("request_unanswered", "lost", api="OffsetFetch", node=1, sent=True)


class Cluster:
    """Answers in this order, and then loses each request. `away` is FindCoordinator's code."""

    def __init__(self, *answers: Any, away: int = 0) -> None:
        self._answers = list(answers)
        self._away = away
        self.forgotten = 0

    def send_repeatable(self, node_of: Callable[[], int], *_: object) -> Any:
        node_of()
        if self._answers:
            return self._answers.pop(0)
        raise lost()

    def query_each(self, *_: object) -> dict[int, Any]:
        return dict(enumerate(self._answers))

    def coordinator(self, *_: object) -> int:
        if self._away:
            raise NoCoordinatorError(self._away, "")
        return 1

    def forget_coordinators(self) -> None:
        self.forgotten += 1


LOOKUPS: dict[str, Callable[[Any], object]] = {
    "OffsetFetch": lambda cluster: groups.committed_offsets(cluster, "g", None, SOON),
    "OffsetCommit": lambda cluster: groups.commit_offsets(
        cluster, "g", {TopicPartition("t", 0): 1}, SOON
    ),
    "ListGroups": lambda cluster: groups.group_state(cluster, "g", SOON),
    "DescribeTransactions": lambda cluster: transactions.transaction_state(cluster, "x", SOON),
}
EACH = pytest.mark.parametrize("api", LOOKUPS)


def answered(error: int) -> Any:
    """Has the fields of all these responses."""
    part = SimpleNamespace(error_code=error, partition_index=0, committed_offset=1, metadata="")
    topics = [SimpleNamespace(name="t", partitions=[part])]
    state = SimpleNamespace(
        error_code=error,
        producer_id=1,
        producer_epoch=0,
        transaction_state="Empty",
        transaction_timeout_ms=1,
    )
    return SimpleNamespace(
        error_code=error,
        topics=topics,
        groups=[SimpleNamespace(error_code=0, topics=topics, group_id="g", group_state="Empty")],
        transaction_states=[state],
    )


def test_a_request_that_ran_out_of_time_does_not_hide_the_earlier_answer() -> None:
    with raises("group_offsets_pending", UnavailableError):
        LOOKUPS["OffsetFetch"](Cluster(UNSTABLE))


@EACH
def test_without_an_earlier_answer_the_lost_request_is_the_error(api: str) -> None:
    with pytest.raises(NoAnswerError):
        LOOKUPS[api](Cluster())


@EACH
def test_a_coordinator_that_moved_is_looked_up_again(api: str) -> None:
    cluster = Cluster(answered(16), answered(14), answered(0))
    LOOKUPS[api](cluster)
    assert cluster.forgotten >= 2


@EACH
def test_a_coordinator_that_is_starting_until_the_end_is_unavailable(api: str) -> None:
    with pytest.raises(UnavailableError, match=rf"LOAD_IN_PROGRESS \(14\) to {api} for"):
        LOOKUPS[api](Cluster(answered(14)))


@EACH
@pytest.mark.parametrize("error", [7, 13, 14, 15, 16])
def test_a_coordinator_that_is_away_needs_a_restart_and_no_operator(api: str, error: int) -> None:
    with pytest.raises(UnavailableError, match=r"to FindCoordinator for (group g|x)\.") as caught:
        LOOKUPS[api](Cluster(away=error))
    assert caught.value.recovery is Recovery.RESTART


@EACH
@pytest.mark.parametrize("error", [30, 53])
def test_a_right_that_is_missing_needs_an_operator(api: str, error: int) -> None:
    for cluster, asked in (
        (Cluster(away=error), "FindCoordinator"),
        (Cluster(answered(error)), api),
    ):
        with pytest.raises(KafkaRefusedError, match=f"to {asked} for") as caught:
            LOOKUPS[api](cluster)
        assert caught.value.fields["error"] == error


@pytest.mark.parametrize("errors", [(-1, 0), (0, -1)])
def test_a_list_of_transactions_that_lacks_a_brokers_answer_is_refused(
    errors: tuple[int, int],
) -> None:
    cluster: Any = Cluster(*(SimpleNamespace(error_code=each) for each in errors))
    with pytest.raises(KafkaRefusedError, match="ListTransactions for the cluster"):
        transactions.list_transactions(cluster, SOON)
