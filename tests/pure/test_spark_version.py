"""Which Spark is used, and which one is refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.errors import raises

from eos.launch import spark
from eos.launch.relock_python import USERS, requirements
from eos.launch.spark import Spark
from eos.launch.spark_version import REQUIREMENT, supported_version
from eos.local.jars import SPARK_VERSIONS, read_lock


def home_with(folder: Path, jar: str) -> Path:
    for name in ("bin/spark-submit", f"jars/{jar}"):
        (folder / name).parent.mkdir()
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("jar", "version", "sets"),
    [
        ("spark-core_2.13-4.2.1.jar", "4.2.1", ("spark", "spark-4.2")),
        ("spark-core_2.13-4.1.4.jar", "4.1.4", ("spark", "spark-4.1")),
        ("spark-core_2.13-4.0.1-amzn-0.jar", "4.0.1-amzn-0", ("spark", "spark-4.0")),
    ],
)
def test_a_supported_spark_has_jars_of_its_own(
    jar: str,
    version: str,
    sets: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(home_with(tmp_path, jar)))
    found = spark.find_spark()
    assert found == Spark(tmp_path, is_installed=True, version=version)
    assert found.jar_sets() == sets
    delta = tuple(each.replace("spark", "delta") for each in sets)
    assert found.jar_sets(with_delta=True) == (*sets, *delta)


@pytest.mark.parametrize(
    ("jar", "version"),
    [
        ("spark-core_2.13-4.3.0.jar", "4.3.0 for Scala 2.13"),
        ("spark-core_2.13-4.0.0.jar", "4.0.0 for Scala 2.13"),
        ("spark-core_2.12-3.5.3.jar", "3.5.3 for Scala 2.12"),
        ("spark-core_2.14-4.2.0.jar", "4.2.0 for Scala 2.14"),
    ],
)
def test_a_spark_home_of_another_version_is_refused(
    jar: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(home_with(tmp_path, jar)))
    with raises("spark_home_version") as caught:
        spark.find_spark()
    assert f"which is Spark {version}, but" in caught.value.message
    assert "supports Spark 4.0 (from 4.0.1), 4.1 and 4.2, for Scala 2.13" in caught.value.message


def test_another_pyspark_of_the_environment_is_refused(tmp_path: Path) -> None:
    home_with(tmp_path, "spark-core_2.13-4.3.0.jar")
    with raises("pyspark_version") as caught:
        supported_version(tmp_path, is_installed=False)
    assert "this environment has pyspark 4.3.0" in caught.value.message
    assert REQUIREMENT in caught.value.hint


def test_a_spark_of_unknown_version_is_refused(tmp_path: Path) -> None:
    with raises("spark_version_unknown"):
        supported_version(home_with(tmp_path, "spark-core.jar"), is_installed=True)


def test_the_requirement_is_that_of_the_package() -> None:
    assert REQUIREMENT in requirements()[USERS]


def test_each_version_has_its_kafka_source() -> None:
    for minor in SPARK_VERSIONS:
        (source,) = (
            jar.coordinate
            for jar in read_lock()
            if jar.purpose == f"spark-{minor}" and "spark-sql-kafka" in jar.coordinate
        )
        assert source.rpartition(":")[2].startswith(f"{minor}.")
