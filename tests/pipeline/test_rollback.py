"""An earlier release opens what this one wrote: it resumes, or refuses clearly and writes nothing.

The earlier release is a commit of this project, run from its own files. What is newer is simulated
in `tests/kafka/test_newer_ledger.py`, too.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.copies.recovery import Pipeline
from support.docs import ROOT
from support.kafka import kafka_io
from support.spark.project import Project
from support.verbs import verify

import eos
from eos.ledger import decoder, record
from eos.testing import require_each_once

# The first one that refuses records of newer releases, as docs/upgrades.md promises.
EARLIER = "9702d5a8f1b2bcf84774d4e97c50a20ae8528aad"
VERSION = "0.0.9"  # it gets this one, which its ledger records then have
RUN_S_MAX = 600

Earlier = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    """Return a function that calls the earlier release's `eos` with these words."""
    home = tmp_path_factory.mktemp("earlier")
    command = ["git", "archive", "--format=tar", EARLIER, "eos", "pyproject.toml"]
    try:
        made = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"no git with commit {EARLIER[:8]} here: a shallow clone, or an export")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(home, filter="data")

    package = home / "eos" / "__init__.py"
    text = package.read_text()
    assert f'"{eos.__version__}"' in text
    package.write_text(text.replace(f'"{eos.__version__}"', f'"{VERSION}"'))

    def call(folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(home), str(folder)])
        return subprocess.run(
            [sys.executable, "-m", "eos", *words],
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )

    assert VERSION in call(home, ["--version"]).stdout
    return call


@pytest.mark.nightly
def test_it_resumes_where_this_release_stopped_and_back(project: Project, earlier: Earlier) -> None:
    bootstrap = project.broker.bootstrap
    kafka_io.create_topics(bootstrap, 2, project.source)
    project.declare(20, 2)

    def fill(numbers: range) -> None:
        kafka_io.fill(bootstrap, project.source, numbers)

    fill(range(50))
    now = project.run_warm()
    assert now.returncode == 0, now.stderr
    fill(range(50, 90))
    before = earlier(project.folder, ["run", *project.words()])
    assert before.returncode == 0, before.stderr
    (newest,) = kafka_io.read(bootstrap, project.ledger)[-1:]
    assert json.loads(newest.value or b"")["owner"]["version"] == VERSION
    require_each_once([str(n) for n in range(90)], values(project))
    fill(range(90, 130))
    again = project.run_warm()
    assert again.returncode == 0, again.stderr
    require_each_once([str(n) for n in range(130)], values(project))
    assert verify(project.words()) == 0


def values(project: Project) -> list[str]:
    rows = kafka_io.read(project.broker.bootstrap, project.target)
    return [(row.value or b"").decode() for row in rows]


@pytest.mark.nightly
def test_it_refuses_a_newer_ledger_and_writes_nothing(
    project: Project, earlier: Earlier, tmp_path: Path
) -> None:
    pipeline = Pipeline(tmp_path / "newer", project.broker.bootstrap, project.name)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decoder, "FORMAT", 2)
            patch.setattr(record, "FORMAT", 2)
            pipeline.ran(3)
        ends = pipeline.ledger_ends()
        for words in (["status"], ["verify"], ["recover"], ["recover", "--rewind-to", "0"]):
            refused = earlier(pipeline.folder, [words[0], *pipeline.words, *words[1:]])
            assert refused.returncode == 4, refused
            assert "[ledger_newer]" in refused.stderr
            assert "Traceback" not in refused.stderr
        assert pipeline.ledger_ends() == ends
    finally:
        pipeline.close()
