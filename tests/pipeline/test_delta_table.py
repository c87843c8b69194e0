"""Writes to a Delta table by Spark, without Kafka: each once, whoever else commits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from support.delta import lake
from support.errors import raises
from support.spark.spark_session import class_path, end_jvm, with_archive, words_of_a_run

from eos.checkpoint.files import LocalFiles
from eos.config.load import load_profile
from eos.delta import table as delta
from eos.delta.log import DeltaLog
from eos.delta.rows import require_fits
from eos.finding import Witness
from eos.kafka.api import Identity
from eos.plan.delta_sink import Table
from eos.spark.local_session import local_session
from eos.verify.table_files import TableFiles, _ranges

pytestmark = [pytest.mark.spark, pytest.mark.long]
APP = "app"
KEY = "we`ird.K"
COLUMNS = f"`{KEY.replace('`', '``')}` INT, n INT"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    end_jvm()
    folder = tmp_path_factory.mktemp("table")
    profile, words = load_profile(None, folder, {}), words_of_a_run("local[1]")
    few = {"spark.databricks.delta.snapshotPartitions": "1"}
    profile.spark.conf.update({**class_path(words), **few})
    with pytest.MonkeyPatch.context() as of_the_jvm:
        for key, value in with_archive(os.environ, "local[1]", words).items():
            of_the_jvm.setenv(key, value)
        with local_session(profile, folder, "table", has_delta=True) as session:
            yield session
    end_jvm()


@pytest.fixture
def merged(spark: SparkSession, tmp_path: Path) -> Table:
    """A table whose pipeline file spells the key in other letters than the rows."""
    table = Table("merged", str(tmp_path / "merged"), keys=(KEY.lower(),))
    rows = made(spark, (1, 10), (2, 20), (None, 30))
    delta.create(spark, table, rows.schema, APP, 4)
    delta.write(rows, table, APP, 5)
    return table


def made(spark: SparkSession, *rows: tuple[Any, ...], columns: str = COLUMNS) -> DataFrame:
    return spark.createDataFrame(list(rows), columns)


def found(table: Table) -> dict[int | None, int]:
    rows = lake.rows(Path(table.path))
    values = {row[KEY]: row["n"] for row in rows}
    assert len(values) == len(rows)
    return values


def test_a_merge_updates_inserts_and_deletes_once(spark: SparkSession, merged: Table) -> None:
    rows = made(spark, (None, 31), (3, 33))
    assert delta.write(rows, merged, APP, 6).at == 6
    again = delta.write(made(spark, (4, 40)), merged, APP, 6)  # another instance, the same record
    assert (again.at, again.version) == (6, 2)
    assert found(merged) == {1: 10, 2: 20, 3: 33, None: 31}
    deleting = replace(merged, delete_when="n < 0")
    rows = made(spark, (1, -1), (2, 22), (5, -1)).selectExpr("*", f"n < 0 AS {delta.DELETES}")
    assert delta.write(rows, deleting, APP, 7).at == 7
    assert found(merged) == {2: 22, 3: 33, None: 31}
    assert spark.conf.get("spark.databricks.delta.write.txnVersion", None) is None


def test_a_merge_that_conflicts_is_repeated(spark: SparkSession, merged: Table) -> None:
    """Another program commits after the merge has read the table."""
    path = merged.path
    marker = Path(f"{path}.once")

    def interfering(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        if not marker.exists():
            marker.touch()
            DeltaTable(path).delete("n = 20")
        yield from parts

    rows = made(spark, (1, 11), (3, 33), columns="k INT, n INT")
    rows = rows.mapInPandas(interfering, rows.schema).toDF(KEY, "n")
    assert delta.write(rows, merged, APP, 6).at == 6
    assert marker.exists()
    assert found(merged) == {1: 11, 3: 33, None: 30}


def test_columns_are_added_only_with_evolve(spark: SparkSession, merged: Table) -> None:
    wide = made(spark, (1, 11, "x"), columns=f"{COLUMNS}, s STRING")
    with raises("table_refuses") as caught:  # as if the column was dropped after the startup
        delta.write(wide, merged, APP, 6)
    assert "Cannot resolve s in UPDATE clause" in caught.value.message
    with raises("table_column_missing"):
        require_fits(merged, wide.schema, delta.read_layout(spark, merged))
    evolving = replace(merged, evolves=True)
    assert delta.write(wide, evolving, APP, 6).at == 6
    layout = delta.read_layout(spark, merged)
    assert layout.schema.names == [KEY, "n", "s"]
    require_fits(merged, wide.schema, layout)


@pytest.mark.nightly
def test_files_that_spark_writes_agree_with_its_log(spark: SparkSession, tmp_path: Path) -> None:
    """`eos verify` compares each file's footer with the log: rows, and the range of each column."""
    rows = spark.range(12).selectExpr(
        "CAST(id AS INT) AS n",
        "id * 4000000000 AS big",
        "date_add(DATE'1965-01-01', CAST(id * 400 AS INT)) AS day",
        "timestamp_micros(id * 1000001) AS at",
        "concat(repeat('\U0001f600', 20), 'x', id) AS text",
        "CAST(id / 3 AS DECIMAL(12, 2)) AS cents",
        "CAST(IF(id < 4, NULL, id) AS DECIMAL(10, 0)) AS whole",
        "CAST(id / 3 AS FLOAT) AS real",
        "id < 3 AS flag",
        "named_struct('a.b', id) AS s",
        "IF(id < 9, 'a b/\u00fc%', NULL) AS p",
    )
    for table in (
        Table("parted", str(tmp_path / "parted"), partition_by=("p",)),
        Table("merged", str(tmp_path / "merged"), keys=("n",)),
    ):
        delta.create(spark, table, rows.schema, APP, 3)
        delta.write(rows, table, APP, 4)
        newer = rows.where("n > 5").withColumn("n", rows.n + 3)
        version = delta.write(newer, table, APP, 5).version
        files = TableFiles(table, DeltaLog(LocalFiles(), table.path, APP))
        witness = Witness(5, "attempt", 0, 1, Identity(5, 2))
        counts = [files.check(each, witness) for each in range(1, version + 1)]
        assert counts == [12, None if table.keys else 6]
        assert list(files.findings()) == []
        written = list(Path(table.path).rglob("part-*.parquet"))
        compared = {name for each in written for name in _ranges(pq.read_metadata(each))}
        assert compared >= {"n", "big", "day", "text", "s.a.b"}
        assert files.checked > 2 - bool(table.keys)


def test_the_layout_of_a_partitioned_table(spark: SparkSession, tmp_path: Path) -> None:
    table = Table("parted", str(tmp_path / "parted"), partition_by=("n",))
    rows = made(spark, (1, 10))
    assert delta.view_table(spark, table, APP) is None
    delta.create(spark, table, rows.schema, APP, 3)
    view = delta.view_table(spark, table, APP)
    assert view is not None
    assert (view.at, view.version, view.id) == (3, 0, DeltaTable(table.path).metadata().id)
    assert delta.read_layout(spark, table) == delta.TableLayout(rows.schema, ("n",))
    spark.sql(
        f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES "
        "('delta.setTransactionRetentionDuration' = 'interval 1 day')"
    )
    with raises("table_forgets"):
        delta.view_table(spark, table, APP)
