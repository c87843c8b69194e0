"""The end of a run's three processes: which exit code the launcher returns, and who ends whom."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from eos.launch import demo, driver
from eos.local import embedded_kafka, processes
from eos.local.file_locks import FileLock

ROOT = Path(__file__).parents[2]
# spark-submit's JVM: its driver announces itself, ends, and the JVM needs a minute for its own end.
JVM = """
import subprocess, sys, time
subprocess.run([sys.executable, "-c", sys.argv[1]], check=False)
time.sleep(60)
"""
ANNOUNCED = "from eos.local import processes; processes.announce(); "


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("processes.announce_end(3); raise SystemExit(3)", 3),
        ("processes.announce_end(0)", 0),
        ("from eos.run import shutdown; shutdown._end('not stopped', 0)", 0),
        ("import os; os.kill(os.getpid(), 9)", 137),
    ],
)
def test_the_code_is_the_drivers_although_its_jvm_is_killed(
    end: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_JVM_GRACE_S", 0.1)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", JVM, ANNOUNCED + end]
    assert driver.run(words, environment, tmp_path / "jvm.log") == code


def test_a_driver_waits_until_broker_and_demo_have_their_time() -> None:
    assert demo._LOAD_S_MAX + embedded_kafka.START_MS_MAX / 1000 < processes.ADDRESS_S_MAX


def test_a_launcher_lives_while_it_holds_its_lock_or_its_lock_is_gone(tmp_path: Path) -> None:
    """A program that deletes old temporary files may remove the lock of a run."""
    lock = FileLock(tmp_path / "launcher.lock")
    assert lock.try_exclusive()
    assert not processes._is_free(lock.path)
    lock.path.unlink()
    assert not processes._is_free(lock.path)
    lock.close()
    FileLock(lock.path).close()
    assert processes._is_free(lock.path)
