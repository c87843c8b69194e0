"""Tables that steps join, on a real Spark: read as the file says, or refused before a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.errors import raises
from support.spark.spark_session import local_spark

from eos.config.load import load_pipeline, load_profile
from eos.config.model import PipelineFile
from eos.pipeline_tests.runner import check, run_case
from eos.plan.plan import Plan, plan
from eos.spark.lookup_tables import opened, require
from eos.testing import require_same_rows
from eos.transform.functions import load

pytestmark = pytest.mark.spark

TEXT = """\
version: 1
name: NAME
source:
  kafka: {topic: orders}
  value: {json: "id INT, n BIGINT"}
tables:
  customers: {parquet: data/customers, columns: "id INT, name STRING"}
  rates: {csv: data/rates, columns: "name STRING, rate DOUBLE"}
transform:
  - sql: SELECT i.*, c.name FROM input i JOIN customers c ON i.id = c.id
  - {python: "steps_of_NAME:rated", tables: [rates], with: {times: 2}}
sink: {kafka: {topic: out, key: id, value: {json: [id, name, price]}}}
tests:
  - name: joined with both
    tables:
      customers: [{id: 1, name: ann}, {id: 2, name: bob}]
      rates: [{name: ann, rate: 1.5}]
    input: [{value: {id: 1, n: 10}}, {value: {id: 2, n: 10}}, {value: {id: 3, n: 10}}]
    output:
      - {key: 1, value: {id: 1, name: ann, price: 30.0}}
      - {key: 2, value: {id: 2, name: bob, price: null}}
  - name: a table that is not named is empty
    input: [{value: {id: 1, n: 10}}]
    output: []
"""
STEP = """\
def rated(rows, rates, times: int):
    return rows.join(rates, "name", "left").selectExpr("*", f"n * rate * {times} AS price")
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("lookups") as session:
        yield session


def declared(folder: Path, name: str, *instead: tuple[str, str]) -> tuple[PipelineFile, Plan]:
    """A name for each: modules of a name are imported once."""
    place = folder / "pipelines" / name
    place.mkdir(parents=True)
    (place / f"steps_of_{name}.py").write_text(STEP)
    text = TEXT.replace("NAME", name)
    for word, other in instead:
        assert word in text
        text = text.replace(word, other)
    (place / "pipeline.yaml").write_text(text)
    pipeline = load_pipeline(place / "pipeline.yaml", {})
    steps = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    return pipeline, plan(pipeline, load_profile(None, folder, {}), (), steps)


def fill(spark: SparkSession, folder: Path) -> None:
    rows = spark.createDataFrame(
        [(1, "ann", True), (2, "bob", False)], "id INT, name STRING, x BOOLEAN"
    )
    rows.write.parquet(str(folder / "data" / "customers"))
    (folder / "data" / "rates").mkdir()
    (folder / "data" / "rates" / "a.csv").write_text("name,rate\nann,1.5\n")


@pytest.mark.long
def test_the_tests_of_a_file_have_rows_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    pipeline, planned = declared(tmp_path, "looked_up_in_tests")
    assert check(spark, planned) == ()  # a stream that joins tables keeps no state
    assert [run_case(spark, planned, case).missing for case in pipeline.tests] == [(), ()]
    assert all(run_case(spark, planned, case).is_passed for case in pipeline.tests)


def test_tables_are_read_as_the_file_says(spark: SparkSession, tmp_path: Path) -> None:
    fill(spark, tmp_path)
    _, planned = declared(tmp_path, "looked_up")
    require(planned, spark)
    found = opened(planned, spark)
    customers = spark.createDataFrame([(1, "ann"), (2, "bob")], "id INT, name STRING")
    require_same_rows(found["customers"], customers)
    require_same_rows(
        found["rates"], spark.createDataFrame([("ann", 1.5)], "name STRING, rate DOUBLE")
    )


@pytest.mark.parametrize(
    ("name", "word", "other", "code"),
    [
        ("absent", "data/customers", "data/nowhere", "lookup_table_unreadable"),
        ("misspelt", '"id INT, name', '"id INT, nane', "lookup_column_missing"),
        ("retyped", '"id INT, name', '"id BIGINT, name', "lookup_column_type"),
    ],
)
def test_a_table_that_is_another_is_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path, name: str, word: str, other: str, code: str
) -> None:
    fill(spark, tmp_path)
    _, planned = declared(tmp_path, f"looked_up_{name}", (word, other))
    with raises(code):
        require(planned, spark)
