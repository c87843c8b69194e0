"""What a test of a pipeline file reports if Spark fails on one of its records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.spark.spark_session import local_spark

from eos.config.load import load_pipeline, load_profile
from eos.pipeline_tests.runner import run_case
from eos.plan.plan import plan
from eos.transform.functions import load

pytestmark = pytest.mark.spark

TEXT = """\
version: 1
name: case_errors
source: {kafka: {topic: a}, value: {json: "text STRING"}}
transform:
  - sql: SELECT key, CAST(text AS INT) AS number FROM input
sink: {kafka: {topic: b, value: {json: [number]}}}
tests:
  - name: no number
    input: [{value: {text: x}}]
    output: []
  - name: a number
    input: [{value: {text: "1"}}]
    output: [{value: {number: 1}}]
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("case errors") as session:
        yield session


def test_a_record_on_which_spark_fails_fails_its_test_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "pipeline.yaml").write_text(TEXT)
    pipeline = load_pipeline(tmp_path / "pipeline.yaml", {})
    steps = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    planned = plan(pipeline, load_profile(None, tmp_path, {}), (), steps)
    failed, passed = (run_case(spark, planned, case) for case in pipeline.tests)
    assert not failed.is_passed
    assert failed.error.startswith("NumberFormatException: [CAST_INVALID_INPUT] ")
    assert "JVM stacktrace" not in failed.error
    assert passed.is_passed
