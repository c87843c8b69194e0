"""OffsetFetch while a transaction with offsets of the group is open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.errors import raises

from eos.deadline import Deadline
from eos.errors import NoAnswerError, UnavailableError
from eos.kafka import groups

UNSTABLE = SimpleNamespace(groups=[SimpleNamespace(error_code=88, topics=[])])


def lost() -> NoAnswerError:
    return NoAnswerError("request_unanswered", "lost", api="OffsetFetch", node=1, sent=True)


class Cluster:
    """Answers in this order, and then loses each request."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def send_repeatable(self, *_: object) -> Any:
        if self._answers:
            return self._answers.pop(0)
        raise lost()


def fetch(*answers: Any) -> object:
    cluster: Any = Cluster(*answers)
    return groups.committed_offsets(cluster, "group", None, Deadline.after_ms(60_000))


def test_a_request_that_ran_out_of_time_does_not_hide_the_earlier_answer() -> None:
    with raises("group_offsets_pending", UnavailableError):
        fetch(UNSTABLE)


def test_without_an_earlier_answer_the_lost_request_is_the_error() -> None:
    with pytest.raises(NoAnswerError):
        fetch()
