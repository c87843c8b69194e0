"""Cache of Kafka clients for later Spark tasks of a process, and their protection on a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Any, Protocol

_KEPT_MAX = 8  # cached clients; a worker rarely gets other settings than before


class _Closable(Protocol):
    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...


_lock = threading.Lock()
_clients: dict[Hashable, Any] = {}
_open: set[Any] = set()
_inherited: list[Any] = []


def reuse(key: Hashable, build: Callable[[], _Closable]) -> _Closable:
    """Return the cached client of this key, or build one if there is none or it is closed.

    Above eight clients, the least recently used one is closed."""
    with _lock:
        client: _Closable | None = _clients.pop(key, None)
        if client is None or client.closed:
            client = build()
        _clients[key] = client
        surplus = [_clients.pop(next(iter(_clients))) for _ in range(len(_clients) - _KEPT_MAX)]
    for old in surplus:
        old.close()
    return client


def opened(connections: object) -> None:
    _open.add(connections)


def closed(connections: object) -> None:
    _open.discard(connections)


def _after_fork() -> None:
    """Keep the child of a fork from using, closing or collecting the parent's connections.

    The child inherits the parent's sockets and epoll instance, but not the IO thread. Closing a
    socket would close the parent's connection. Garbage-collecting a suspended task would remove the
    parent's socket from the epoll set, which both processes share. So the child keeps references
    to them, unused, until it ends. The lock is replaced, because another thread may have held it.
    """
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_open)
    _inherited.extend(_clients.values())
    _open.clear()
    _clients.clear()


os.register_at_fork(after_in_child=_after_fork)
