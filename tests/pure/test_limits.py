"""The target topics' limits, read again when a record or a record batch was too large."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eos.deadline import Deadline
from eos.errors import AttemptFailedError, EosError, RecordRefusedError, UnavailableError
from eos.kafka.api import Api
from eos.kafka.outcomes import describe
from eos.startup import topic_limits as module
from eos.startup.topic_limits import TargetLimits

REFUSED = describe(Api.PRODUCE, 10, where="out-0")
UNFIT = RecordRefusedError(
    "example", "a record is too large for out-0", limit_bytes=1000, size_bytes=1200
)


class Cluster:
    """Answers each question for the setting with the next value, and then with the last."""

    def __init__(self, *values: int | EosError) -> None:
        self.values: Sequence[int | EosError] = values
        self.asked = 0

    def topic_config(self, _topic: str, name: str, _deadline: Deadline) -> str:
        assert name == "max.message.bytes"
        value = self.values[min(self.asked, len(self.values) - 1)]
        self.asked += 1
        if isinstance(value, EosError):
            raise value
        return str(value)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEEN_WITHIN_MS", 0)


@pytest.mark.parametrize(("error", "now"), [(REFUSED, 500), (UNFIT, 5_000)])
def test_a_limit_that_changed_costs_an_attempt_and_the_next_one_has_the_new(
    error: EosError, now: int
) -> None:
    limits = TargetLimits(Cluster(now), {"out": 1000})
    found = limits.explained(error)
    assert isinstance(found, AttemptFailedError)
    assert found.code == "topic_size_limit_changed"
    assert found.message.endswith(f"of the topic 'out' changed from 1000 to {now}")
    assert limits.of("out") == now


@pytest.mark.parametrize("error", [REFUSED, UNFIT])
@pytest.mark.parametrize("answer", [1000, UnavailableError("example", "no broker answers")])
def test_a_record_that_is_too_large_for_an_unchanged_limit_ends_the_run(
    error: EosError, answer: int | EosError
) -> None:
    limits = TargetLimits(Cluster(answer), {"out": 1000})
    assert limits.explained(error) is error
    assert limits.of("out") == 1000


def test_a_broker_that_enforces_a_limit_before_it_reports_it_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SEEN_WITHIN_MS", 300_000)
    limits = TargetLimits(Cluster(1000, 1000, 500), {"out": 1000})
    assert isinstance(limits.explained(REFUSED), AttemptFailedError)
    assert limits.of("out") == 500


def test_other_errors_are_as_they_were_and_ask_nothing() -> None:
    cluster = Cluster(500)
    for error in (
        UnavailableError("example", "away"),
        describe(Api.PRODUCE, 19),
        describe(Api.END_TXN, 48),
    ):
        assert TargetLimits(cluster, {"out": 1000}).explained(error) is error
    assert cluster.asked == 0
