"""What `eos init` writes, as a user has it: its CI passes at once, and it runs on a broker of its
own. Its pytest file is the end-to-end test of the public test kit: a run is killed, and goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest
import yaml
from support.docs import link_requirements, project_requirements

pytestmark = pytest.mark.long

CHECKOUT = Path(__file__).parents[2]
COLUMNS = 72
BIN = Path(sys.executable).parent
# The first has a test of its own; `eos test` of it runs in test_cases.py, on the Spark of others.
LEFT_OUT = ("pip install -r requirements.txt", "eos test pipelines/*/pipeline.yaml")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user") / "shop"
    done = shell(folder.parent, "eos init shop")
    assert (done.returncode, done.stdout) == (0, "shop\n")
    assert "requirements.txt names file://" in done.stderr  # this one is of a checkout
    return folder


def shell(
    folder: Path, command: str, stderr: int = subprocess.PIPE, programs: Path = BIN, **extra: str
) -> subprocess.CompletedProcess[str]:
    """As in a user's activated environment, where nothing of this test's own is set."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("EOS_", "PYTEST_"))}
    inherited.pop("PYTHONPATH", None)
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**inherited, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **extra},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=900,
        check=False,
    )


def on_terminal(folder: Path, command: str, programs: Path) -> tuple[int, str, str]:
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
    done = shell(folder, command, stderr=its, programs=programs, TERM="xterm", NO_COLOR="")
    os.close(its)
    reader.join(300)
    os.close(ours)
    return done.returncode, done.stdout, drawn.decode(errors="replace")


@pytest.mark.nightly
def test_its_ci_passes_at_once(shop: Path) -> None:
    ci = yaml.safe_load((shop / ".github" / "workflows" / "tests.yml").read_text())
    steps = [step["run"] for step in ci["jobs"]["tests"]["steps"] if "run" in step]
    assert set(LEFT_OUT) < set(steps)
    for command in [step for step in steps if step not in LEFT_OUT]:
        done = shell(shop, command)
        assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}{done.stderr[-5000:]}"


@pytest.mark.nightly
def test_an_installation_without_extras_runs_it_and_the_remedy_for_other_machines_works(
    shop: Path, tmp_path: Path
) -> None:
    """The environment is fresh and has what the wheel requires and nothing else. The libraries are
    links to ours: they are 600 MB."""
    project = shutil.copytree(shop, tmp_path / "shop", ignore=shutil.ignore_patterns(".eos"))
    requirements = project / "requirements.txt"
    checkout = tmp_path / "spark-eos"  # a build leaves files in it
    # Others write compiled modules there at the same time.
    own = shutil.ignore_patterns("__pycache__")
    shutil.copytree(CHECKOUT / "eos", checkout / "eos", ignore=own)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, checkout)
    (named,) = re.findall(r"file://\S+", requirements.read_text())  # wherever ours came from
    requirements.write_text(requirements.read_text().replace(named, checkout.as_uri()))

    def ran(folder: Path, command: str) -> str:
        done = shell(folder, f"{tmp_path}/fresh/bin/{command}")
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stderr

    made = shell(tmp_path, f"{sys.executable} -m venv fresh")
    assert made.returncode == 0, made.stderr
    (place,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    link_requirements(project_requirements(), place)
    install = "pip install --no-deps --force-reinstall -r requirements.txt"
    ran(project, install)
    ran(project, "eos lint pipelines/*/pipeline.yaml")
    told = ran(tmp_path, "eos init again")
    (remedy,) = re.findall(r"`(pip wheel [^`]+)`", told)
    (line,) = re.findall(r"write `(\./wheels/[^`]+)`", told)
    ran(project, remedy)
    requirements.write_text(f"{line}\n")
    shutil.rmtree(checkout)
    ran(project, install)
    ran(project, "eos lint pipelines/*/pipeline.yaml")
    ran(project, "eos fetch")
    it_runs_and_tells_a_terminal_how_it_goes(project, tmp_path / "fresh" / "bin")


def it_runs_and_tells_a_terminal_how_it_goes(folder: Path, programs: Path) -> None:
    """stderr is a terminal, stdout is not: what is drawn on the one is not in the other."""
    code, data, drawn = on_terminal(folder, "eos run pipelines/shop", programs)
    assert code == 0, drawn
    told = "999 expected, 999 found; 0 lost; 0 too many"
    assert data == f"paid orders in shop.out: {told}\n"
    lines = [line for line in drawn.split("\r\x1b[K") if " records/s | " in line]
    assert lines
    assert all(len(line) < COLUMNS for line in lines), lines
    assert "1 micro-batch committed: 1,000 records in, 999 out" in drawn
    assert "micro-batch 0 committed" not in drawn  # that is what pipes get


@pytest.mark.nightly
def test_a_python_job_of_init_passes_its_own_tests(tmp_path: Path) -> None:
    done = shell(tmp_path, "eos init --python sales")
    assert (done.returncode, done.stdout) == (0, "sales\n")
    folder = tmp_path / "sales"
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {
        *(".github/workflows/tests.yml", ".gitignore", "README.md", "job.py", "pytest.ini"),
        *("requirements.txt", "tests/test_job.py"),
    }
    done = shell(folder, "pytest")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
