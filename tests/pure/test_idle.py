"""The watch beside an idle pipeline: how often it refreshes, what it survives, how it ends.

The pipeline is a real one on the simulated broker; only the broker's settings are made up.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.doubles import plan
from support.errors import make_error
from support.simulated_broker.runs import LEDGER, FewTries, Interrupt, World
from support.simulated_broker.wire import stored
from support.waiting import wait_until

from eos.deadline import Deadline
from eos.errors import (
    EosError,
    FencedError,
    KafkaRefusedError,
    Recovery,
    UnavailableError,
)
from eos.ledger.ledger import Ledger
from eos.observe import events
from eos.run.idle_refresh import IdleWatch, interval_ms
from eos.startup.ownership import RunLock
from eos.transaction import micro_batch as module

DAY_MS = 86_400_000
WEEK_MINUTES = 7 * 24 * 60
EVERY_MS = 4


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Deadline", FewTries)


# --- how often ----------------------------------------------------------------------------------


class Settings(dict):
    """A broker's: what is not there is nobody's business here."""

    def broker_config(self, name: str, _deadline: Deadline) -> str:
        if name not in self:
            raise KafkaRefusedError("example", f"{name} is not told")
        return str(self[name])


@pytest.mark.parametrize(
    ("minutes", "id_ms", "expected_ms"),
    [
        (WEEK_MINUTES, 7 * DAY_MS, DAY_MS),
        (1, 7 * DAY_MS, 15_000),
        (WEEK_MINUTES, 4_000, 1_000),
        (2 * 24 * 60, None, DAY_MS // 2),
        (None, None, DAY_MS),
    ],
)
def test_four_times_before_anything_expires_and_once_a_day_at_least(minutes, id_ms, expected_ms):
    given = {"offsets.retention.minutes": minutes, "transactional.id.expiration.ms": id_ms}
    settings = Settings({name: value for name, value in given.items() if value is not None})
    assert interval_ms(settings, Deadline.after_ms(1)) == expected_ms


# --- what it does -------------------------------------------------------------------------------


class Watched:
    """A pipeline that has done its first micro-batch, and its watch."""

    def __init__(self, lock: RunLock) -> None:
        self.world = World()
        self.world.run(0)
        self.stops: list[EosError] = []
        self.watch = IdleWatch(
            self.world.batches, EVERY_MS, lock, self.world.emitted, self.stops.append
        )
        self.watch.start()

    def refreshes(self) -> int:
        with self.world.batches.lock:  # nothing is under way
            entries = self.world.broker.read_committed(LEDGER)
            bodies = [json.loads(stored(entry)[0].value) for entry in entries]
        return sum(body["kind"] == "refresh" for body in bodies)

    def warnings(self) -> list[str]:
        return [event.message for event in self.world.of_kind(events.Warned)]

    def until(self, what: Callable[[], bool]) -> None:
        wait_until(what, self.warnings)

    def goes_on(self) -> None:
        before = self.refreshes()
        self.until(lambda: self.refreshes() > before)


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[RunLock]:
    made = RunLock(plan(tmp_path / "lock"))
    yield made
    made.close()


@pytest.fixture
def idle(lock: RunLock) -> Iterator[Watched]:
    made = Watched(lock)
    yield made
    made.watch.stop()


def is_running() -> bool:
    return any(thread.name == "eos-idle" for thread in threading.enumerate())


def test_an_idle_pipeline_refreshes_again_and_again_until_it_is_stopped(idle):
    idle.until(lambda: idle.refreshes() >= 2)
    idle.watch.stop()
    assert not is_running()
    assert not idle.warnings()
    idle.world.run(1)
    idle.world.check(2)


def test_a_watch_that_never_started_or_stopped_before_is_stopped_at_once(idle, lock):
    IdleWatch(idle.world.batches, EVERY_MS, lock, idle.world.emitted, idle.stops.append).stop()
    idle.watch.stop()
    idle.watch.stop()
    assert not is_running()


def test_it_ends_by_itself_when_another_copy_took_over_and_says_so_once(idle):
    with idle.world.batches.lock:
        idle.world.another()
    idle.until(lambda: not is_running())
    assert [type(error) for error in idle.stops] == [FencedError]
    assert not idle.warnings()
    idle.watch.stop()


def test_a_ledger_that_lost_records_ends_the_run_and_accuses_no_other_copy(idle):
    with idle.world.batches.lock:
        idle.world.broker.logs[LEDGER].cut(2)
    idle.until(lambda: not is_running())
    (error,) = idle.stops
    assert (error.recovery, error.code) == (Recovery.STOP, "ledger_cut")
    assert "records that Kafka had acknowledged are gone" in error.message
    assert "eos recover p" in error.hint
    assert not idle.warnings()


def test_a_refusal_that_a_restart_would_meet_again_ends_the_run(idle):
    idle.world.crash = Interrupt("refresh.offsets:before", KafkaRefusedError)
    idle.until(lambda: not is_running())
    assert [type(error) for error in idle.stops] == [KafkaRefusedError]
    assert not idle.warnings()


@pytest.mark.parametrize("kind", [UnavailableError, ValueError])
def test_it_tells_of_any_other_error_and_goes_on(idle, kind):
    idle.world.crash = Interrupt("refresh.offsets:before", kind)
    idle.until(lambda: any("refresh failed" in message for message in idle.warnings()))
    idle.goes_on()
    assert not idle.stops


@pytest.mark.parametrize("kind", [UnavailableError, ValueError])
def test_a_ledger_that_can_not_be_trimmed_does_not_end_it(monkeypatch, lock, kind):
    def fails(*_: object, **__: object) -> None:
        raise make_error(kind, "ListOffsets had no answer")

    monkeypatch.setattr(Ledger, "trim", fails)
    idle = Watched(lock)
    idle.until(lambda: any("ListOffsets had no answer" in message for message in idle.warnings()))
    idle.goes_on()
    idle.watch.stop()


def test_a_disk_that_is_full_prevents_no_refresh(monkeypatch, lock):
    """The lock's file gets the number of who holds it."""

    def full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(lock, "try_acquire", full)
    idle = Watched(lock)
    idle.goes_on()
    assert idle.warnings()
    assert all("No space left" in message for message in idle.warnings())
    idle.watch.stop()


def test_it_takes_the_lock_that_a_replaced_copy_still_held(tmp_path, lock):
    planned = plan(tmp_path / "lock")
    older, another = RunLock(planned), RunLock(planned)
    older.acquire(is_forced=False)
    lock.acquire(is_forced=True)
    idle = Watched(lock)
    idle.goes_on()
    older.close()
    idle.goes_on()
    idle.goes_on()  # a whole turn lies between the two
    assert not another.try_acquire()
    idle.watch.stop()
    another.close()
