"""Restores of Delta tables for a rewind: which are refused, and what a startup accepts then."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import (
    CommitProperties,
    DeltaTable,
    QueryBuilder,
    TableFeatures,
    Transaction,
    write_deltalake,
)
from support.errors import raises

from eos.checkpoint.files import LocalFiles
from eos.delta.log import DeltaLog
from eos.delta.restore import RestorePlanner, TableRestore
from eos.delta.table_check import require_complete
from eos.delta.table_status import TableStatus, table_status
from eos.ledger.record import TableState
from eos.plan.delta_sink import Table

ROWS, APP = 10, "app"
MARK = 9  # the ledger's last record is at offset 8
DAY = "a b:c/d%"  # its folder's name is escaped


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with three writes of the pipeline, for the ledger's records 1, 3 and 5."""
    return written(tmp_path / "all")


def written(folder: Path) -> Table:
    made = Table("all", str(folder))
    for at in (1, 3, 5):
        write(made, at)
    return made


def write(table: Table, at: int | None, mode: str = "append", **columns: str) -> None:
    """Write rows as the pipeline, or as another program if `at` is None."""
    done = CommitProperties(app_transactions=[Transaction(APP, at)] if at is not None else [])
    texts = {name: [text] * ROWS for name, text in {"day": DAY, **columns}.items()}
    made = pa.table({"n": pa.array(range(ROWS), pa.int64()), **texts})
    write_deltalake(
        table.path,
        made,
        mode=mode,  # type: ignore[arg-type]
        schema_mode="merge" if mode == "append" else None,
        partition_by=["day"],
        commit_properties=done,
    )


def rows(table: Table) -> int:
    made = QueryBuilder().register("t", DeltaTable(table.path)).execute("SELECT n FROM t")
    return pa.table(made.read_all()).num_rows


def version(table: Table) -> int:
    return DeltaTable(table.path).version()


def state(table: Table, at: int, version: int) -> TableState:
    return TableState(str(DeltaTable(table.path).metadata().id), at, version)


def plan(table: Table, then: TableState | None = None, *, newest: int = 5) -> TableRestore:
    """Plan the restore to the position of the ledger's record 3, unless another is given."""
    return RestorePlanner("orders", table, APP, then or state(table, 3, 1)).plan(MARK, newest)


def require_accepted(table: Table, known: TableState, newest: int = 5) -> None:
    """Check a table as a startup does."""
    found = DeltaTable(table.path)
    log = DeltaLog(LocalFiles(), table.path, APP)
    require_complete("orders", table, log, known, found.version())
    at = found.transaction_version(APP)
    assert at is not None
    assert table_status(known.at, at, newest) is TableStatus.COMPLETE


def test_a_restored_table_is_accepted_once_the_ledger_has_its_state(table: Table) -> None:
    before = state(table, 5, 2)
    restore = plan(table)
    assert restore.line() == "table  all  version 2 -> as in version 1"
    assert version(table) == 2  # a plan changes nothing
    restore.apply()
    assert (rows(table), version(table)) == (2 * ROWS, 3)
    with raises("table_restore_unfinished"):
        require_accepted(table, before)  # the ledger was not moved
    require_accepted(table, restore.state)

    write(table, 11)  # the rows that are read again
    require_accepted(table, restore.state, newest=11)
    assert rows(table) == 3 * ROWS
    DeltaTable(table.path).restore(2)  # brings the first copy of these rows back
    with raises("table_behind"):
        require_accepted(table, restore.state, newest=11)


def test_the_restore_itself_can_not_be_undone_unnoticed(table: Table) -> None:
    restore = plan(table)
    restore.apply()
    DeltaTable(table.path).restore(2)
    assert rows(table) == 3 * ROWS
    with raises("table_behind"):
        require_accepted(table, restore.state)


def test_a_second_call_changes_nothing(table: Table) -> None:
    plan(table).apply()
    again = plan(table)
    assert (again.is_done, again.state) == (True, state(table, MARK, 3))
    again.apply()
    assert version(table) == 3
    DeltaTable(table.path).optimize.compact()  # undone by nobody, since nothing is left to restore
    assert plan(table).is_done
    require_accepted(table, plan(table).state)


