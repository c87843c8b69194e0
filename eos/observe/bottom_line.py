"""The bottom line of a terminal, drawn by rich. Other lines are printed above it.

rich writes to the stream that the process has as stderr: a pipe to the launcher. The launcher
passes on the terminal's device, from which each drawing reads the present width.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TextIO, cast

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

_COLUMNS, _COLUMNS_MIN, _COLUMNS_MAX = 80, 40, 400  # default: for a terminal that reports 0
_ROWS = 24  # rich asks for a height; the line never needs a second row
_BAR_CELLS = 10


@dataclass(frozen=True, slots=True)
class Terminal:
    """The launcher's terminal: its width when the run started, and its device."""

    columns: int
    device: str = ""

    @property
    def width(self) -> int:
        """Return the present width, within bounds. If the device can't be read, return the width
        at the run's start."""
        columns = self.columns
        if self.device:
            try:
                device = os.open(self.device, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
                with closing(os.fdopen(device)):
                    columns = os.get_terminal_size(device).columns
            except (OSError, ValueError):
                pass
        return min(max(columns or _COLUMNS, _COLUMNS_MIN), _COLUMNS_MAX)


class BottomLine:
    """One line at the bottom of a terminal. Writes to `above` appear above it.

    Only the thread that draws starts and ends it, so no other thread waits for that."""

    def __init__(self, stream: TextIO, terminal: Terminal) -> None:
        self._terminal = terminal
        self._console = _Console(
            file=stream,
            width=terminal.width,
            height=_ROWS,
            force_terminal=True,
            force_interactive=True,
            soft_wrap=True,  # long lines above it are written as they are
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        # A line that rich prepared while the bottom line was there must not be written after it was
        # cleared. It would end with the bottom line.
        self._lock = threading.RLock()
        self.above = cast(TextIO, _Above(self._console, stream, self._lock))

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Allow drawings within the context, and clear the line at its end."""
        self._live.start()
        try:
            yield
        finally:
            with self._lock:
                self._live.stop()

    def draw(self, line: Text) -> None:
        with self._lock:
            self._console.width = self._terminal.width
            self._live.update(self.cut(line), refresh=True)

    def cut(self, line: Text) -> Text:
        """Return the line cut to one column less than the terminal's width.

        In the last column, some terminals continue on the next row."""
        line.truncate(self._terminal.width - 1, overflow="crop")
        return line

    def bar(self, share: float) -> Text:
        """Return a bar that is filled up to `share`, between 0 and 1."""
        bar = ProgressBar(total=1.0, completed=share, width=_BAR_CELLS)
        return Text.assemble(*((each.text, each.style or "") for each in self._console.render(bar)))


class _Console(Console):
    """A console that never ends the process, and leaves a killed run's terminal usable."""

    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002 - rich's signature
        """Leave the cursor as it is: a driver that is killed could not show it again."""
        return False

    def on_broken_pipe(self) -> None:
        """Write nothing more. rich's own method ends the process."""
        self.quiet = True


class _Above(FileProxy):
    """A stream whose lines appear above the bottom line."""

    def __init__(self, console: Console, stream: TextIO, lock: threading.RLock) -> None:
        super().__init__(console, stream)
        self._lock = lock

    def write(self, text: str) -> int:
        with self._lock:
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._lock:
            super().flush()
