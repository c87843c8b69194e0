"""The pytest fixtures for tests of pipelines, which come with `spark-eos[testing]`.

    spark          a Spark session for all tests, without Kafka: to test a transform as a function
    kafka          an embedded broker for all tests
    pipeline_run   a pipeline file on that broker: feed it, run it to its end, kill it, read it
    job_run        a Python job's program on that broker: run it to its end, or kill it

Nothing starts before a test requests it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eos.testing.job_runs import JobRun
    from eos.testing.outside import Kafka
    from eos.testing.runs import PipelineRun


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """A Spark session for all tests, with the Spark settings of the project's profile.

    The profile is the one that EOS_PROFILE names, else `local`.
    """
    from eos.config.load import load_profile
    from eos.spark.local_session import local_session

    root = pytestconfig.rootpath
    with local_session(load_profile(None, root), root, "tests") as session:
        yield session


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """An embedded broker for all tests. Under pytest-xdist, each process has its own."""
    from eos.local.embedded_kafka import EmbeddedKafka
    from eos.testing.outside import Kafka

    with EmbeddedKafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield Kafka(broker.bootstrap)


@pytest.fixture
def pipeline_run(
    kafka: Kafka, tmp_path: Path, pytestconfig: pytest.Config
) -> Callable[..., PipelineRun]:
    """A function that prepares a pipeline file to run on the broker `kafka`, as a `PipelineRun`.

    Its argument is the file's path, relative to the project's folder.
    """
    from eos.testing.runs import PipelineRun

    def make(path: str | Path, partitions: int = 2) -> PipelineRun:
        place = pytestconfig.rootpath / path
        return PipelineRun.of(place, kafka, tmp_path / Path(path).stem, partitions)

    return make


@pytest.fixture
def job_run(
    kafka: Kafka, tmp_path: Path, pytestconfig: pytest.Config
) -> Callable[[str | Path], JobRun]:
    """A function that prepares a Python program to run on the broker `kafka`, as a `JobRun`.

    Its argument is the program's path, relative to the project's folder.
    """
    from eos.testing.job_runs import JobRun

    def make(path: str | Path) -> JobRun:
        return JobRun(pytestconfig.rootpath / path, kafka, tmp_path / Path(path).stem)

    return make
