"""A cluster whose every request is announced, so that a test can let something happen before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eos.kafka.client import KafkaClient

_ASKS_NOBODY = {"close", "forget_coordinators"}


class Watched:
    """In the place of a `Wire`: calls `before` with the name of what is asked, then asks it."""

    def __init__(self, wire: KafkaClient, before: Callable[[str], None]) -> None:
        self._wire = wire
        self._before = before

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wire, name)
        if not callable(found) or name in _ASKS_NOBODY:
            return found

        def asked(*arguments: Any, **options: Any) -> Any:
            self._before(name)
            return found(*arguments, **options)

        return asked
