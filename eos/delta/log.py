"""Commits of a Delta table since a known version.

Each commit is a file in the table's log, named after its version. So the commits after a known
version are read by name, without listing the folder or loading a snapshot. The log may be on a
local disk or at a location that Hadoop can read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from eos.checkpoint.files import Files
from eos.delta.history import Commit, CommitFiles, History, MissingCommitError
from eos.errors import UnavailableError
from eos.json_fields import INT64_MAX
from eos.ledger.record import RowCounts

_COMMIT = re.compile(r"(\d{20})\.json")
_RESTORE = "RESTORE"
_RECENT = 1_000  # commits that one check keeps in memory, since it looks at some of them twice
# The metrics of Delta's library for Spark with the rows inserted, updated and deleted, by operation
_METRICS = {
    "WRITE": ("numOutputRows",),
    "MERGE": ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
}


@dataclass(frozen=True, slots=True)
class FileAction:
    """A data file that a commit added or removed.

    `path` is as in the log: percent-encoded, and usually relative to the table's folder. `size` and
    `stats` describe the file on disk, without regard to the deletion vector `vector`. They are
    empty if they are absent or damaged.
    """

    is_added: bool
    path: str
    vector: str
    size: int | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def records(self) -> int | None:
        return _number(self.stats.get("numRecords"))


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The log of one Delta table. `app` is the pipeline's application id in the log."""

    files: Files
    path: str
    app: str

    def history(self) -> History:
        return History(lru_cache(_RECENT)(self.commit), self.change)

    def versions(self) -> list[int]:
        """Return the versions whose commits the log has, ascending, by listing the log's folder."""
        names = (_COMMIT.fullmatch(name) for name in self.files.names(f"{self.path}/_delta_log"))
        return sorted(int(match[1]) for match in names if match)

    def has(self, version: int) -> bool:
        return self.files.exists(f"{self.path}/_delta_log/{version:020d}.json")

    def newest(self) -> int | None:
        """Return the table's newest version; None without a table."""
        return max(self.versions(), default=None)

    def commit(self, version: int) -> Commit:
        """Return one commit. Raise MissingCommitError if its file is missing or damaged."""
        wrote, changes, about = None, False, dict[str, Any]()
        digest = hashlib.sha256()
        for line in self._lines(version):
            digest.update(line)
            is_file = b'"add"' in line or b'"remove"' in line
            changes = changes or is_file
            if b'"txn"' not in line and b'"commitInfo"' not in line:
                continue  # most lines of a large commit; parsing them would take long
            action = _parse_action(line, version)
            written = action.get("txn")
            if isinstance(written, dict) and written.get("appId") == self.app:
                number = _number(written.get("version"))
                wrote = -1 if number is None else number  # a write that no ledger record explains
            about = _object(action, "commitInfo") or about
        operation = str(about.get("operation", "")).upper()
        is_restore = operation == _RESTORE
        given = _object(about, "operationParameters")
        target = _number(given.get("version")) if is_restore else None
        rows = _row_counts(about, operation)
        sha256 = digest.hexdigest()
        return Commit(version, wrote, changes, is_restore, target, operation, rows, sha256)

    def change(self, version: int) -> CommitFiles:
        """Return the files that one commit added and removed."""
        added, removed = set[tuple[str, str]](), set[tuple[str, str]]()
        for each in self.file_actions(version):
            (added if each.is_added else removed).add((each.path, each.vector))
        return CommitFiles(frozenset(added), frozenset(removed))

    def file_actions(self, version: int) -> Iterator[FileAction]:
        """Yield the files that one commit added and removed, in the log's order."""
        for line in self._lines(version):
            if b'"add"' not in line and b'"remove"' not in line:
                continue
            action = _parse_action(line, version)
            for kind in ("add", "remove"):
                file = action.get(kind)
                if isinstance(file, dict):
                    place = str(file.get("path")), _vector(file.get("deletionVector"))
                    size = _number(file.get("size"))
                    yield FileAction(kind == "add", *place, size, _stats(file.get("stats")))

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
    except (ValueError, RecursionError) as error:
        raise MissingCommitError(version) from error
    if not isinstance(action, dict):
        raise MissingCommitError(version)
    return action


def _object(of: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a field that is an object; an empty one if it is absent or has another type."""
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _stats(text: Any) -> Mapping[str, Any]:
    """Return a file's statistics, which the log has as JSON in a text; {} if they are damaged."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _row_counts(about: dict[str, Any], operation: str) -> RowCounts | None:
    """Return the row counts in the metrics of a commit; None if it is no append or merge, or has no
    such metrics."""
    metrics, names = _object(about, "operationMetrics"), _METRICS.get(operation, ())
    found = [_number(metrics.get(name)) for name in names]
    counts = [each for each in found if each is not None]
    return RowCounts(*counts) if counts and len(counts) == len(names) else None


def _number(value: Any) -> int | None:
    """Return a version number from a commit. Spark writes it as a number, delta-rs as text."""
    text = str(value)
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
    return number if number is not None and number <= INT64_MAX else None


def _vector(vector: Any) -> str:
    if not isinstance(vector, dict):
        return ""
    return "/".join(str(vector.get(each)) for each in ("storageType", "pathOrInlineDv", "offset"))
