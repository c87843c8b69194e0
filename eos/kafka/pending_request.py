"""Handle of a request to a broker: whether the request was sent, and its answer or error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from typing import Any

from eos.deadline import Deadline
from eos.errors import NoAnswerError

Node = int | str  # a broker's id, or "bootstrap-<n>"

# The IO thread enforces a request's deadline. A caller waits this much longer, and then ends the
# request itself. Only a name lookup can block the IO thread for longer.
GRACE_MS = 300


class _State(Enum):
    QUEUED = "queued"  # next: SENT or DONE
    SENT = "sent"  # next: DONE
    DONE = "done"


class PendingRequest:
    """Handle of a request in flight. It gets one result; later results are ignored.

    Two threads race for a QUEUED request:

    1. The IO thread moves it to SENT right before it writes the first byte.
    2. A caller whose deadline has passed moves it to DONE instead.

    A lock ensures that only one of them succeeds. So `sent: False` in an error is certain: the
    request is never sent afterwards.
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
        self, node: Node, request: Any, deadline: Deadline, after: PendingRequest | None = None
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
        """Return whether the request ended without an answer."""
        return self._error is not None

    def begin(self) -> bool:
        """Mark the request as sent, right before its first byte is written.

        Return False if the request has ended already. Then it must not be sent."""
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
        """End the request without an answer. Its error states whether it was sent."""
        with self._lock:
            sent = self._state is not _State.QUEUED
        self._settle(None, no_answer(self.api, self.node, cause, sent=sent))

    def wait(self, deadline: Deadline) -> Any:
        """Return the response. Raise NoAnswerError if none arrived before the deadline, or the
        connection was lost."""
        if not self._event.wait((deadline.left_ms + GRACE_MS) / 1000):
            self.lose("its deadline passed")
        if self._error is not None:
            raise self._error
        return self._response

    def _settle(self, response: Any, error: Exception | None) -> None:
        with self._lock:
            if self._state is _State.DONE:
                return
            self._response, self._error, self._state = response, error, _State.DONE
            self.request = self.after = None  # free them: a Produce request holds megabytes
        self._event.set()


def no_answer(api: str, node: Node, cause: str, *, sent: bool) -> NoAnswerError:
    if sent:
        return NoAnswerError(
            "request_unanswered",
            f"{api} was sent, but broker {node} did not answer: {cause}",
            api=api,
            node=node,
            sent=True,
        )
    return NoAnswerError(
        "request_not_sent",
        f"{api} could not be sent to broker {node}: {cause}",
        api=api,
        node=node,
        sent=False,
    )
