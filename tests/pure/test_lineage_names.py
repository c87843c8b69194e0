"""The names of tables in lineage are those of OpenLineage's naming, as its client has them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from openlineage.client.naming.dataset import (
    ABFSS,
    GCS,
    HDFS,
    S3,
    WASBS,
    DatasetNaming,
    LocalFileSystem,
)

from eos.plan.lineage import dataset_at

NAMED: Sequence[tuple[str, DatasetNaming]] = (
    ("/lake/all", LocalFileSystem("/lake/all")),
    ("file:///lake/all", LocalFileSystem("/lake/all")),
    ("s3a://bucket/lake/all", S3("bucket", "lake/all")),
    ("gs://bucket/all", GCS("bucket", "all")),
    ("hdfs://node:8020/lake/all", HDFS("node", "8020", "/lake/all")),
    ("abfs://box@store.dfs.core.windows.net/all", ABFSS("box", "store", "all")),
    ("wasb://box@store.dfs.core.windows.net/all", WASBS("box", "store", "all")),
)


@pytest.mark.parametrize(("location", "named"), NAMED)
def test_tables_are_named_as_openlineage_names_them(location: str, named: DatasetNaming) -> None:
    assert dataset_at(location) == (named.get_namespace(), named.get_name())


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("s3a://bucket", ("s3://bucket", "/")),
        ("hdfs:/lake/all", ("hdfs", "/lake/all")),
        ("dbfs:/lake", ("dbfs", "/lake")),
    ],
)
def test_other_locations_keep_scheme_and_path(location: str, named: tuple[str, str]) -> None:
    assert dataset_at(location) == named
