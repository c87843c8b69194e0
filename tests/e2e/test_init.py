"""What `eos init` writes, as a user has it: its CI passes at once, and it runs on a broker of its
own. Its pytest file is the end-to-end test of the public test kit: a run is killed, and goes on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

BIN = Path(sys.executable).parent
# `eos test` of it runs in test_cases.py, on the Spark of others.
LEFT_OUT = ("pip install -r requirements.txt", "eos test pipelines/*/pipeline.yaml")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user") / "shop"
    done = shell(folder.parent, "eos init shop")
    assert (done.returncode, done.stdout) == (0, "shop\n")
    return folder


def shell(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """As in a user's activated environment, where nothing of this test's own is set."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("EOS_", "PYTEST_"))}
    inherited.pop("PYTHONPATH", None)
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**inherited, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_its_ci_passes_at_once(shop: Path) -> None:
    ci = yaml.safe_load((shop / ".github" / "workflows" / "tests.yml").read_text())
    steps = [step["run"] for step in ci["jobs"]["tests"]["steps"] if "run" in step]
    assert set(LEFT_OUT) < set(steps)
    for command in [step for step in steps if step not in LEFT_OUT]:
        done = shell(shop, command)
        assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}{done.stderr[-5000:]}"


def test_it_runs_on_an_embedded_broker(shop: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(shop, tmp_path / "shop", ignore=shutil.ignore_patterns(".eos"))
    done = shell(folder, "eos run pipelines/shop")
    assert done.returncode == 0, done.stderr
    told = "999 expected, 999 found; 0 lost; 0 too many"
    assert done.stdout == f"paid orders in shop.out: {told}\n"
