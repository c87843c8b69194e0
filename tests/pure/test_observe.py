"""Events reach who listens, in order; nobody who listens can hold up or break the pipeline."""

import io
import threading
from dataclasses import replace

import pytest

from eos.observe import events
from eos.observe.bus import Bus
from eos.observe.console import Console, line

COMMITTED = events.MicroBatchCommitted(
    batch_id=7,
    attempt=1,
    offsets_in=20_000,
    records_in=20_000,
    records_out=19_999,
    bytes_out=1_234_567,
    run_ms=200.4,
    ledger_ms=3.0,
    offsets_ms=5.0,
    end_ms=3.0,
)


def skipped(number: int) -> events.MicroBatchSkipped:
    return events.MicroBatchSkipped(batch_id=number)


def test_every_subscriber_sees_every_event_in_order():
    bus, first, second = Bus(), [], []
    bus.subscribe(first.append)
    bus.subscribe(second.append)
    for number in range(100):
        bus.emit(skipped(number))
    bus.close()
    assert first == second == [skipped(number) for number in range(100)]


def test_a_failing_subscriber_hurts_nobody_and_is_let_go():
    calls, seen = [], []

    def fails(event):
        calls.append(event)
        raise RuntimeError("broken")

    bus = Bus()
    bus.subscribe(fails)
    bus.subscribe(seen.append)
    for number in range(10):
        bus.emit(skipped(number))
    bus.close()
    assert len(seen) == 10
    assert len(calls) == 3


def test_emit_returns_while_a_subscriber_hangs_and_drops_what_has_no_room():
    entered, release, seen = threading.Event(), threading.Event(), []

    def hangs(event):
        entered.set()
        release.wait(300)
        seen.append(event)

    bus = Bus(events_max=5)
    bus.subscribe(hangs)
    bus.emit(skipped(0))
    assert entered.wait(300)
    for number in range(1, 11):
        bus.emit(skipped(number))
    assert bus.dropped == 5
    release.set()
    bus.close()
    warned = events.Warned("5 events were dropped")
    assert seen == [skipped(0), warned, *(skipped(number) for number in range(1, 6))]


def test_close_gives_up_on_a_subscriber_that_hangs():
    entered, release = threading.Event(), threading.Event()

    def hangs(_event):
        entered.set()
        release.wait(300)

    bus = Bus()
    bus.subscribe(hangs)
    bus.emit(skipped(0))
    assert entered.wait(300)
    bus.close(timeout_s=0.01)
    assert not release.is_set()
    release.set()


def test_a_closed_bus_takes_nothing_and_closes_twice():
    bus, seen = Bus(), []
    bus.subscribe(seen.append)
    bus.close()
    bus.emit(skipped(1))
    bus.close()
    assert seen == []


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (events.PipelineStarted("p", "/c"), "pipeline p started, checkpoint /c"),
        (events.PipelineStarted("p"), "pipeline p started"),
        (
            events.PipelineStarted("p", "", "Spark's Kafka source", "it has state"),
            "pipeline p started, Spark's Kafka source reads the source (it has state)",
        ),
        (
            COMMITTED,
            "micro-batch 7 committed: 20,000 records in, 19,999 out, 1.2 MB in 211 ms",
        ),
        (
            replace(COMMITTED, offsets_in=71_337, records_in=48_968),
            (
                "micro-batch 7 committed: 48,968 records in (71,337 offsets), 19,999 out, "
                "1.2 MB in 211 ms"
            ),
        ),
        (
            replace(COMMITTED, records_in=None),
            "micro-batch 7 committed: 20,000 offsets in, 19,999 out, 1.2 MB in 211 ms",
        ),
        (skipped(3), "micro-batch 3 skipped: it is already committed in the ledger"),
        (
            events.AttemptFailed(3, 1, "a task died", will_redo=True),
            "warning: micro-batch 3, attempt 1 failed: a task died; it is retried",
        ),
        (
            events.AttemptFailed(3, 5, "a task died", will_redo=False),
            "warning: micro-batch 3, attempt 5 failed: a task died; it is not retried",
        ),
        (
            events.AttemptFailed(3, 1, "interrupted", will_redo=False, is_requested=True),
            "micro-batch 3 aborted: the run is stopping, the next run retries it",
        ),
        (
            events.AttemptRetried(3, 1, "dedup found 2 duplicate records. Retrying"),
            "micro-batch 3, attempt 1: dedup found 2 duplicate records. Retrying",
        ),
        (
            events.Stopping(20.0),
            (
                "stopping: the open micro-batch has 20 s to commit before it is aborted; a second "
                "signal ends the run at once"
            ),
        ),
        (
            events.BrokersSilent(1_795_000_000.0, 9.4, "no broker of b:1 answers", "is it up?"),
            (
                "warning: no broker has responded since 2026-11-18 11:06:40 UTC, for 9 s: no "
                "broker of b:1 answers; the pipeline waits and retries. is it up?"
            ),
        ),
        (
            events.BrokersAnswer(75.2),
            "a broker responds again, after 75 s without a response",
        ),
        (events.Stopped("p", "drained"), "pipeline p stopped: drained"),
        (
            events.Stopped("p", "drained", (("malformed", "drop", 2), ("a", "dead_letter", 9))),
            (
                "pipeline p stopped: drained; 2 malformed records dropped; 9 records sent to the "
                "dead letters by rule `a`"
            ),
        ),
        (
            events.RecordsRefused(3, "a", "drop", 2, "in", 1, 7),
            "warning: micro-batch 3: 2 records dropped by rule `a`, the first is in-1 at offset 7",
        ),
        (events.Warned("lag"), "warning: lag"),
        (events.Event(), None),
    ],
)
def test_each_event_is_one_line_or_none(event, expected):
    assert line(event) == expected
    stream = io.StringIO()
    Console(stream)(event)
    assert stream.getvalue() == ("" if expected is None else f"eos: {expected}\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_without_no_color(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    Console(terminal)(events.Warned("lag"))
    assert terminal.getvalue() == "\x1b[33meos: warning: lag\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    Console(terminal)(events.Warned("lag"))
    assert terminal.getvalue() == "eos: warning: lag\n"


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000_000, "2.5 GB")]
)
def test_sizes_are_short(count, shown):
    from eos.observe.console import size

    assert size(count) == shown
