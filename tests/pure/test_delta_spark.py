"""Delta's Python package has its jar's release, and one module alone goes past it."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

from eos.launch.relock_python import USERS, requirements
from eos.local.jars import SPARK_VERSIONS, of_delta, read_lock

ROOT = Path(__file__).parents[2]
PRIVATE = "eos/spark/delta_snapshot.py"


def test_the_package_and_the_jars_are_of_one_release() -> None:
    pins = {each.name: str(each.specifier) for each in map(Requirement, requirements()[USERS])}
    release = pins["delta-spark"].removeprefix("==")
    for minor in SPARK_VERSIONS:
        jars = [each.coordinate for each in read_lock() if each.purpose in of_delta(minor)]
        assert set(jars) == {
            f"io.delta:delta-spark_{minor}_2.13:{release}",
            f"io.delta:delta-storage:{release}",
        }
    assert version("delta-spark") == release


def test_one_module_uses_deltas_java_classes() -> None:
    """The Python package does everything else, as the module says."""
    found = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "eos").rglob("*.py"))
        if re.search(r"jvm\.(io|org\.apache\.spark\.sql)\.delta\b", path.read_text())
    ]
    assert found == [PRIVATE]
