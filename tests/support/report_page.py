"""The report's page: histories to render, and a browser without a window to look at it.

The browser is Chromium, driven over a pipe by its own protocol and no library. It reports what a
person would see: the page's colours, what a key does, what the page tried to fetch and what its
policy refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from eos.audit.history import Transaction
from eos.inspect.audit_live import ClusterState
from eos.inspect.cluster_view import PastEnds
from eos.kafka.api import Identity, TopicPartition
from eos.local.processes import end_with_parent
from eos.report.content import PageContent, gather
from eos.report.lag import moments
from eos.report.page import Subject, page
from support.waiting import wait_until

NOW = datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
RECORDS = 10
_OURS, _OTHERS = ("/var/lib/eos", "host-1", 11), ("/var/lib/eos", "host-2", 12)


def transaction(number: int, topic: str = "orders", at: datetime = NOW, **values) -> Transaction:
    """Micro-batch `number`, which committed: ten records, in and out."""
    source, target = TopicPartition(topic, 0), TopicPartition(f"{topic}.out", 0)
    given = {
        "ledger_id": "lid",
        "ledger_offset": 2 * number,
        "kind": "attempt",
        "outcome": "CompleteCommit",
        "query_id": "q",
        "batch_id": number,
        "attempt": 1,
        "identity": Identity(9 + number // 30_000, number % 30_000),
        "error": "",
        "reason": "",
        "begun_at": at,
        "ended_at": at + timedelta(milliseconds=80 + number % 50),
        "writer": _OURS,
        "is_reset": False,
        "sources": {source: (number * RECORDS, (number + 1) * RECORDS)},
        "offsets_in": RECORDS,
        "records_read": None,
        "targets": {
            target: {
                "records": RECORDS,
                "sequence_first": 0,
                "sequence_last": RECORDS - 1,
                "offset_first": number * (RECORDS + 1),
                "offset_last": number * (RECORDS + 1) + RECORDS - 1,
                "bytes": 900,
            }
        },
        **values,
    }
    return Transaction(**given)


def aborted(number: int, at: datetime = NOW, **values) -> Transaction:
    given = {
        "outcome": "CompleteAbort",
        "targets": {},
        "error": "task_failed",
        "reason": "a writer's task failed",
        "identity": Identity(1, number),
        **values,
    }
    return transaction(number, at=at, **given)


def history(
    count: int,
    *,
    topic: str = "orders",
    every_s: float = 1.0,
    aborts: int = 0,
    fences: int = 0,
    reason: str = "a writer's task failed",
    is_measured: bool = False,
) -> Iterator[Transaction]:
    """`aborts`, `fences`: one in so many micro-batches; what is aborted is redone. `is_measured`:
    with a lag in time, and the steps of the micro-batch before."""
    writer = _OURS
    for number in range(count):
        at = NOW + timedelta(seconds=every_s * number)
        is_fenced = fences and number % fences == fences // 2
        is_aborted = aborts and number % aborts == aborts // 2
        if is_fenced:
            taken = "another process took the pipeline over"
            yield aborted(number, at, topic=topic, error="fenced", reason=taken, writer=writer)
            writer = _OTHERS if writer == _OURS else _OURS
        elif is_aborted:
            yield aborted(number, at, topic=topic, reason=reason, writer=writer)
        attempt = 2 if is_aborted or is_fenced else 1
        more: dict[str, Any] = {}
        if is_measured:
            more["lag_ms"] = 1_000 * (number % 90)
            if number:
                more["previous_ms"] = {"ledger": 6, "offsets": 4, "end": 25, "tables": 300}
        yield transaction(number, topic, at, attempt=attempt, writer=writer, **more)


def past_ends(found: PageContent, ahead: int, *, first: int = 0, every_s: float = 1.0) -> PastEnds:
    """The ends of a topic that got the records of `history` on time, and `ahead` more.

    The records before `first` were deleted, so that a broker answers with the next one."""
    tp = TopicPartition("orders", 0)
    by_time = {
        at: {tp: max(first, RECORDS * int((at - NOW).total_seconds() / every_s) + ahead)}
        for at in moments(found)
    }
    return PastEnds({tp: first}, by_time)


def make_page(
    found: Iterator[Transaction] | PageContent,
    pipeline: str = "orders_enriched",
    cluster: ClusterState | None = None,
    since: str = "",
) -> str:
    gathered = found if isinstance(found, PageContent) else gather(found)
    at = (gathered.last_at or NOW) + timedelta(minutes=1)
    table = "/var/lib/eos/audit/transactions"
    subject = Subject(pipeline, f"eos.ledger.{pipeline}", table, "0.1.0", at, since)
    return page(subject, gathered, cluster)


NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_ANSWER_S_MAX = 300  # a bound, not a measure


def find() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One page at a time."""

    def __init__(self, folder: Path) -> None:
        program = find()
        assert program, f"none of {', '.join(NAMES)} is here: tests/browser/install.sh"
        to_us, from_it = os.pipe()
        to_it, from_us = os.pipe()
        self._read, self._write = to_us, from_us

        def wired() -> None:
            end_with_parent()
            # The protocol's two ends are 3 and 4; first out of the way of one another.
            low, high = os.dup2(to_it, 200), os.dup2(from_it, 201)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self._process = subprocess.Popen(
            [
                program,
                "--headless",
                "--no-sandbox",  # as root there is none; it is shown our own pages only
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            preexec_fn=wired,  # noqa: PLW1509 - no thread of ours holds a lock here
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # it has much to say about the desktop that is not there
            start_new_session=True,
        )
        os.close(to_it)
        os.close(from_it)
        self._number, self._session = 0, ""
        self._received = b""
        self.events: list[dict[str, Any]] = []
        (target,) = [
            each["targetId"]
            for each in self.ask("Target.getTargets")["targetInfos"]
            if each["type"] == "page"
        ]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        found: dict[str, Any] = answer["result"]
        return found

    def open(self, page: Path, *, dark: bool = False, width: int = 1240) -> None:
        """Returns once it is loaded and its script has run."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        is_phone = width < 600
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=is_phone,
        )
        self.events.clear()
        loader = self.ask("Page.navigate", url=page.as_uri())["loaderId"]
        while not any(
            each["name"] == "load" and each["loaderId"] == loader
            for each in self.happened("Page.lifecycleEvent")
        ):
            self.events.append(self._next())

    def run(self, expression: str) -> Any:
        done = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for events, which arrive with the answer of any request."""
        wait_until(lambda: holds() or bool(self.run("0")), lambda: self.events)

    def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, text=text
            )

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = "none" if kind == "mouseMoved" else "left"
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def happened(self, method: str) -> list[dict[str, Any]]:
        return [each["params"] for each in self.events if each.get("method") == method]

    @property
    def fetched(self) -> list[str]:
        """What the page asked for beside itself."""
        asked = [each["request"]["url"] for each in self.happened("Network.requestWillBeSent")]
        return asked[1:]

    @property
    def complaints(self) -> list[str]:
        """Of the console: what was refused, what failed."""
        entries = [each["entry"]["text"] for each in self.happened("Log.entryAdded")]
        thrown = self.happened("Runtime.exceptionThrown")
        return entries + [each["exceptionDetails"]["text"] for each in thrown]

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._read], [], [], _ANSWER_S_MAX)
            assert ready, "the browser does not answer"
            some = os.read(self._read, 1 << 20)
            assert some, "the browser died"
            self._received += some
        message, _, self._received = self._received.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Chromium]:
    made = Chromium(folder)
    try:
        yield made
    finally:
        made.close()
