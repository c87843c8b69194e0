"""The class-data archive of Spark for JVMs that tests start: it spares each a third of its time.

`support.archive_spark` leaves one before the tests begin (`eos/local/class_archive.py`). It fits a
JVM
that has the class path of a run, so that is what they all get.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from eos.launch import spark
from eos.launch.java_and_jars import ensure_java
from eos.local.class_archive import Archive

CLASS_PATH = "spark.driver.extraClassPath"


def words_of_a_run(master: str, conf: Mapping[str, str] | None = None) -> list[str]:
    """The command line of a run, but for its job."""
    words = spark.command(spark.find_spark(), [], master, conf or {}, [], Path(), Path())
    return words[:-1]


def class_path(words: Sequence[str]) -> dict[str, str]:
    """The setting of it, for a JVM that PySpark starts."""
    split = (word.partition("=") for word in words)
    return {key: value for key, _, value in split if key == CLASS_PATH}


def archive(master: str, words: Sequence[str]) -> Archive | None:
    """What lies beside the class path, as Delta may, the JVM loads as ever."""
    own = [word for word in words if word.startswith(f"{CLASS_PATH}=")]
    return spark.archive(spark.find_spark(), ensure_java(), master, own)


def with_archive(
    environment: Mapping[str, str], master: str, words: Sequence[str], *options: str
) -> dict[str, str]:
    """For the JVM of this command: these options, and the archive if there is one by now."""
    found = archive(master, words)
    mapped = found.options() if found else []
    return spark.with_java_options(environment, *options, *mapped)
