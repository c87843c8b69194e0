"""The bar of a backlog: when it is shown, and that what it estimates comes true."""

from __future__ import annotations

import pytest

from eos.observe.backlog import Backlog


class Run:
    """Commits `rate` offsets a second, in micro-batches of `step_s` seconds."""

    def __init__(self, lag: int, rate: int, step_s: float = 2.0, arriving: int = 0) -> None:
        self.now, self.lag = 1_000.0, lag
        self.rate, self.step_s, self.arriving = rate, step_s, arriving
        self.backlog = Backlog(lambda: self.now)

    def step(self, count: int = 1) -> str:
        for _ in range(count):
            self.now += self.step_s
            committed = min(int(self.rate * self.step_s), self.lag)
            self.backlog.committed(committed)
            self.lag += int(self.arriving * self.step_s) - committed
            text = self.backlog.text(self.lag)
        return text


def test_a_backlog_has_a_bar_and_the_time_that_is_left() -> None:
    run = Run(lag=1_000_000, rate=10_000)  # 100 seconds
    assert run.backlog.text(None) == ""
    assert run.step() == "lag 980,000 offsets", "the speed is not known yet"
    assert run.step() == "lag 960,000 offsets", "nothing is done of it yet"
    assert run.step() == "lag 940,000 offsets [----------] 2 %, 1 min left"
    assert run.step(22) == "lag 500,000 offsets [####------] 47 %, 50 s left"
    run.now += 1.5
    assert run.backlog.text(run.lag) == "lag 500,000 offsets [####------] 47 %, 48 s left"
    run.now += 600  # the next micro-batch takes long
    assert run.backlog.text(run.lag) == "lag 500,000 offsets [####------] 47 %, 0 s left"


def test_the_time_counts_what_arrives_meanwhile() -> None:
    run = Run(lag=10_000_000, rate=10_000, arriving=5_000)  # 2,000 seconds
    began = run.now
    text = run.step(200)
    left_s = 2_000 - (run.now - began)
    assert text.endswith(f", {int(left_s) // 60} min left")


def test_a_run_that_keeps_up_has_no_bar() -> None:
    run = Run(lag=250_000, rate=10_000, arriving=9_000)
    assert all("[" not in run.step() for _ in range(50))


def test_it_ends_and_the_next_one_begins_anew() -> None:
    run = Run(lag=1_000_000, rate=10_000, arriving=100)
    assert "[" in run.step(40)
    bars = [text for text in (run.step() for _ in range(50)) if "[" in text]
    assert bars[-1].endswith(" 92 %, 7 s left")
    assert "[" not in run.step(20)
    run.lag += 2_000_000
    run.step()
    assert " 0 %, 3 min left" in run.step()


def test_a_backlog_that_grows_has_no_end_until_it_shrinks() -> None:
    run = Run(lag=1_000_000, rate=10_000, arriving=11_000)
    assert all("[" not in run.step() for _ in range(50))
    assert run.lag == 1_100_000
    run.arriving = 0
    assert run.step(1) == "lag 1,080,000 offsets [----------] 1 %, 1 min left"
    assert run.step(26) == "lag 560,000 offsets [####------] 49 %, 56 s left"


@pytest.mark.parametrize(
    ("lag", "text"), [(10_000 * 3600 * 3, "2 h 59 min"), (10_000 * 3600 * 200, "over 99 h")]
)
def test_hours(lag: int, text: str) -> None:
    assert Run(lag, 10_000).step(5).endswith(f" 0 %, {text} left")
