"""Which of Spark's Python code is found first: the installed one, if it is the same."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from eos.spark.installed_pyspark import prefer_installed


def _placed(site: Path) -> tuple[str, str, str]:
    """A package with an archive of itself, as Spark's is. Its archives and a jar."""
    package = site / "pyspark"
    lib = package / "python" / "lib"
    lib.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    with zipfile.ZipFile(lib / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/__init__.py", "")
    return str(lib / "pyspark.zip"), str(lib / "py4j-src.zip"), str(package / "jars" / "core.jar")


def test_the_installed_one_comes_first_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, site = _placed(tmp_path), str(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *ours, "/project", site, "/more"])
    prefer_installed()
    assert sys.path == ["", "/project", site, "/more", *ours]


def test_another_spark_keeps_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPARK_HOME's is not what is installed here; and one that is not in the path is not found."""
    ours = _placed(tmp_path / "elsewhere")
    alone = str(tmp_path / "spark" / "python" / "lib" / "pyspark.zip")
    for path in ([*ours, str(tmp_path)], [alone, str(tmp_path)], [str(tmp_path)]):
        monkeypatch.setattr(sys, "path", list(path))
        prefer_installed()
        assert sys.path == path


def test_who_forks_workers_finds_the_installed_one() -> None:
    """With the path that Spark gives it. It is asked to listen at once, and its parent is gone."""
    script = "import pyspark; print(pyspark.__path__[0])"
    package = Path(
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.strip()
    )
    archives = [str(each) for each in sorted((package / "python" / "lib").glob("*.zip"))]
    assert archives
    checkout = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-v", "-m", "eos.spark.worker_daemon", "pyspark.worker"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*archives, checkout])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        start_new_session=True,  # it ends its whole group
        check=False,
    )
    text = done.stderr.decode(errors="replace")
    found = [line for line in text.splitlines() if "pyspark/daemon" in line]
    assert found, text[-2000:]
    assert not [line for line in found if ".zip" in line]
