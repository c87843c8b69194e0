"""Which of the pipeline's writes a Delta table's present state contains, decided from its commits.

Delta's RESTORE keeps the version of the application's last write (`txn`) and removes that write's
rows. So the `txn` version alone does not show a loss; only the table's history does. This module
decides without any I/O: the caller passes a function that returns one commit.

A version of the table is *whole* if it contains every write that the pipeline made up to it:

- the kept version is whole: an earlier check read the history up to it;
- a write of the pipeline, and any commit that is no RESTORE, is whole if the version before is.
  DELETE, UPDATE, MERGE, OPTIMIZE and overwrites by others change rows on purpose, so they pass;
- a RESTORE to version T is whole if T is whole and the pipeline wrote nothing after T.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Files = frozenset[tuple[str, str]]  # path, and the id of a deletion vector


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a table. `wrote` is the ledger's offset if the pipeline made it. `target` is
    the version that a RESTORE names; a RESTORE to a time names none."""

    version: int
    wrote: int | None = None
    changes_rows: bool = True
    is_restore: bool = False
    target: int | None = None

    @property
    def is_ours(self) -> bool:
        """A write of the pipeline that has rows: an empty one can't be lost."""
        return self.wrote is not None and self.changes_rows


@dataclass(frozen=True, slots=True)
class CommitFiles:
    """The files that one commit added and removed."""

    added: Files = frozenset()
    removed: Files = frozenset()


@dataclass(frozen=True, slots=True)
class RemovedWrites:
    """A RESTORE removed writes. `target`: the version that it names, if any. `whole`: the newest
    version that contains every write; None if the pipeline wrote again since."""

    restore: int
    target: int | None
    whole: int | None


class MissingCommitError(Exception):
    """A commit that the decision needs can't be read."""

    def __init__(self, version: int) -> None:
        super().__init__(f"commit {version} is missing")
        self.version = version


ReadCommit = Callable[[int], Commit]
ReadChange = Callable[[int], CommitFiles]


@dataclass(frozen=True, slots=True)
class History:
    """The commits of one table. Both functions raise MissingCommitError for one that is gone."""

    commit: ReadCommit
    change: ReadChange

    def kept_version(self, at: int, now: int) -> int:
        """Return the version of the pipeline's write `at`, for a ledger that names no version."""
        if at < 0:
            return now  # the pipeline never wrote: nothing can be lost
        for version in range(now, -1, -1):
            if self.commit(version).wrote == at:
                return version
        raise MissingCommitError(0)

    def lost(self, kept: int, now: int) -> RemovedWrites | None:
        """Return what the table lacks at version `now`, or None if `now` is whole."""
        commits = [self.commit(version) for version in range(kept + 1, now + 1)]
        whole = [True]  # by version, from `kept` on
        for commit in commits:
            is_whole = whole[-1]
            if commit.is_restore:
                to = self._target(commit)
                is_whole = to is not None and self._is_whole(to, kept, whole)
            whole.append(is_whole)
        if whole[-1]:
            return None
        return _lost(commits, whole, kept)

    def _is_whole(self, version: int, kept: int, whole: list[bool]) -> bool:
        """Below the kept version the newest write of the pipeline decides: the check after it
        passed. A state that was restored away from it in between is followed back."""
        while version < kept:
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
        return whole[version - kept]

    def _target(self, restore: Commit) -> int | None:
        """Return the version that a RESTORE went back to, or None if it removed writes of ours.

        A RESTORE to a time names no version. Its files do: they are the difference between the
        version before and its target, so the newest version with that difference is the target.
        """
        wanted = self.change(restore.version) if restore.target is None else None
        added: set[tuple[str, str]] = set()
        removed: set[tuple[str, str]] = set()
        for version in range(restore.version - 1, -1, -1):
            if version == restore.target:
                return version
            if wanted is not None and added == wanted.added and removed == wanted.removed:
                return version
            if self.commit(version).is_ours:
                return None  # what is older lacks this write
            if wanted is not None:
                change = self.change(version)
                _undo(change.added, added, removed)
                _undo(change.removed, removed, added)
        return None


def _undo(files: Files, back: set[tuple[str, str]], away: set[tuple[str, str]]) -> None:
    """Files that a commit added are removed by going back before it, unless they were restored."""
    for file in files:
        if file in back:
            back.discard(file)
        else:
            away.add(file)


def _lost(commits: list[Commit], whole: list[bool], kept: int) -> RemovedWrites:
    """The RESTORE after the newest whole version: no other commit ends that."""
    last = max(index for index, is_whole in enumerate(whole) if is_whole)
    restore = commits[last]  # the first one stands for version kept + 1
    is_final = not any(commit.is_ours for commit in commits[last:])
    return RemovedWrites(restore.version, restore.target, kept + last if is_final else None)
