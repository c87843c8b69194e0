"""Which writes a Delta table's state contains, against a model that keeps the files themselves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.delta.history import Commit, CommitFiles, History, MissingCommitError, RemovedWrites

File = tuple[str, str]


@dataclass
class Table:
    """`states`: the files of each version, and the pipeline's rows that are in them, by write."""

    commits: list[Commit] = field(default_factory=list)
    changes: list[CommitFiles] = field(default_factory=list)
    states: list[dict[File, frozenset[int]]] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)

    @property
    def now(self) -> int:
        return len(self.commits) - 1

    @property
    def state(self) -> dict[File, frozenset[int]]:
        return self.states[-1] if self.states else {}

    def make(self, state: dict[File, frozenset[int]], **more: object) -> None:
        before = self.state
        change = CommitFiles(
            frozenset(state.keys() - before.keys()), frozenset(before.keys() - state.keys())
        )
        changes_rows = bool(change.added or change.removed)
        version = len(self.commits)
        self.commits.append(Commit(version, changes_rows=changes_rows, **more))  # type: ignore[arg-type]
        self.changes.append(change)
        self.states.append(state)

    def write(self, *, is_empty: bool = False) -> None:
        at = 10 + len(self.commits)
        added = {} if is_empty else {(f"f{at}", ""): frozenset({at})}
        self.make({**self.state, **added}, wrote=at)

    def foreign(self) -> None:
        self.make({**self.state, (f"x{len(self.commits)}", ""): frozenset()})

    def optimize(self) -> None:
        rows = frozenset(at for every in self.state.values() for at in every)
        self.make({(f"o{len(self.commits)}", ""): rows})

    def restore(self, to: int, *, is_by_time: bool = False) -> None:
        target = None if is_by_time else to
        self.make(self.states[to], is_restore=True, target=target)

    def commit(self, version: int) -> Commit:
        if version in self.gone:
            raise MissingCommitError(version)
        return self.commits[version]

    def lost(self, kept: int) -> RemovedWrites | None:
        return History(self.commit, lambda version: self.changes[version]).lost(kept, self.now)

    def is_whole(self, version: int | None = None) -> bool:
        """By the rows themselves."""
        version = self.now if version is None else version
        written = {c.wrote for c in self.commits[: version + 1] if c.is_ours}
        return written <= {at for rows in self.states[version].values() for at in rows}


def table(steps: str) -> Table:
    """w: a write, e: an empty one, f: a foreign one, o: OPTIMIZE, a number: RESTORE to it."""
    made = Table()
    for step in steps.split():
        if step.isdigit():
            made.restore(int(step))
        else:
            {"w": made.write, "f": made.foreign, "o": made.optimize}.get(
                step, lambda: made.write(is_empty=True)
            )()
    return made


@pytest.mark.parametrize(
    ("steps", "kept", "lost"),
    [
        ("w w", 1, None),
        ("w w f o", 1, None),
        ("w w 0", 1, RemovedWrites(2, 0, 1)),
        ("w w 0", 0, RemovedWrites(2, 0, 1)),
        (
            "w w 0 w",
            1,
            RemovedWrites(2, 0, None),
        ),  # written again before the look: no RESTORE mends it
        ("w w 0 1", 1, None),  # forward again
        ("w w 0 w 1", 1, RemovedWrites(2, 0, None)),
        ("w w f f 1", 3, None),  # at the newest write
        ("w w f f 2", 3, None),
        ("w w f f 0", 3, RemovedWrites(4, 0, 3)),
        ("w w 0 1 2", 3, RemovedWrites(4, 2, 3)),  # to a state that was lossy once
        ("w e 0", 1, None),  # an empty write can't be lost
        ("f w f 0", 2, RemovedWrites(3, 0, 2)),
    ],
)
def test_what_a_restore_leaves(steps: str, kept: int, lost: RemovedWrites | None) -> None:
    made = table(steps)
    assert made.lost(kept) == lost
    assert made.is_whole() == (lost is None)


def test_a_commit_that_is_gone_stops_only_where_it_is_needed() -> None:
    made = table("w w f f")
    made.gone = {0, 1}
    assert made.lost(1) is None
    made.gone = {2}
    with pytest.raises(MissingCommitError):
        made.lost(1)
    made = table("w w f f 2")
    made.gone = {0}
    assert made.lost(3) is None


def test_a_ledger_without_a_version_begins_at_the_write_that_it_names() -> None:
    made = table("w w f 0")
    history = History(made.commit, lambda version: made.changes[version])
    assert history.kept_version(11, made.now) == 1
    assert history.kept_version(-1, made.now) == made.now
    with pytest.raises(MissingCommitError):
        history.kept_version(99, made.now)
    made.gone = {2}
    with pytest.raises(MissingCommitError):
        history.kept_version(11, made.now)


STEPS = st.lists(
    st.tuples(st.sampled_from("wwefor"), st.integers(0, 30), st.booleans()),
    min_size=1,
    max_size=14,
)


@given(STEPS, st.integers(0, 30))
def test_the_decision_is_that_of_the_rows(steps: list[tuple[str, int, bool]], kept: int) -> None:
    made = Table()
    made.write()
    for kind, number, is_by_time in steps:
        if kind == "r":
            made.restore(number % len(made.commits), is_by_time=is_by_time)
        else:
            {"w": made.write, "f": made.foreign, "o": made.optimize}.get(
                kind, lambda: made.write(is_empty=True)
            )()
    # A check passes at a version that has every write, and the ledger keeps only such.
    whole = [version for version in range(made.now + 1) if made.is_whole(version)]
    found = made.lost(whole[kept % len(whole)])
    assert (found is None) == made.is_whole()
    if found is not None and found.complete is not None:
        made.restore(found.complete)
        assert made.is_whole()
