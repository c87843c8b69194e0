"""A terminal's screen: the rows that it shows after what a program wrote to it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
import threading
from typing import TextIO

_PART = re.compile(r"\x1b\[(?P<number>[0-9;?]*)(?P<command>[A-Za-z])|(?P<character>.)", re.DOTALL)


class Screen:
    """A pseudo-terminal and its rows. Supports what a progress line needs, and fails for any other
    control sequence. Rows that are on the screen are not wrapped anew by a resize, as in xterm."""

    def __init__(self, columns: int) -> None:
        self.rows: list[str] = [""]
        self.written = ""
        self.problems: list[str] = []
        self._row = self._column = 0
        self._ours, self._its = pty.openpty()
        self.resize(columns)
        self.device = os.ttyname(self._its)
        self.stream: TextIO = os.fdopen(self._its, "w")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def resize(self, columns: int) -> None:
        self.columns = columns
        fcntl.ioctl(self._its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def shown(self) -> list[str]:
        return [row.rstrip() for row in self.rows]

    def close(self) -> None:
        """Close the terminal's side of the program, and read what is left."""
        self.stream.close()
        self._thread.join()
        os.close(self._ours)

    def _read(self) -> None:
        left = ""
        while True:
            try:
                found = os.read(self._ours, 65536)
            except OSError:  # EIO: no program has the terminal open
                return
            if not found:
                return
            text = left + found.decode()
            self.written += found.decode()
            cut = text.rfind("\x1b") if re.search(r"\x1b(\[[0-9;?]*)?$", text) else len(text)
            left = text[cut:]
            for part in _PART.finditer(text[:cut]):
                self._take(part["command"], part["number"], part["character"])

    def _take(self, command: str | None, number: str | None, character: str | None) -> None:
        if command == "K":
            kept = "" if number == "2" else self.rows[self._row][: self._column]
            self.rows[self._row] = kept
        elif command == "A":
            self._row = max(0, self._row - int(number or 1))
        elif command is not None:
            if command != "m":
                self.problems.append(f"ESC[{number}{command}")
        elif character == "\r":
            self._column = 0
        elif character == "\n":
            self._go_down()
        elif character is not None:
            self._put(character)

    def _put(self, character: str) -> None:
        if self._column >= self.columns:
            self._column = 0
            self._go_down()
        row = self.rows[self._row].ljust(self._column)
        self.rows[self._row] = row[: self._column] + character + row[self._column + 1 :]
        self._column += 1

    def _go_down(self) -> None:
        self._row += 1
        if self._row == len(self.rows):
            self.rows.append("")
