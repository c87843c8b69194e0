"""The connections that a process keeps between Spark's tasks, and what a fork does to them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Any, Protocol

_KEPT_MAX = 8  # settings change seldom within a Python worker: with rotated secrets


class _Closable(Protocol):
    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...


_lock = threading.Lock()
_kept: dict[Hashable, Any] = {}
_open: set[Any] = set()
_inherited: list[Any] = []


def shared_wire(key: Hashable, make: Callable[[], _Closable]) -> _Closable:
    """The least recently asked for makes room when there are too many."""
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
    """Keeps the parent's connections from being used, closed or collected in the child.

    A child has the parent's sockets and its epoll instance, but not its IO thread. To close a
    socket properly would hang up the parent's connection, and to collect a suspended task would
    take the parent's socket out of the epoll set, which the two processes share. So they stay
    referenced, untouched, until the child ends. The lock is new: another thread may have held it.
    """
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_open)
    _inherited.extend(_kept.values())
    _open.clear()
    _kept.clear()


os.register_at_fork(after_in_child=_after_fork)
