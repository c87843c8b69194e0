"""The form in which a process writes the lines of its log.

    console   eos: micro-batch 7 committed: ...
    text      2026-11-24T18:00:00.123Z info micro-batch 7 committed: ... pipeline=orders batch_id=7
    json      {"time": "2026-11-24T18:00:00.123Z", "level": "info", "pipeline": "orders", ...}

`text` and `json` have the same fields. A process chooses its form once, when it has read its
options; before that it writes for a console.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, TextIO

from eos.printable import one_line

CONSOLE = "console"
FORMATS = (CONSOLE, "text", "json")
LEVELS = ("debug", "info", "warning", "error")
DEFAULT_LEVEL = "info"
_PLAIN = re.compile(r"[\w.:/+@-]+", re.ASCII)  # a value that needs no quotes


@dataclass(frozen=True, slots=True)
class LogForm:
    """A format, the lowest level to write, and the pipeline of the process, once it is known."""

    format: str = CONSOLE
    level: str = DEFAULT_LEVEL
    pipeline: str = ""

    @property
    def is_console(self) -> bool:
        return self.format == CONSOLE

    def has(self, level: str) -> bool:
        """Return whether lines of this level are written."""
        return LEVELS.index(level) >= LEVELS.index(self.level)

    def line(self, level: str, message: str, fields: Mapping[str, Any]) -> str:
        """Return a line of the log, without a line feed.

        A process with several pipelines has the field `pipeline` in the lines of each."""
        if self.is_console:
            name = fields.get("pipeline")
            return f"eos: {name}: {one_line(message)}" if name else f"eos: {one_line(message)}"
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        time = now.removesuffix("+00:00") + "Z"
        named = {"pipeline": self.pipeline} if self.pipeline else {}
        named |= fields
        if self.format == "json":
            return json.dumps({"time": time, "level": level, "message": message, **named})
        values = "".join(f" {name}={_value(value)}" for name, value in named.items())
        return f"{time} {level} {one_line(message)}{values}"


_form = LogForm()


def choose(log_format: str = CONSOLE, level: str = DEFAULT_LEVEL) -> None:
    """Choose the form of this process."""
    global _form
    _form = LogForm(log_format, level)


def name_pipeline(pipeline: str) -> None:
    """Add the pipeline to all further lines."""
    global _form
    _form = replace(_form, pipeline=pipeline)


def chosen() -> LogForm:
    return _form


def write(
    message: str, level: str = DEFAULT_LEVEL, stream: TextIO | None = None, **fields: Any
) -> None:
    """Write a line to stderr, or to `stream`, unless its level is too low."""
    if _form.has(level):
        to = sys.stderr if stream is None else stream
        # One call: other threads and Spark write to the same stream.
        to.write(f"{_form.line(level, message, fields)}\n")
        to.flush()


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(value)
