"""The version of a Spark installation, and the versions that this release supports."""

from __future__ import annotations

import re
from pathlib import Path

from eos.errors import UsageError
from eos.local.jars import SPARK_VERSIONS

# 4.0.0 is older than what Delta's Python package and its jars for 4.0 were made for.
OLDEST = "4.0.1"
SCALA = "2.13"
REQUIREMENT = f"pyspark>={OLDEST},<=4.2.0"  # as in pyproject.toml
SUPPORTED = f"Spark 4.0 (from {OLDEST}), {' and '.join(sorted(SPARK_VERSIONS)[1:])}"
_CORE = re.compile(r"spark-core_([\d.]+)-(\d+)\.(\d+)\.(\d+)(.*)\.jar")


def supported_version(home: Path, *, is_installed: bool) -> str:
    """Return the version of the Spark in the folder `home`.

    `is_installed` means that `home` is the user's SPARK_HOME, and not this environment's pyspark.
    Raise UsageError if this release does not support that version."""
    found = next(filter(None, (_CORE.fullmatch(jar.name) for jar in _core_jars(home))), None)
    if found is None:
        raise UsageError(
            "spark_version_unknown",
            f"the folder {home / 'jars'} has no jar spark-core_{SCALA}-VERSION.jar, so the version "
            "of this Spark is unknown",
            hint="set SPARK_HOME to a complete Spark, or run `unset SPARK_HOME` to use the Spark "
            "of this environment",
        )
    scala, version = found[1], "".join((".".join(found.group(2, 3, 4)), found[5]))
    numbers = tuple(map(int, found.group(2, 3, 4)))
    is_known = minor_of(version) in SPARK_VERSIONS and numbers >= _numbers(OLDEST)
    if is_known and scala == SCALA:
        return version
    if is_installed:
        raise UsageError(
            "spark_home_version",
            f"SPARK_HOME is `{home}`, which is Spark {version} for Scala {scala}, but this "
            f"release supports {SUPPORTED}, for Scala {SCALA}",
            hint="set SPARK_HOME to a Spark of these versions, on the workers as well; "
            "docs/install.md lists what is tested",
        )
    raise UsageError(
        "pyspark_version",
        f"this environment has pyspark {version}, but this release supports {SUPPORTED}",
        hint=f"run `pip install '{REQUIREMENT}'`; docs/install.md lists what is tested",
    )


def minor_of(version: str) -> str:
    """Return the minor version, such as 4.2, of a full version."""
    return ".".join(version.split(".")[:2])


def _core_jars(home: Path) -> list[Path]:
    return sorted((home / "jars").glob("spark-core_*.jar"))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