def test_another_position_after_an_interrupted_call_is_reached_too(table: Table) -> None:
    plan(table).apply()
    for then, count in (((1, 0), 1), ((5, 2), 3), ((3, 1), 2)):
        restore = plan(table, state(table, *then))
        assert not restore.is_done
        restore.apply()
        assert rows(table) == count * ROWS
        require_accepted(table, restore.state)


def test_a_table_that_is_at_the_version_is_left_alone(table: Table) -> None:
    DeltaTable(table.path).optimize.compact()
    restore = plan(table, state(table, 5, 2))
    assert (restore.is_done, restore.state) == (True, state(table, 5, 3))
    assert restore.line() == "table  all  version 3 has the rows of that position"
    restore.apply()
    assert version(table) == 3


def test_a_table_that_lacks_the_newest_micro_batch_does_not_get_it_again(table: Table) -> None:
    """A startup would write it, and the rewound pipeline once more."""
    write(table, None)  # another writer's rows stay
    restore = plan(table, state(table, 5, 2), newest=7)
    assert (restore.target, restore.is_done) == (None, False)
    restore.apply()
    assert (rows(table), version(table)) == (4 * ROWS, 4)
    require_accepted(table, restore.state, newest=7)
    assert plan(table, state(table, 5, 2), newest=7).is_done


def test_a_restore_by_hand_is_accepted(table: Table) -> None:
    DeltaTable(table.path).restore(1)
    restore = plan(table)
    assert (restore.is_done, restore.state) == (True, state(table, 5, 3))
    assert rows(table) == 2 * ROWS
    require_accepted(table, restore.state)


def test_columns_that_came_later_are_undone(table: Table) -> None:
    write(table, 7, s="x")
    restore = plan(table, newest=7)
    restore.apply()
    names = [field.name for field in DeltaTable(table.path).schema().fields]
    assert names == ["n", "day"]
    write(table, 11, s="x")
    assert rows(table) == 3 * ROWS


def compact(table: Table) -> None:
    DeltaTable(table.path).optimize.compact()


def delete(table: Table) -> None:
    DeltaTable(table.path).delete("n = 3")


def append(table: Table) -> None:
    write(table, None)


def change_property(table: Table) -> None:
    DeltaTable(table.path).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 9 days"}
    )


def restore_other(table: Table) -> None:
    DeltaTable(table.path).restore(0)


@pytest.mark.parametrize(
    ("change", "operation"),
    [
        (compact, "OPTIMIZE"),
        (delete, "DELETE"),
        (append, "WRITE"),
        (change_property, "SET TBLPROPERTIES"),
        (restore_other, "RESTORE"),
    ],
)
def test_commits_of_others_are_not_undone(
    table: Table, change: Callable[[Table], None], operation: str
) -> None:
    change(table)
    before = version(table), rows(table)
    with raises("table_restore_foreign") as caught:
        plan(table)
    assert f"did not write its later versions 3 ({operation})" in caught.value.message
    assert f"RESTORE TABLE delta.`{table.path}` TO VERSION AS OF 1" in caught.value.hint
    assert (version(table), rows(table)) == before


def test_a_restore_by_others_to_another_version_is_refused(table: Table) -> None:
    """Its rows are not those of the position, although the pipeline wrote nothing after that."""
    DeltaTable(table.path).restore(1)
    DeltaTable(table.path).restore(2)
    with raises("table_restore_foreign") as caught:
        plan(table)
    assert "4 (RESTORE)" in caught.value.message


def test_at_most_five_commits_are_named(table: Table) -> None:
    for _ in range(7):
        write(table, None)
    with raises("table_restore_foreign") as caught:
        plan(table)
    assert "7 (WRITE) and 2 more, and a" in caught.value.message


