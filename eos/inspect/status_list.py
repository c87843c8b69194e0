"""How does `eos status` list the pipelines of a state root, without asking the cluster?

A pipeline that ran has commits in the audit table, and on a disk a lock file in the state root.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eos.errors import UsageError
from eos.inspect.layout import columns, utc
from eos.local.file_locks import is_held
from eos.startup.liveness import Liveness
from eos.startup.lock_holder import LockHolder

if TYPE_CHECKING:
    from eos.audit.table import TransactionsTable

_LAST = """
SELECT pipeline, ledger, max(ended_at) AS at FROM transactions
WHERE kind = 'attempt' AND outcome = 'CompleteCommit' GROUP BY pipeline, ledger
"""


@dataclass(frozen=True, slots=True)
class PipelineEntry:
    """One pipeline in the list of `eos status`.

    `name` begins with the pipeline's prefix if that is not the profile's `names.prefix`. `at` is
    the time of the last commit in the audit table.
    """

    name: str
    runs: Liveness
    process: int | None = None
    at: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.name,
            "runs": self.runs.value,
            "process": self.process,
            "last_commit": self.at and self.at.isoformat(),
        }


def list_pipelines(
    locks: Path | None, prefix: str, table: TransactionsTable
) -> list[PipelineEntry]:
    """Return the pipelines that ever ran with this state root, ordered by lock name.

    Without a folder of locks, it is unknown whether a pipeline runs."""
    commits = dict(_commits(table))
    existing: set[str] = set()
    if locks is not None and locks.is_dir():
        existing = {each.name for each in locks.iterdir() if each.is_file()}
    found = []
    for each in sorted(existing | commits.keys()):
        runs, process = (Liveness.UNKNOWN, None) if locks is None else _running(locks / each)
        name = each.removeprefix(f"{prefix}.")
        found.append(PipelineEntry(name, runs, process, commits.get(each)))
    return found


def lines(root: str, found: Sequence[PipelineEntry]) -> Iterator[str]:
    """Yield the list as a text table."""
    if not found:
        yield f"no pipeline has run with the state root {root}"
        return
    rows = [("pipeline", "runs", "last commit")]
    for each in found:
        runs = f"as process {each.process}" if each.process else each.runs.value
        rows.append((each.name, runs, utc(each.at)))
    yield from columns(rows, left=3)


def _commits(table: TransactionsTable) -> Iterator[tuple[str, datetime]]:
    """Yield each pipeline's lock name (PREFIX.NAME) and the time of its last commit."""
    for row in table.query(_LAST):
        pipeline = row["pipeline"]
        prefix = row["ledger"].removesuffix(f".ledger.{pipeline}")
        yield f"{prefix}.{pipeline}", row["at"]


def _running(lock: Path) -> tuple[Liveness, int | None]:
    try:
        if not is_held(lock):
            return Liveness.NO, None
        return Liveness.YES, LockHolder.read(lock).process
    except (UsageError, OSError):  # another user's lock, or just removed
        return Liveness.UNKNOWN, None
