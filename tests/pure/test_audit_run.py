"""Whether a run has an audit table, and what the follower says of one that it can't reach."""

from __future__ import annotations

import threading

import pytest
from support.copies.pipeline_copy import Job
from support.doubles import EventLog
from support.errors import raises
from support.waiting import wait_until

from eos.audit import follower as following
from eos.audit.follower import Follower
from eos.audit.projection import ProjectionResult
from eos.audit.updater import NO_AUDIT, audit_of, location_of
from eos.config.model import Profile
from eos.errors import PromiseBrokenError, UnavailableError
from eos.observe import events


def profile(text: str = "/state", **audit: object) -> Profile:
    return Profile.model_validate({"state": {"root": text}, "audit": audit})


@pytest.mark.parametrize("root", ["abfss://c@a/eos", "hdfs:///eos"])
def test_a_state_root_that_can_t_be_reached_is_told_and_one_that_is_off_is_not(root, tmp_path):
    told = EventLog()
    plan = Job("none:1", "p", "in", "out", tmp_path).plan()
    assert audit_of(profile(root), plan, None, told) is NO_AUDIT
    (warned,) = told.of(events.Warned)
    assert root in warned.message
    assert "transactions: false" in warned.message
    assert audit_of(profile(root, transactions=False), plan, None, told) is NO_AUDIT
    assert len(told.events) == 1
    assert str(location_of(profile("file:///x"))) == "/x/audit/transactions"


class Fails:
    """A projection that never gets there."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def catch_up(self, _deadline: object) -> ProjectionResult:
        raise self.error

    def end_with(self, _failed: object, _last: object) -> int:
        return 0


def test_a_promise_that_is_broken_stops_at_once_and_any_other_error_after_so_many():
    told = EventLog()
    follower = Follower(Fails(UnavailableError("example", "away")), told, 2, every_s=0.001)
    follower.start()
    follower.committed()
    follower.require()
    follower.committed()
    with raises("audit_table_lag", PromiseBrokenError) as caught:
        follower.require()
    assert "lacks 2 attempts, the limit is 2: away" in caught.value.message
    assert follower.needed_from == 0, "nothing may be trimmed"
    follower.close()
    assert len(told.of(events.Warned)) == 2, "once that it fails, and once at the end"

    told = EventLog()
    broken = Follower(
        Fails(PromiseBrokenError("example", "the ledger is gone")), told, 99, every_s=0.001
    )
    broken.start()
    wait_until(lambda: told.of(events.Warned))
    with raises("example", PromiseBrokenError):
        broken.require()
    broken.close()


def test_a_table_that_lacks_nothing_is_not_reported_to_lack_0_attempts():
    told = EventLog()
    follower = Follower(
        Fails(UnavailableError("example", "no broker answers")), told, 2, every_s=0.001
    )
    follower.start()
    wait_until(lambda: follower._tries > 3)
    assert told.events == []
    follower.committed()
    wait_until(lambda: told.events)
    follower.close()
    lacks, ends = (event.message for event in told.of(events.Warned))
    assert lacks.startswith("the audit table lacks 1 attempt; the pipeline continues, and stops")
    assert ends.startswith("the audit table lacks the end of this run; the next run adds what the")


def test_an_update_that_does_not_end_is_told_at_the_end(monkeypatch):
    monkeypatch.setattr(following, "_STEP_MS", 10)
    monkeypatch.setattr(following, "_CLOSE_MS", 10)
    told, begun, ends = EventLog(), threading.Event(), threading.Event()

    class Hangs(Fails):
        def catch_up(self, _deadline):
            begun.set()
            assert ends.wait(10)
            raise self.error

    follower = Follower(Hangs(UnavailableError("example", "away")), told, 2, every_s=0.001)
    follower.start()
    assert begun.wait(10)
    follower.close([{"attempt": 1}])
    (warned,) = (event.message for event in told.of(events.Warned))
    ends.set()
    assert warned.startswith("the audit table lacks the end of this run, and 1 aborted attempt;")


def test_an_error_that_nobody_thought_of_is_told_too():
    told = EventLog()
    follower = Follower(Fails(ZeroDivisionError("x")), told, 1, every_s=0.001)
    follower.start()
    follower.committed()
    with raises("audit_table_lag", PromiseBrokenError) as caught:
        follower.require()
    assert "ZeroDivisionError: x" in caught.value.message
    follower.close()


def test_the_thread_works_a_small_share_of_the_time():
    follower = Follower(Fails(ZeroDivisionError("x")), EventLog(), 1)
    assert follower.pause_s(0.001) == 1.0
    assert follower.pause_s(0.1) == 4.0
    assert follower.pause_s(60) == 5.0, "the table must not become old"