def test_a_vacuum_that_left_the_files_is_no_obstacle(table: Table) -> None:
    write(table, 6, "overwrite")
    DeltaTable(table.path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    write(table, 7)
    assert version(table) == 6  # a VACUUM is two commits
    plan(table, state(table, 6, 3), newest=7).apply()
    assert rows(table) == ROWS


@pytest.mark.parametrize("name", ["a b", "t\u00fcbingen"])
def test_replaced_files_are_found_below_any_path(tmp_path: Path, name: str) -> None:
    table = written(tmp_path / name / "all")
    write(table, 7, "overwrite")
    plan(table, newest=7).apply()
    assert rows(table) == 2 * ROWS


def test_files_that_are_gone_are_named_before_anything_changes(table: Table) -> None:
    write(table, 7, "overwrite")
    plan(table, newest=7)  # the files exist
    found = DeltaTable(table.path)
    found.vacuum(0, dry_run=False, enforce_retention_duration=False)
    before = version(table)
    with raises("table_version_gone") as caught:
        plan(table, newest=7)
    assert "can't be restored to version 1: 2 of its files are missing" in caught.value.message
    assert version(table) == before


def test_a_log_that_lost_commits_is_refused(table: Table) -> None:
    log = Path(table.path) / "_delta_log"
    DeltaTable(table.path).create_checkpoint()
    (log / f"{1:020d}.json").unlink()
    with raises("table_version_gone"):
        plan(table)
    (log / f"{2:020d}.json").unlink()
    with raises("table_restore_unsupported") as caught:
        plan(table)
    assert "the commit of version 2 is missing" in caught.value.message


def test_a_table_elsewhere_is_left_to_spark() -> None:
    there = Table("all", "s3a://lake/all")
    with raises("table_restore_unsupported") as caught:
        RestorePlanner("orders", there, APP, TableState("id", 3, 1)).plan(MARK, 5)
    assert "the table all (s3a://lake/all) is not on this machine" in caught.value.message
    assert "RESTORE TABLE delta.`s3a://lake/all` TO VERSION AS OF 1" in caught.value.hint
    assert "`eos recover orders --accept-table all --yes`" in caught.value.hint


def test_another_table_or_none_is_refused(table: Table) -> None:
    with raises("table_replaced"):
        plan(table, TableState("another", 3, 1))
    with raises("table_restore_unsupported") as caught:
        plan(table, state(table, 9, 4))
    assert "is at version 2, and has no version 4: it is an older copy" in caught.value.message
    with raises("table_ahead"):
        write(table, MARK + 1)
        plan(table)
    then = state(table, 3, 1)
    shutil.rmtree(table.path)
    with raises("table_restore_unsupported") as caught:
        plan(table, then)
    assert "can't be opened: " in caught.value.message


def append_only(table: Table) -> None:
    DeltaTable(table.path).alter.set_table_properties({"delta.appendOnly": "true"})


def deletion_vectors(table: Table) -> None:
    DeltaTable(table.path).alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )


@pytest.mark.parametrize(
    ("change", "name"), [(append_only, "delta.appendOnly"), (deletion_vectors, "deletionVectors")]
)
def test_a_table_with_other_features_is_left_to_spark(
    table: Table, change: Callable[[Table], None], name: str
) -> None:
    change(table)
    write(table, 7)
    with raises("table_restore_unsupported") as caught:
        plan(table, state(table, 5, 3), newest=7)
    assert f"uses {name}" in caught.value.message


def test_a_constraint_is_no_obstacle(table: Table) -> None:
    DeltaTable(table.path).alter.add_constraint({"small": "n < 1000"})
    write(table, 7)
    plan(table, state(table, 5, 3), newest=7).apply()
    assert rows(table) == 3 * ROWS


def test_a_commit_after_the_plan_is_not_undone(table: Table) -> None:
    restore, mark_only = plan(table), plan(table, state(table, 5, 2), newest=7)
    write(table, None)
    for each in (restore, mark_only):
        with raises("table_restore_failed") as caught:
            each.apply()
        assert "the table all (" in caught.value.message
    assert (rows(table), version(table)) == (4 * ROWS, 3)
