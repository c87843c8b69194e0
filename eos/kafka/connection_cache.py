"""Which connections does a process keep between Spark's tasks, and what happens on a fork?"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Any, Protocol

_KEPT_MAX = 8  # settings rarely change within a Python worker, for example with rotated secrets


class _Closable(Protocol):
    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...


_lock = threading.Lock()
_kept: dict[Hashable, Any] = {}
_open: set[Any] = set()
_inherited: list[Any] = []


def shared_wire(key: Hashable, make: Callable[[], _Closable]) -> _Closable:
    """Return the cached client of this key, or make one. Close the least recently used surplus."""
    with _lock:
        wire: _Closable | None = _kept.pop(key, None)
        if wire is None or wire.closed:
            wire = make()
        _kept[key] = wire
        surplus = [_kept.pop(next(iter(_kept))) for _ in range(len(_kept) - _KEPT_MAX)]
    for old in surplus:
        old.close()
    return wire


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
    _inherited.extend(_kept.values())
    _open.clear()
    _kept.clear()


os.register_at_fork(after_in_child=_after_fork)
