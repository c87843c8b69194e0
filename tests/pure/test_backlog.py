"""The bar of a backlog: when it is shown, and that what it estimates comes true."""

from __future__ import annotations

import pytest

from eos.observe.backlog import Backlog, Remaining


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
            text = self.text()
        return text

    def text(self) -> str:
        """What the line has of it, with a bar of ten characters."""
        found = self.backlog.remaining(self.lag)
        if found.share is None:
            return found.lag
        done = int(found.share * 10)
        bar = f"[{'#' * done}{'-' * (10 - done)}] {int(found.share * 100)} %"
        return ", ".join(filter(None, [f"{found.lag} {bar}", found.left]))


def test_a_backlog_has_a_bar_and_the_time_that_is_left() -> None:
    run = Run(lag=1_000_000, rate=10_000)  # 100 seconds
    assert run.backlog.remaining(None) == Remaining()
    assert run.step() == "lag 980,000 offsets", "the speed is not known yet"
    assert run.step() == "lag 960,000 offsets", "nothing is done of it yet"
    assert run.step() == "lag 940,000 offsets [----------] 2 %, 1 min left"
    assert run.step(22) == "lag 500,000 offsets [####------] 47 %, 50 s left"
    run.now += 1.5
    assert run.text() == "lag 500,000 offsets [####------] 47 %, 48 s left"
    run.now += 600  # the next micro-batch takes long
    assert run.text() == "lag 500,000 offsets [####------] 47 %, 0 s left"


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


def test_a_run_that_ends_on_its_own_has_a_bar_from_its_first_micro_batch_on() -> None:
    """Here the lag is known only after the first micro-batch, as with `available_now`."""
    run = Run(lag=40_000, rate=10_000)
    run.backlog.is_bounded = True
    run.backlog.begin()
    assert run.step() == "20,000 offsets left [#####-----] 50 %, 2 s left"
    run.backlog.begin()
    assert run.step() == "0 offsets left [##########] 100 %, 0 s left"


def test_a_run_whose_end_is_known_has_a_bar_at_once() -> None:
    run = Run(lag=100_000, rate=10_000)
    run.backlog.is_bounded = True
    run.backlog.begin()
    assert run.text() == "100,000 offsets left [----------] 0 %", "the speed is not known yet"
    assert run.step() == "80,000 offsets left [##--------] 20 %, 8 s left"
    assert run.step(3) == "20,000 offsets left [########--] 80 %, 2 s left"
