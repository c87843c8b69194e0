"""What `eos init` writes, as a user has it: its CI passes at once, and it runs on a broker of its
own. Its pytest file is the end-to-end test of the public test kit: a run is killed, and goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.long

COLUMNS = 72
BIN = Path(sys.executable).parent
# `eos test` of it runs in test_cases.py, on the Spark of others.
LEFT_OUT = ("pip install -r requirements.txt", "eos test pipelines/*/pipeline.yaml")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user") / "shop"
    done = shell(folder.parent, "eos init shop")
    assert (done.returncode, done.stdout) == (0, "shop\n")
    return folder


def shell(
    folder: Path, command: str, stderr: int = subprocess.PIPE, **extra: str
) -> subprocess.CompletedProcess[str]:
    """As in a user's activated environment, where nothing of this test's own is set."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("EOS_", "PYTEST_"))}
    inherited.pop("PYTHONPATH", None)
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**inherited, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **extra},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=900,
        check=False,
    )


def on_terminal(folder: Path, command: str) -> tuple[int, str, str]:
    """Exit code, stdout, and what came on a terminal of that width."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    drawn = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # how the end of a terminal reads
            while some := os.read(ours, 1 << 16):
                drawn.extend(some)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    done = shell(folder, command, stderr=its, TERM="xterm", NO_COLOR="")
    os.close(its)
    reader.join(300)
    os.close(ours)
    return done.returncode, done.stdout, drawn.decode(errors="replace")


def test_its_ci_passes_at_once(shop: Path) -> None:
    ci = yaml.safe_load((shop / ".github" / "workflows" / "tests.yml").read_text())
    steps = [step["run"] for step in ci["jobs"]["tests"]["steps"] if "run" in step]
    assert set(LEFT_OUT) < set(steps)
    for command in [step for step in steps if step not in LEFT_OUT]:
        done = shell(shop, command)
        assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}{done.stderr[-5000:]}"


def test_it_runs_on_an_embedded_broker_and_tells_a_terminal_how_it_goes(
    shop: Path, tmp_path: Path
) -> None:
    """stderr is a terminal, stdout is not: what is drawn on the one is not in the other."""
    folder = shutil.copytree(shop, tmp_path / "shop", ignore=shutil.ignore_patterns(".eos"))
    code, data, drawn = on_terminal(folder, "eos run pipelines/shop")
    assert code == 0, drawn
    told = "999 expected, 999 found; 0 lost; 0 too many"
    assert data == f"paid orders in shop.out: {told}\n"
    lines = [line for line in drawn.split("\r\x1b[K") if " records/s | " in line]
    assert lines
    assert all(len(line) < COLUMNS for line in lines), lines
    assert "1 micro-batch committed: 1,000 records in, 999 out" in drawn
    assert "micro-batch 0 committed" not in drawn  # that is what pipes get
