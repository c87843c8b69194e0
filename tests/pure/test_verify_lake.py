"""Which versions of a Delta table the ledger allows, and what is said of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from eos.kafka.api import Identity
from eos.ledger.record import Kind, LedgerRecord, Position, TableState
from eos.plan.delta_sink import Table
from eos.verify.delta_tables import Sinks, TableWrite, check_tables, read_tables

TABLE = Table("all", "/lake/all")
SINKS = Sinks((TABLE,), {"all": "app"})


def known(offset: int, at: int, kind: Kind = "attempt") -> LedgerRecord:
    position = Position({}, {}, "q", 1, tables={"all": TableState("id", at)})
    return LedgerRecord(kind, position, {}, 0, offset, Identity(1, offset))


def cases(
    found: TableWrite | str,
    low: LedgerRecord,
    high: LedgerRecord | None = None,
    owed: Mapping[str, int] = MappingProxyType({}),
) -> list[str]:
    return [each.case for each in check_tables(SINKS, {"all": found}, owed, low, high or low)]


@pytest.mark.parametrize(
    ("at", "low", "told"),
    [
        (12, known(12, 8), []),
        (8, known(12, 8), ["delta_pending"]),  # the process died behind its transaction
        (4, known(12, 8), ["delta_version"]),  # restored
        (14, known(12, 8), ["delta_version"]),
        (12, known(14, 12, "stop"), []),
        (8, known(14, 12, "stop"), ["delta_version"]),
        (14, known(14, 12, "stop"), ["delta_version"]),
    ],
)
def test_two_versions_fit_an_attempt_and_one_any_other_record(
    at: int, low: LedgerRecord, told: list[str]
) -> None:
    assert cases(TableWrite("id", at), low) == told


@pytest.mark.parametrize(
    ("at", "told"),
    [(12, []), (8, ["delta_pending"]), (10, ["delta_version"]), (6, ["delta_version"])],
)
def test_a_record_that_follows_an_owed_micro_batch_confirms_nothing(
    at: int, told: list[str]
) -> None:
    """As after a kill between the transaction and the table, and then a recovery."""
    low = known(14, 8, "recovery")
    assert cases(TableWrite("id", at), low, owed={"all": 12}) == told


def test_while_it_runs_it_may_be_anywhere_between_two_looks() -> None:
    for at, told in ((7, ["delta_version"]), (8, []), (20, []), (21, ["delta_version"])):
        assert cases(TableWrite("id", at), known(12, 8), known(20, 16)) == told


def test_another_table_and_none() -> None:
    assert cases(TableWrite("other", 12), known(12, 8)) == ["delta_replaced"]
    assert cases("is gone", known(12, 8)) == ["delta_unreadable"]
    unknown = replace(known(12, 8), position=Position({}, {}))
    assert cases(TableWrite("id", 99), unknown) == []  # declared, and not met by any run yet


def test_a_table_is_read_as_it_lies_there(tmp_path: Path) -> None:
    there = Table("all", str(tmp_path / "all"))
    absent, broken = Table("no", str(tmp_path / "no")), Table("broken", str(tmp_path / "broken"))
    elsewhere = Table("far", "hdfs://lake/far")
    done = CommitProperties(app_transactions=[Transaction("app", 12)])
    rows = pa.table({"n": pa.array([1])})
    write_deltalake(there.path, rows, commit_properties=done)
    (tmp_path / "broken" / "_delta_log").mkdir(parents=True)
    every = (there, absent, broken, elsewhere)
    sinks = Sinks(every, dict.fromkeys(("all", "no", "broken", "far"), "app"))
    found = read_tables(sinks)
    assert isinstance(found["all"], TableWrite)
    assert (found["all"].at, found["all"].version) == (12, 0)
    assert found["no"] == "is gone"
    assert str(found["broken"]).startswith("can't be read")
    assert "far" not in found
    assert sinks.others() == {"far": "hdfs://lake/far"}


def test_a_bucket_with_credentials_for_a_jvm_alone_is_left_to_spark() -> None:
    there = Table("all", "s3a://lake/all")
    provider = {"spark.hadoop.fs.s3a.aws.credentials.provider": "com.example.Own"}
    assert Sinks((there,), {}, "orders", provider).others() == {"all": there.path}
    assert Sinks((there,), {}, "orders").others() == {}


def test_a_restore_that_removed_rows_is_found(tmp_path: Path) -> None:
    there = Table("all", str(tmp_path / "all"))
    sinks = Sinks((there,), {"all": "app"}, "orders")
    for at in (8, 12):
        done = CommitProperties(app_transactions=[Transaction("app", at)])
        write_deltalake(there.path, pa.table({"n": [at]}), mode="append", commit_properties=done)
    identity = str(DeltaTable(there.path).metadata().id)

    def found() -> list[str]:
        position = Position({}, {}, tables={"all": TableState(identity, 12, 1)})
        level = replace(known(14, 12, "stop"), position=position)
        return [each.case for each in check_tables(sinks, read_tables(sinks), {}, level, level)]

    assert found() == []
    DeltaTable(there.path).restore(0)
    assert found() == ["delta_restored"]
    DeltaTable(there.path).restore(1)
    assert found() == []
