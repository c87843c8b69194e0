"""Calls of code that is not this project's, such as a user's function, with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from eos.deadline import Deadline

_calls: dict[str, Future[Any]] = {}
_lock = threading.Lock()


class LateError(Exception):
    """A call has no result at its deadline."""


def bounded_call(name: str, function: Callable[[], Any], deadline: Deadline) -> Any:
    """Return the function's result, or raise its error. Raise LateError at the deadline.

    A call that hangs can't be ended, and keeps its thread. So while a call of this name runs, no
    other one begins: it waits for the result of the first one.
    """
    with _lock:
        call = _calls.get(name)
        if call is None:
            call = Future()
            target = threading.Thread(
                target=_run, args=(name, call, function), name="eos-token", daemon=True
            )
            target.start()  # may raise; only a call that runs may keep others waiting
            _calls[name] = call
    if not wait([call], deadline.left_ms / 1000).done:
        raise LateError
    return call.result()


def _run(name: str, call: Future[Any], function: Callable[[], Any]) -> None:
    result, raised = None, None
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        raised = error
    with _lock:
        del _calls[name]
    if raised is None:
        call.set_result(result)
    else:
        call.set_exception(raised)
