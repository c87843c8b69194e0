"""Commits of a Delta table since a known version.

Each commit is a file in the table's log, named after its version. So the commits after a known
version are read by name, without listing the folder or loading a snapshot. The log may be on a
local disk or at a location that Hadoop can read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eos.checkpoint.files import Files
from eos.delta.history import Commit, CommitFiles, History, MissingCommitError
from eos.errors import UnavailableError

_COMMIT = re.compile(r"(\d{20})\.json")
_RESTORE = "RESTORE"


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The log of one Delta table. `app` is the pipeline's application id in the log."""

    files: Files
    path: str
    app: str

    def history(self) -> History:
        return History(self.commit, self.change)

    def newest(self) -> int | None:
        """Return the table's newest version by listing the log's folder; None without a table."""
        names = (_COMMIT.fullmatch(name) for name in self.files.names(f"{self.path}/_delta_log"))
        return max((int(match[1]) for match in names if match), default=None)

    def commit(self, version: int) -> Commit:
        """Return one commit. Raise MissingCommitError if its file is missing or damaged."""
        wrote, changes, about = None, False, dict[str, Any]()
        for line in self._lines(version):
            is_file = b'"add"' in line or b'"remove"' in line
            changes = changes or is_file
            if b'"txn"' not in line and b'"commitInfo"' not in line:
                continue  # most lines of a large commit; parsing them would take long
            action = _parse_action(line, version)
            written = action.get("txn")
            if isinstance(written, dict) and written.get("appId") == self.app:
                wrote = _number(written.get("version"))
            about = action.get("commitInfo") or about
        operation = str(about.get("operation", "")).upper()
        is_restore = operation == _RESTORE
        given = about.get("operationParameters") or {}
        target = _number(given.get("version")) if is_restore else None
        return Commit(version, wrote, changes, is_restore, target, operation)

    def change(self, version: int) -> CommitFiles:
        """Return the files that one commit added and removed."""
        found: dict[str, set[tuple[str, str]]] = {"add": set(), "remove": set()}
        for line in self._lines(version):
            if b'"add"' not in line and b'"remove"' not in line:
                continue
            action = _parse_action(line, version)
            for kind, files in found.items():
                file = action.get(kind)
                if isinstance(file, dict):
                    files.add((str(file.get("path")), _vector(file.get("deletionVector"))))
        return CommitFiles(frozenset(found["add"]), frozenset(found["remove"]))

    def _lines(self, version: int) -> Iterator[bytes]:
        name = f"{self.path}/_delta_log/{version:020d}.json"
        try:
            yield from self.files.lines(name)
        except FileNotFoundError as error:
            raise MissingCommitError(version) from error
        except OSError as error:
            reason = str(error)[:300]
            raise UnavailableError(
                "table_log_unreadable",
                f"the commit {name} of a Delta table can't be read: {reason}",
                hint="is its storage reachable, and may this user read the table's log? Then start "
                "again",
            ) from error


def _parse_action(line: bytes, version: int) -> dict[str, Any]:
    try:
        action = json.loads(line)
    except ValueError as error:
        raise MissingCommitError(version) from error
    if not isinstance(action, dict):
        raise MissingCommitError(version)
    return action


def _number(value: Any) -> int | None:
    """Return a version number from a commit. Spark writes it as a number, delta-rs as text."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _vector(vector: Any) -> str:
    if not isinstance(vector, dict):
        return ""
    return "/".join(str(vector.get(each)) for each in ("storageType", "pathOrInlineDv", "offset"))
