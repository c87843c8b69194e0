"""Spark's class-data archive: the first run that ends well makes it, the next one maps it."""

from __future__ import annotations

import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql.avro.functions import to_avro
from support.spark.spark_session import archive as archive_of_runs
from support.spark.spark_session import end_jvm, words_of_a_run

from eos.config.load import load_profile
from eos.launch import spark
from eos.launch.submit import Application
from eos.local.class_archive import Archive
from eos.local.java import find_java
from eos.spark import local_session as local
from eos.spark.local_session import SHORT_LIFE, local_session

MAKE_S_MAX = 300  # a bound, not a measure

pytestmark = [pytest.mark.spark, pytest.mark.long]

KAFKAS = "org.apache.kafka.clients.consumer.ConsumerConfig"
# Says what its JVM maps and which loader has a class of Kafka's, and ends as it is told.
JOB = f"""\
import os, sys
from pathlib import Path
from eos.local.processes import announce
from pyspark import SparkContext
from pyspark.sql.avro.functions import to_avro
announce()
SparkContext._ensure_initialized()
loader = SparkContext._jvm.java.lang.Class.forName("{KAFKAS}").getClassLoader().toString()
maps = Path(f"/proc/{{os.getppid()}}/maps").read_text()
mapped = {{line.split()[-1] for line in maps.splitlines() if line.endswith(".jsa")}}
Path(sys.argv[1]).write_text(os.linesep.join([loader, *mapped]))
sys.exit(int(sys.argv[2]))
"""


def command(folder: Path) -> list[str]:
    """As a pipeline has it, but for the job."""
    (folder / "job.py").write_text(JOB)
    conf = {"spark.driver.extraJavaOptions": " ".join(SHORT_LIFE)}
    return [*words_of_a_run("local[1]", conf), str(folder / "job.py")]


def run(words: list[str], folder: Path, archive: Archive, code: int) -> str:
    """The archives that the JVM of a run mapped, beside Java's own."""
    found, java, said = spark.find_spark(), find_java(), folder / "said"
    environment = spark.environment(found, java.home, "local[1]", folder, folder)
    job = (*words, str(said), str(code))
    assert Application(job, environment, folder, archive).run() == code
    loader, *mapped = said.read_text().splitlines()
    assert "AppClassLoader" in loader  # an archive has the classes of no other
    return "".join(path for path in mapped if "spark-" in path)


@pytest.mark.nightly
def test_the_next_run_maps_what_a_good_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "with a space"
    folder.mkdir()
    words = command(folder)  # with the jars of the cache that is there
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archives = tmp_path / "cache" / "spark-eos" / "archives"
    archive = spark.archive(spark.find_spark(), find_java(), "local[1]", words)
    if archive is None:
        assert find_java().version > 17
        return
    run(words, folder, archive, 3)
    assert not list(archives.glob("*")), "a run that failed is no measure"
    run(words, folder, archive, 0)
    end = time.monotonic() + MAKE_S_MAX
    while list(archives.glob("*.making")):
        assert time.monotonic() < end, [path.read_text() for path in archives.glob("*.making/log")]
        time.sleep(0.1)
    (made,) = archives.iterdir()
    assert KAFKAS.replace(".", "/").encode() in made.read_bytes()
    assert run(words, folder, archive, 0) == str(made)
    made.chmod(0o644)
    made.write_bytes(made.read_bytes()[:-4096])
    assert run(words, folder, archive, 3) == ""
    assert not made.exists()


@pytest.mark.nightly
def test_a_session_without_a_pipeline_maps_what_runs_have_left(tmp_path: Path) -> None:
    """`eos test`, `eos plan --check`, the fixture of users' tests."""
    archive = archive_of_runs("local[1]", words_of_a_run("local[1]"))
    if archive is None:
        assert find_java().version > 17
        return
    end_jvm()  # one that other tests have left
    with local_session(load_profile(None, tmp_path, {}), tmp_path, "mapped"):
        assert SparkContext._gateway is not None
        maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()
    end_jvm()
    assert archive.options(), "`tests/run` leaves one before the first test"
    assert archive.options()[0].partition("=")[2] in maps


@pytest.mark.nightly
def test_a_session_without_a_pipeline_takes_only_what_it_needs_if_jars_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "are_there", lambda *_: False)
    end_jvm()
    with local_session(load_profile(None, tmp_path, {}), tmp_path, "few", has_avro=True) as session:
        conf = session.sparkContext.getConf()
        assert "spark-avro" in conf.get("spark.jars", "")
        assert conf.get("spark.driver.extraClassPath") is None
        made = session.range(1).select(to_avro("id").alias("found")).collect()
        assert bytes(made[0].found), "its classes are not there"
        # Blocks on disk are for this user alone, as in a run.
        assert SparkContext._gateway is not None
        words = Path(f"/proc/{SparkContext._gateway.proc.pid}/cmdline").read_text().split("\0")
        (temporary,) = (each for each in words if each.startswith("-Djava.io.tmpdir="))
        folder = Path(temporary.partition("=")[2])
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert list(folder.glob("blockmgr-*"))
    end_jvm()


def test_a_spark_that_the_user_installed_gets_none() -> None:
    found, java = spark.find_spark(), replace(find_java(), version=17)
    assert spark.archive(found, java, "local[1]", []) is not None
    assert spark.archive(replace(found, is_installed=True), java, "local[1]", []) is None
    assert spark.archive(found, java, "yarn", []) is None
    assert spark.archive(found, replace(java, version=21), "local[1]", []) is None


@pytest.mark.nightly
def test_another_class_path_has_another_archive() -> None:
    found, java = spark.find_spark(), replace(find_java(), version=17)

    def of(first: str) -> Archive | None:
        words = ["--conf", f"spark.driver.extraClassPath={first}"]
        return spark.archive(found, java, "local", words)

    assert of("/a.jar:/b.jar") == of("/a.jar:/b.jar")
    assert of("/a.jar:/b.jar") != of("/b.jar:/a.jar")
