"""Repeat what a command shows until a signal ends it, as `eos status --watch` does."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from datetime import datetime, timezone
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from eos.errors import EosError, Recovery, UnavailableError
from eos.inspect.layout import utc
from eos.printable import printable

_PATIENCE_S = 5  # at least, before a look without a result is reported


class Look(NamedTuple):
    """The output of one call of a command: a text, and the fields of a JSON object."""

    text: str
    fields: Mapping[str, Any]
    exit_code: int = 0


def watch(look: Callable[[], Look], interval_s: int, *, as_json: bool) -> NoReturn:
    """Call `look` and show its result, again and again. It never returns.

    A terminal is redrawn. Any other stdout gets one result after another, as text or as one JSON
    object a line. SIGINT and SIGTERM end the process with exit code 130 and 143. An error that may
    pass, such as a broker that is away, is shown. Any other error is raised.
    """
    signal.signal(signal.SIGTERM, _terminate)
    is_drawn = not as_json and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    with _drawn(interval_s) if is_drawn else _printed(as_json) as show:
        for found in _looks(look, interval_s):
            show(found)
    raise AssertionError("looks never end")


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)  # unlike the signal's default, this restores the cursor


@contextmanager
def _drawn(interval_s: int) -> Iterator[Callable[[Look], None]]:
    """Yield a function that draws a result in the place of the last one."""
    # Late: without a terminal they are not needed.
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(force_terminal=True), auto_refresh=False) as live:

        def show(found: Look) -> None:
            text = f"{_now()}, every {interval_s} s until Ctrl-C\n{found.text}"
            live.update(Text(text, overflow="fold"), refresh=True)

        yield show


@contextmanager
def _printed(as_json: bool) -> Iterator[Callable[[Look], None]]:
    """Yield a function that prints a result after the last one."""

    def show(found: Look) -> None:
        if as_json:
            print(json.dumps({"at": _now(), **found.fields}), flush=True)
        else:
            print(f"{_now()}\n{found.text}\n", flush=True)

    yield show


def _now() -> str:
    return utc(datetime.now(timezone.utc))


def _looks(look: Callable[[], Look], interval_s: int) -> Iterator[Look]:
    """Yield the results of `look`, one `interval_s` after the end of the last.

    While a call has no result, yield that instead: brokers may need minutes until they time out.
    """
    while True:
        began, looking = time.monotonic(), _begin(look)
        while not wait([looking], max(interval_s, _PATIENCE_S)).done:
            yield _shown(
                UnavailableError(
                    "still_waiting",
                    f"no response for {time.monotonic() - began:.0f} s",
                    hint="the command still waits; `eos doctor` checks what responds",
                )
            )
        error = looking.exception()
        if isinstance(error, EosError) and error.recovery in (Recovery.RESTART, Recovery.REDO):
            yield _shown(error)
        else:
            yield looking.result()
        time.sleep(interval_s)  # the user chose it; a signal ends the process


def _begin(look: Callable[[], Look]) -> Future[Look]:
    """Call `look` in a thread that the end of the process does not wait for."""
    future: Future[Look] = Future()

    def call() -> None:
        try:
            future.set_result(look())
        except Exception as error:  # noqa: BLE001 - raised again by `Future.result`
            future.set_exception(error)

    threading.Thread(target=call, name="eos-look", daemon=True).start()
    return future


def _shown(error: EosError) -> Look:
    named = {"code": error.code, "message": error.message, "hint": error.hint}
    return Look(f"eos: {printable(str(error))}", {"error": named})
