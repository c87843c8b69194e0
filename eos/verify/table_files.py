"""Compare the data files that micro-batches added to a Delta table with its log.

For each file the log has its size, its number of rows, and the lowest and highest value of the
first columns. The file's own footer has the same numbers, so no row is read. A table that was
changed on purpose (OPTIMIZE, DELETE, a merge) no longer uses some of the files. So a file that
differs is a finding only if the table's newest version uses it.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

from eos.delta.log import DeltaLog, FileAction
from eos.finding import Finding, FindingKind, Witness
from eos.plural import plural
from eos.verify.delta_tables import files_in_use
from eos.verify.table_store import TableStore

_SUSPECTS_MAX = 10_000  # files that differ and wait for a look at the newest version
# Characters of a text that are compared. Writers cut long ones: Delta's after 32 characters,
# Parquet's after 64 bytes, and then they raise the last character of the highest one.
_PREFIX = 15
_END_BYTES = 8  # a Parquet file ends with the size of its footer, and four letters
_FOOTER_BYTES_MAX = 128 << 20


class _Problem(NamedTuple):
    """How a file differs from the log, or why that is not known."""

    words: str
    is_unread: bool = False


class _Suspect(NamedTuple):
    """A file that has a problem."""

    path: str
    problem: _Problem
    version: int
    owed: Witness


@dataclass(slots=True)
class TableFiles:
    """The data files of a table's micro-batches.

    `checked` of them agree with the Delta log. In `replaced` of them the size or the footer
    differs, but the table no longer uses them."""

    store: TableStore
    log: DeltaLog
    checked: int = 0
    replaced: int = 0
    _suspects: list[_Suspect] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Return whether `findings` must be called before more commits are checked."""
        return len(self._suspects) >= _SUSPECTS_MAX

    def check(self, version: int, owed: Witness) -> int | None:
        """Check the files that a commit added, and return how many rows they have by the log.

        Return None if the commit removed files, too, or if the log has no count for a file."""
        rows: int | None = 0
        for each in self.log.file_actions(version):
            records = each.records if each.is_added else None
            rows = None if rows is None or records is None else rows + records
            if each.is_added and (problem := _problem(self.store, each)) is not None:
                self.checked += 1
                if problem.words:
                    self._suspects.append(_Suspect(each.path, problem, version, owed))
        return rows

    def findings(self) -> Iterator[Finding]:
        """Yield a finding for each commit with a file that has a problem and is still in use.

        The newest version is read after the files, so a file that was deleted meanwhile is not in
        use."""
        suspects, self._suspects = self._suspects, []
        self.checked -= len(suspects)
        where = f"the table {self.store.table.name} ({self.store.table.path})"
        used = files_in_use(self.store, [each.path for each in suspects])
        if isinstance(used, str):
            message = f"{where}: {plural(len(suspects), 'data file')} could not be proven: {used}"
            yield Finding("delta_unproven", message, kind=FindingKind.GONE)
            return
        wrong: dict[tuple[int, bool], list[_Suspect]] = {}
        for each in suspects:
            if each.path in used:
                wrong.setdefault((each.version, each.problem.is_unread), []).append(each)
            else:
                self.replaced += 1
        for (version, is_unread), (first, *others) in wrong.items():
            more = f"; it has {plural(len(others), 'more such file')}" if others else ""
            words = first.problem.words
            message = f"{where}: the file {first.path} of its version {version} {words}, "
            message += f"of {first.owed}{more}"
            if is_unread:
                yield Finding("delta_unproven", message, kind=FindingKind.GONE)
            else:
                yield Finding("delta_file", message, witness=first.owed)


def _problem(store: TableStore, file: FileAction) -> _Problem | None:
    """Return what is wrong with a data file, with empty words if nothing is. Return None if the
    file is outside of the table's folder and can't be read here."""
    import pyarrow as pa

    try:
        opened = store.open(file.path)
        if opened is None:
            return None
        with opened:
            size = opened.seek(0, os.SEEK_END)
            if file.size is not None and size != file.size:
                return _Problem(f"has {size:,} bytes, but {file.size:,} in the log")
            end = _end(opened, size)
    except FileNotFoundError:
        return _Problem("is missing")
    except OSError as error:
        # A bucket may not answer. A disk that does not return a file's bytes is damaged.
        return _Problem(_unreadable(error), is_unread=store.folder.local is None)
    try:
        return _Problem(_difference(end, file))
    except (OSError, ValueError, pa.ArrowException) as error:
        return _Problem(_unreadable(error))


def _unreadable(error: Exception) -> str:
    return f"can't be read ({(str(error).splitlines() or [type(error).__name__])[0][:200]})"


def _end(opened: BinaryIO, size: int) -> bytes:
    """Return the file's footer and what follows it, or less if the file is damaged."""
    opened.seek(max(0, size - _END_BYTES))
    claimed = int.from_bytes(opened.read(4), "little")
    start = max(0, size - _END_BYTES - min(claimed, _FOOTER_BYTES_MAX))
    opened.seek(start)
    return opened.read(size - start)


def _difference(end: bytes, file: FileAction) -> str:
    """Return how a file's footer differs from its entry in the table's log; "" if it does not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    footer = pq.read_metadata(pa.BufferReader(end))
    if file.records is not None and footer.num_rows != file.records:
        return f"has {footer.num_rows:,} rows, but {file.records:,} in the log"
    if file.stats.get("tightBounds", True) is not True:
        return ""  # the log has bounds that no row need reach
    return next(_other_ranges(footer, file.stats), "")


def _other_ranges(footer: Any, stats: Mapping[str, Any]) -> Iterator[str]:
    """Yield each column whose lowest or highest value in the footer differs from the log."""
    lowest, highest = _flat(stats.get("minValues")), _flat(stats.get("maxValues"))
    for name, (low, high) in _ranges(footer).items():
        if not (_agrees(low, lowest.get(name)) and _agrees(high, highest.get(name))):
            span = f"from {low!r} to {high!r}"[:200]
            logged = f"{lowest.get(name)!r} to {highest.get(name)!r}"[:200]
            yield f"has {name} {span}, but {logged} in the log"


def _ranges(footer: Any) -> dict[str, tuple[Any, Any]]:
    """Return each column's lowest and highest value. Columns are left out if a row group has no
    such statistics, or if they are of a type that is not compared."""
    found: dict[str, tuple[Any, Any]] = {}
    for at in range(footer.num_columns):
        name, values = footer.schema.column(at).path, list[Any]()
        for group in range(footer.num_row_groups):
            statistics = footer.row_group(group).column(at).statistics
            try:
                has_values = statistics is not None and statistics.has_min_max
                ends = [statistics.min, statistics.max] if has_values else [None]
            except (ValueError, OverflowError, NotImplementedError):
                ends = [None]
            values += map(_comparable, ends)
        if values and None not in values:
            found[name] = min(values), max(values)
    return found


def _comparable(value: Any) -> int | str | None:
    """Return a whole number, a text or a date as the log has it; None for other types, which the
    log rounds."""
    if type(value) is dt.date:
        return value.isoformat()
    return value if type(value) in (int, str) else None


def _agrees(value: Any, logged: Any) -> bool:
    if isinstance(value, str) and isinstance(logged, str):
        return value[:_PREFIX] == logged[:_PREFIX]
    return type(value) is not type(logged) or bool(value == logged)


def _flat(values: Any) -> dict[str, Any]:
    """Return the values of nested columns by their path, as a footer names them."""
    found: dict[str, Any] = {}
    left = [("", values)]
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{path}.{name}" if path else name, each) for name, each in value.items()]
        else:
            found[path] = value
    return found
