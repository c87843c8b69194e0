"""Does a Delta table still contain all of the pipeline's writes?

Delta's RESTORE removes rows of later writes, but keeps the number of the application's last write
(`txn`). So that number does not show a loss. Only the table's history does. This module does no
I/O: the caller passes functions that return single commits.

A version of the table is *whole* if it contains every write that the pipeline made up to it:

- the base version is whole. It is the version in the ledger, and an earlier check read the history
  up to it;
- a commit that is no RESTORE is whole if the version before it is. That includes the pipeline's
  writes. DELETE, UPDATE, MERGE, OPTIMIZE and overwrites by others change rows on purpose;
- a RESTORE to version T is whole if T is whole and the pipeline wrote nothing after T.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eos.ledger.record import RowCounts

Files = frozenset[tuple[str, str]]  # path, and the id of a deletion vector


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit in a Delta table's log, which made the table's version `version`.

    If the pipeline made the commit, `wrote` is the offset of the ledger record whose rows it wrote.
    `target` is the version that a RESTORE names. A RESTORE to a time names none. `operation` is the
    name of the operation in the log, for messages. `rows` has the row counts that Delta reported
    for an append or a merge. `sha256` is the digest of the commit's file.

    `eos recover --restore-tables` writes its RESTORE as the pipeline, so that one has both `wrote`
    and `target`.
    """

    version: int
    wrote: int | None = None
    changes_rows: bool = True
    is_restore: bool = False
    target: int | None = None
    operation: str = ""
    rows: RowCounts | None = None
    sha256: str | None = None

    @property
    def is_ours(self) -> bool:
        """Return whether the pipeline wrote rows in this commit.

        A commit of the pipeline without rows does not count, since no row of it can be lost.
        """
        return self.wrote is not None and self.changes_rows


@dataclass(frozen=True, slots=True)
class CommitFiles:
    """The files that one commit added and removed."""

    added: Files = frozenset()
    removed: Files = frozenset()


@dataclass(frozen=True, slots=True)
class RemovedWrites:
    """A RESTORE that removed writes of the pipeline.

    `restore` is its own version, and `target` the version that it names, if any. `complete` is the
    newest version that contains every write, or None if the pipeline wrote again after the RESTORE.
    `is_rewind`: `eos recover --restore-tables` made it, and died before it moved the ledger.
    """

    restore: int
    target: int | None
    complete: int | None
    is_rewind: bool = False


class MissingCommitError(Exception):
    """A commit that the check needs can't be read."""

    def __init__(self, version: int) -> None:
        super().__init__(f"commit {version} is missing")
        self.version = version


ReadCommit = Callable[[int], Commit]
ReadChange = Callable[[int], CommitFiles]


@dataclass(frozen=True, slots=True)
class History:
    """History of one Delta table, read with two functions.

    Both raise MissingCommitError if the commit of a version is missing."""

    commit: ReadCommit
    change: ReadChange

    def kept_version(self, at: int, now: int) -> int:
        """Return the table's version in which the pipeline wrote the ledger record `at`.

        It is searched from version `now` back. Call this if the ledger has no version of the table.
        """
        if at < 0:
            return now  # the pipeline never wrote, so nothing can be lost
        for version in range(now, -1, -1):
            if self.commit(version).wrote == at:
                return version
        raise MissingCommitError(0)

    def newest_write(self, base: int, now: int) -> Commit | None:
        """Return the pipeline's newest write after version `base`; None if it wrote nothing."""
        commits = (self.commit(version) for version in range(now, base, -1))
        return next((commit for commit in commits if commit.wrote is not None), None)

    def lost(self, base: int, now: int) -> RemovedWrites | None:
        """Return the RESTORE that removed writes of the pipeline; None if version `now` is whole.

        `base` is an older version that is known to be whole."""
        commits = [self.commit(version) for version in range(base + 1, now + 1)]
        complete = [True]  # by version, from `base` on
        for commit in commits:
            is_complete = complete[-1]
            if commit.is_restore:
                to = self._target(commit)
                is_complete = to is not None and self._is_complete(to, base, complete)
            complete.append(is_complete)
        if complete[-1]:
            return None
        return _lost(commits, complete, base)

    def _is_complete(self, version: int, base: int, complete: list[bool]) -> bool:
        """Return whether a version contains every write of the pipeline up to it.

        For a version below `base`, it and its older commits are searched for a write of the
        pipeline. If there is one, the version is whole, since the check after that write passed. At
        a RESTORE the search continues with its target.
        """
        while version < base:
            commit = self.commit(version)
            if commit.is_restore:
                to = self._target(commit)
                if to is None:
                    return False
                version = to
            elif commit.is_ours or version == 0:
                return True
            else:
                version -= 1
        return complete[version - base]

    def _target(self, restore: Commit) -> int | None:
        """Return the target version of a RESTORE, or None if it removed the pipeline's writes.

        A RESTORE to a time names no version, but its files identify it. The files that it added and
        removed are the difference between the version before it and its target. The newest version
        with that difference is the target.
        """
        required = self.change(restore.version) if restore.target is None else None
        added: set[tuple[str, str]] = set()
        removed: set[tuple[str, str]] = set()
        for version in range(restore.version - 1, -1, -1):
            if version == restore.target:
                return version
            if required is not None and added == required.added and removed == required.removed:
                return version
            if self.commit(version).is_ours:
                return None  # older versions lack this write
            if required is not None:
                change = self.change(version)
                _undo(change.added, added, removed)
                _undo(change.removed, removed, added)
        return None


def _undo(files: Files, back: set[tuple[str, str]], away: set[tuple[str, str]]) -> None:
    """Add a commit's files to the difference between the version before it and a later one.

    `back` has the opposite changes of later commits. A file in both cancels out.
    """
    for file in files:
        if file in back:
            back.discard(file)
        else:
            away.add(file)


def _lost(commits: list[Commit], complete: list[bool], base: int) -> RemovedWrites:
    """Return the RESTORE that followed the newest whole version. No commit of another kind removes
    writes, except on purpose."""
    last = max(index for index, is_complete in enumerate(complete) if is_complete)
    restore = commits[last]  # commits[0] made the version after `base`
    is_final = not any(commit.is_ours for commit in commits[last:])
    complete_version = base + last if is_final else None
    is_rewind = restore.wrote is not None
    return RemovedWrites(restore.version, restore.target, complete_version, is_rewind)
