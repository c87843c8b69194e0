"""A history, written down while it happens."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Recorder:
    """Appends events to a file, a JSON object a line, and keeps those of the present round."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[Mapping[str, Any]] = []
        self._lock = threading.Lock()
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def add(self, **event: Any) -> None:
        line = json.dumps(event, separators=(",", ":"))
        with self._lock:
            self.events.append(event)
            self._file.write(line + "\n")

    def next_round(self) -> list[Mapping[str, Any]]:
        """The events since the last call."""
        with self._lock:
            found, self.events = self.events, []
        return found

    def close(self) -> None:
        self._file.close()
