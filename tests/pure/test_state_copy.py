"""The files of a checkpoint that a copy of its state needs."""

from __future__ import annotations

from typing import Any, cast

from eos.startup.state_copy import _copy, required

PART = "state/0/3/default/"


def test_only_log_entries_up_to_the_ledgers_last_micro_batch_are_copied() -> None:
    names = [f"{folder}/{n}" for folder in ("offsets", "commits") for n in range(4, 10)]
    found = required(["metadata", "sources/0/0", *names], 7)
    assert found == [
        *("commits/5", "commits/6", "commits/7", "metadata"),
        *("offsets/5", "offsets/6", "offsets/7", "sources/0/0"),
    ]


def test_a_copy_is_a_checkpoint_once_all_else_is_there() -> None:
    """A folder without a plan is no checkpoint for `eos verify` and `eos recover`."""
    copied: list[str] = []

    class Store:
        def tree(self, _path: str) -> list[str]:
            plans = [f"offsets/{n}" for n in (8, 9, 10)]
            return ["metadata", "sources/0/0", *plans, "commits/10", f"{PART}11.delta"]

        def copy(self, old: str, new: str) -> None:
            assert old.removeprefix("old/") == new.removeprefix("new/")
            copied.append(new.removeprefix("new/"))

    assert _copy(cast("Any", Store()), "old", "new", 10) == 7
    assert copied[-3:] == ["offsets/10", "offsets/9", "offsets/8"]


def test_versions_begin_with_the_newest_snapshot_that_can_be_evaluated_again() -> None:
    tables = [f"{PART}SSTs/000008-{n}.sst" for n in "ab"]
    # Version 8 is what micro-batch 7 wrote. Version 9 is of a micro-batch that is not committed.
    zips = [f"{PART}{n}.zip" for n in (1, 5, 7, 8, 9)]
    assert required([*tables, *zips], 7) == sorted([f"{PART}7.zip", f"{PART}8.zip", *tables])
    logs = [f"{PART}{n}.changelog" for n in range(1, 10)]
    found = required([f"{PART}5.zip", *logs], 7)
    assert found == sorted([f"{PART}5.zip", *(f"{PART}{n}.changelog" for n in (5, 6, 7, 8))])
    deltas = [f"{PART}{n}.delta" for n in range(1, 10)]
    assert required(deltas, 7) == deltas[:8], "without a snapshot, all changes"


def test_each_part_has_its_own_snapshot() -> None:
    other = "state/0/4/left-keyToNumValues/"
    names = [f"{PART}2.snapshot", f"{PART}3.delta", f"{other}3.snapshot", f"{other}4.delta"]
    assert required(names, 3) == sorted([*names])
    assert required([*names, f"{other}2.snapshot"], 3) == sorted([*names])


def test_a_version_with_a_unique_id_is_one_as_well() -> None:
    assert required([f"{PART}9_5f3c-11.zip", f"{PART}8_aa.zip"], 7) == [f"{PART}8_aa.zip"]
