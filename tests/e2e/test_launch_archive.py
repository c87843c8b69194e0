"""Spark's class-data archive: the first run that ends well makes it, the next one maps it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from eos.launch import spark
from eos.launch.archive import Archive
from eos.launch.java import find_java
from eos.launch.submit import Application

MAKE_S_MAX = 300  # a bound, not a measure

pytestmark = pytest.mark.spark

# Says what its JVM maps, and ends as it is told.
JOB = """\
import os, sys
from pathlib import Path
from eos.launch.process import announce
announce()
maps = Path(f"/proc/{os.getppid()}/maps").read_text()
mapped = {line.split()[-1] for line in maps.splitlines() if line.endswith(".jsa")}
Path(sys.argv[1]).write_text(os.linesep.join(mapped))
sys.exit(int(sys.argv[2]))
"""


def run(folder: Path, archive: Archive, code: int) -> str:
    """The archives that the JVM of a run mapped, beside Java's own."""
    found, java, said = spark.find_spark(), find_java(), folder / "said"
    (folder / "job.py").write_text(JOB)
    words = [str(found.submit), "--master", "local[1]", str(folder / "job.py"), str(said)]
    environment = spark.environment(found, java.home, "local[1]", folder, folder)
    assert Application((*words, str(code)), environment, folder, archive).run() == code
    return "".join(path for path in said.read_text().splitlines() if "spark-" in path)


def test_the_next_run_maps_what_a_good_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "with a space"
    folder.mkdir()
    archives = tmp_path / "cache" / "spark-eos" / "archives"
    archive = spark.archive(spark.find_spark(), find_java(), "local[1]")
    if archive is None:
        assert find_java().version > 17
        return
    run(folder, archive, 3)
    assert not list(archives.iterdir()), "a run that failed is no measure"
    run(folder, archive, 0)
    end = time.monotonic() + MAKE_S_MAX
    while list(archives.glob("*.making")):
        assert time.monotonic() < end, [path.read_text() for path in archives.glob("*.making/log")]
        time.sleep(0.1)
    (made,) = archives.iterdir()
    assert run(folder, archive, 0) == str(made)
    made.chmod(0o644)
    made.write_bytes(made.read_bytes()[:-4096])
    assert run(folder, archive, 3) == ""
    assert not made.exists()


def test_a_spark_that_the_user_installed_gets_none() -> None:
    found, java = spark.find_spark(), replace(find_java(), version=17)
    assert spark.archive(found, java, "local[1]") is not None
    assert spark.archive(replace(found, is_installed=True), java, "local[1]") is None
    assert spark.archive(found, java, "yarn") is None
    assert spark.archive(found, replace(java, version=21), "local[1]") is None
