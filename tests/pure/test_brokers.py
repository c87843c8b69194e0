"""The watch that reports an outage of all brokers, by a clock of its own."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
from support.waiting import wait_until

from eos.deadline import Deadline
from eos.errors import KafkaRefusedError, UnavailableError
from eos.observe import events
from eos.run import broker_outage as module
from eos.run.broker_outage import BrokerWatch

REPORTED_WITHIN_S = 15
NOON = 1_795_000_000.0  # what the day's clock says when the other is at 0
DOWN = UnavailableError(
    "example", "no broker of b:9092 answers: ECONNREFUSED", hint="is the broker up?"
)


@dataclass
class World:
    """A cluster, the run's other requests, and a clock that only this test moves."""

    time: float = 100.0
    answered_at: float = 100.0
    failure: Exception | None = None
    ask_s: float = 0.0  # how long a question takes that is not answered
    asked: int = 0
    told: list[events.Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        clock, now = (lambda: self.time), (lambda: NOON + self.time)
        self.watch = BrokerWatch(self, self.told.append, clock, now)

    def refresh_metadata(self, topics: tuple[str, ...], deadline: Deadline) -> None:
        assert (topics, deadline.has_passed) == ((), False)
        self.asked += 1
        if self.failure is not None:
            self.time += self.ask_s
            raise self.failure
        self.answered_at = self.time

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.time += module._TICK_S
            self.watch.poll()


@pytest.mark.parametrize("ask_s", [0.0, 1.5, module._ASK_MS / 1000 + 0.3])
@pytest.mark.parametrize("phase_s", [0.0, 0.1, 1.0, 1.9, 1.99])
def test_an_outage_is_reported_in_time_once_with_its_beginning_and_its_end(
    ask_s: float, phase_s: float
) -> None:
    world = World(ask_s=ask_s)
    world.rounds(20)
    assert world.told == []
    last, world.failure = world.answered_at, DOWN
    world.time += phase_s
    while not world.told:
        world.rounds(1)
    assert world.time - last <= REPORTED_WITHIN_S
    (silent,) = world.told
    assert isinstance(silent, events.BrokersSilent)
    assert silent.since == pytest.approx(NOON + last)
    assert (silent.reason, silent.hint) == (DOWN.message, DOWN.hint)
    world.rounds(50)
    assert len(world.told) == 1, "once for each outage"
    world.failure = None
    world.rounds(1)
    assert world.told[1:] == [events.BrokersAnswer(pytest.approx(world.time - last))]
    world.rounds(50)
    assert len(world.told) == 2
    world.failure = DOWN
    world.rounds(20)
    assert len(world.told) == 3, "the next outage is reported, too"


def test_brokers_that_answer_the_run_are_not_asked() -> None:
    world = World()
    for _ in range(50):
        world.answered_at = world.time
        world.rounds(1)
    assert (world.asked, world.told) == (0, [])


def test_an_answer_to_another_request_ends_an_outage() -> None:
    world = World(failure=DOWN)
    world.rounds(10)
    world.answered_at = world.time
    world.rounds(1)
    assert [type(event) for event in world.told] == [events.BrokersSilent, events.BrokersAnswer]


def test_a_short_silence_and_a_broker_that_refuses_the_request_are_no_outage() -> None:
    world = World(failure=DOWN)
    world.rounds(2)
    world.failure = None
    world.rounds(1)
    world.failure = KafkaRefusedError("example", "this user may not")
    world.rounds(50)
    assert world.told == []


def test_it_looks_again_and_again_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TICK_S", 0.001)
    world = World(failure=DOWN)
    world.time += 60
    world.watch.start()
    wait_until(lambda: world.told)
    world.watch.stop()
    assert all(thread.name != "eos-brokers" for thread in threading.enumerate())
