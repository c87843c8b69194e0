"""One request on its way to one broker, and the certainty whether it left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from typing import Any

from eos.deadline import Deadline
from eos.errors import NoAnswerError

# The IO thread enforces a request's deadline. A caller gives it this long to say so before it
# stops waiting by itself: only a name lookup can keep the IO thread busy for longer.
_GRACE_MS = 300


class _State(Enum):
    QUEUED = "queued"  # -> SENT, DONE
    SENT = "sent"  # -> DONE
    DONE = "done"


class PendingRequest:
    """What a caller holds while a request is on its way. Settled once, by whoever comes first.

    The IO thread moves it from QUEUED to SENT right before the first byte is handed over; a caller
    whose time is up moves it from QUEUED to DONE instead. One lock decides between the two, so
    `sent: False` in the error is certain: such a request never leaves afterwards.
    """

    __slots__ = (
        "_error",
        "_event",
        "_lock",
        "_response",
        "_state",
        "after",
        "api",
        "deadline",
        "node",
        "on_sent",
        "request",
    )

    def __init__(
        self, node: int | str, request: Any, deadline: Deadline, after: PendingRequest | None = None
    ) -> None:
        self.node = node
        self.request = request
        self.api = str(request.name).removesuffix("Request")
        self.deadline = deadline
        self.after = after
        self.on_sent: Callable[[], None] | None = None  # called on the IO thread
        self._state = _State.QUEUED
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._response: Any = None
        self._error: Exception | None = None

    @property
    def done(self) -> bool:
        return self._state is _State.DONE

    @property
    def failed(self) -> bool:
        """No answer came, or none will."""
        return self._error is not None

    def begin(self) -> bool:
        """The IO thread is about to send it. False: the caller gave up before."""
        with self._lock:
            if self._state is not _State.QUEUED:
                return False
            self._state = _State.SENT
            return True

    def succeed(self, response: Any) -> None:
        self._settle(response, None)

    def fail(self, error: Exception) -> None:
        self._settle(None, error)

    def lose(self, cause: str) -> None:
        """No answer will come. Whether the request left is what the state says."""
        with self._lock:
            sent = self._state is not _State.QUEUED
        self._settle(None, self._no_answer(cause, sent))

    def wait(self, deadline: Deadline) -> Any:
        """The response. Raises `NoAnswerError` if none came in time or none will come."""
        if not self._event.wait((deadline.left_ms + _GRACE_MS) / 1000):
            self.lose("the time for it was up")
        if self._error is not None:
            raise self._error
        return self._response

    def _settle(self, response: Any, error: Exception | None) -> None:
        with self._lock:
            if self._state is _State.DONE:
                return
            self._response, self._error, self._state = response, error, _State.DONE
            self.request = self.after = None  # a produce request holds megabytes
        self._event.set()

    def _no_answer(self, cause: str, sent: bool) -> NoAnswerError:
        what = "was sent, and no answer came" if sent else "could not be sent"
        return NoAnswerError(
            f"{self.api} {what}: broker {self.node}: {cause}",
            api=self.api,
            node=self.node,
            sent=sent,
        )
