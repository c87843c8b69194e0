"""A project folder for each test, on the session's broker, and a warm driver for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka.brokers import Kafka
from support.spark.processes import can_mount
from support.spark.project import PROFILE, Project, WarmDriver

from eos.config.load import load_profile
from eos.launch.spark import find_spark
from eos.local import jars

MOUNTS = "test_disk_full.py"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.name == MOUNTS]
    if ours and not can_mount():
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]
        _left_out.append(MOUNTS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _left_out:
        terminalreporter.line(f"LEFT OUT: {MOUNTS}: this user may not mount a file system")


_left_out: list[str] = []
_DELTA = """
    spark.jars: "{jars}"
    spark.sql.extensions: io.delta.sql.DeltaSparkSessionExtension
    spark.sql.catalog.spark_catalog: org.apache.spark.sql.delta.catalog.DeltaCatalog
    # Little to read: half of the time would go into empty tasks.
    spark.databricks.delta.snapshotPartitions: 1
"""


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmDriver]:
    """What all profiles have in common; its driver starts with the first run that wants one."""
    folder = tmp_path_factory.mktemp("warm")
    profile = folder / "profile.yaml"
    profile.write_text(PROFILE.format(bootstrap="none:1", root=folder / "state"))
    made = WarmDriver(folder, load_profile(str(profile), folder))
    yield made
    made.close()


@pytest.fixture(scope="module")
def with_delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmDriver]:
    """Yield a warm driver with Delta, as spark-submit starts one for a pipeline with tables."""
    folder = tmp_path_factory.mktemp("delta")
    files = ",".join(map(str, jars.paths_of(*find_spark().delta_jar_sets())))
    text = PROFILE.format(bootstrap="none:1", root=folder / "state").rstrip()
    (folder / "profile.yaml").write_text(text + _DELTA.format(jars=files))
    made = WarmDriver(folder, load_profile(str(folder / "profile.yaml"), folder))
    yield made
    made.close()


@pytest.fixture
def project(tmp_path: Path, broker: Kafka, warm: WarmDriver) -> Project:
    return Project.made(tmp_path, broker, warm)
