"""The pipeline's commits in a Delta table's log, by the ledger record that each of them names.

The log is read forward, without Spark. It may grow meanwhile, and its oldest commits may be gone,
since Delta deletes them after `delta.logRetentionDuration`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eos.delta.history import MissingCommitError
from eos.delta.log import DeltaLog
from eos.ledger.record import RowCounts

COMMITS_MAX = 200_000  # commits in memory; the ledger keeps 100,000 records


@dataclass(slots=True)
class OwnCommit:
    """A commit under the pipeline's application id.

    `repeated` is a later version that names the same ledger record; None if there is none.
    """

    version: int
    changes_rows: bool
    rows: RowCounts | None
    sha256: str | None
    repeated: int | None = None


@dataclass(slots=True)
class TableCommits:
    """The pipeline's commits in a table's versions from `end` on, as far as the log has them.

    `unread` is the newest version whose commit is missing or damaged; -1 if there is none. `oldest`
    is the ledger record that the first commit after it names. A RESTORE adds no rows of a
    micro-batch, so it is skipped even if it has the application id; `delta_tables` checks it.
    """

    log: DeltaLog
    end: int = 0  # the next version to read
    unread: int = -1
    oldest: int | None = None
    found: dict[int, OwnCommit] = field(default_factory=dict)  # by ledger offset

    def read_new(self) -> None:
        """Read the commits that the log has got since the last call."""
        for version in self.log.versions():
            if version < self.end:
                continue
            if version > self.end:
                self._skip_to(version)
            try:
                commit = self.log.commit(version)
            except MissingCommitError:
                self._skip_to(version + 1)
                continue
            self.end = version + 1
            if commit.wrote is not None and not commit.is_restore:
                own = OwnCommit(version, commit.changes_rows, commit.rows, commit.sha256)
                self._add(commit.wrote, own)

    def take(self, offset: int) -> OwnCommit | None:
        """Return and remove the commit that names this ledger record; None if there is none."""
        if offset not in self.found and self.log.has(self.end):  # listing a long log takes time
            self.read_new()
        return self.found.pop(offset, None)

    def may_be_unread(self, offset: int) -> bool:
        """Return whether the commit of this ledger record may be in a part of the log that is gone.

        The pipeline writes ledger records in their order. So the record is in that part only if it
        is older than the first record after it.
        """
        return self.unread >= 0 and (self.oldest is None or offset < self.oldest)

    def _skip_to(self, version: int) -> None:
        self.unread, self.oldest, self.end = version - 1, None, version

    def _add(self, offset: int, commit: OwnCommit) -> None:
        if self.oldest is None:
            self.oldest = offset
        known = self.found.setdefault(offset, commit)
        if known is not commit:
            known.repeated = commit.version
        if len(self.found) > COMMITS_MAX:
            first = next(iter(self.found))
            self.unread = max(self.unread, self.found.pop(first).version)
            self.oldest = next(iter(self.found))
