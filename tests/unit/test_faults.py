"""Crash points: inert unless planned, deadly where planned, and they say so before."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from eos.errors import UsageError
from eos.faults import MOMENTS, POINTS, VICTIMS, CrashPlan

# A child that starts another one: its parent stands for the JVM, itself for the driver, and what
# it starts for a Python worker that gets the plan over the wire.
PARENT = """
import subprocess, sys
child = subprocess.run([sys.executable, "-c", sys.argv[1]], stdout=sys.stdout)
print("jvm lives", child.returncode, flush=True)
"""
DRIVER = """
from eos.faults import CrashPlan
plan = CrashPlan.from_environment()
plan.reached("begin:before")
print("before", flush=True)
plan.reached("begin:after")
print("after", flush=True)
"""
WORKER = """
import pickle, subprocess, sys
from eos.faults import CrashPlan
plan = CrashPlan.from_environment()
program = "import pickle,sys;p=pickle.loads(bytes.fromhex(sys.argv[1]));p.reached('begin:after')"
program += ";print('worker lives', flush=True)"
done = subprocess.run([sys.executable, "-c", program, pickle.dumps(plan).hex()])
print("driver lives", done.returncode, flush=True)
"""


def run(tmp_path: Path, at: str, program: str) -> tuple[int, str, str]:
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", PARENT, program],
        env={**os.environ, "EOS_CRASH_AT": at, "EOS_CRASH_LOG": str(log)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, log.read_text() if log.exists() else ""


def test_without_the_variable_no_point_does_anything(monkeypatch, tmp_path):
    monkeypatch.delenv("EOS_CRASH_AT", raising=False)
    monkeypatch.setenv("EOS_CRASH_LOG", str(tmp_path / "log"))
    for plan in (CrashPlan(), CrashPlan.from_environment()):
        assert plan == CrashPlan()
        for point in POINTS:
            for moment in MOMENTS:
                plan.reached(f"{point}:{moment}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_plan_names_its_victims(monkeypatch, point, moment, victim):
    monkeypatch.setenv("EOS_CRASH_AT", f"{point}:{moment}:{victim}")
    monkeypatch.setenv("EOS_CRASH_LOG", "/somewhere")
    plan = CrashPlan.from_environment()
    jvm, driver = os.getppid(), os.getpid()
    victims = {"python": (driver,), "jvm": (jvm,), "both": (jvm, driver)}[victim]
    assert plan == CrashPlan(f"{point}:{moment}", victims, driver, "/somewhere")
    assert pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize(
    "text",
    [
        "begin",
        "begin:before",
        "begin:before:jvm:x",
        "start:before:jvm",
        "begin:during:jvm",
        "begin:before:all",
        ":before:jvm",
        "::",
        " begin:before:jvm",
    ],
)
def test_words_that_name_no_point_are_refused(monkeypatch, text):
    monkeypatch.setenv("EOS_CRASH_AT", text)
    with pytest.raises(UsageError, match="names no crash point") as caught:
        CrashPlan.from_environment()
    assert "first_produce" in caught.value.hint


def test_the_driver_dies_at_its_point_and_says_so_before(tmp_path):
    code, output, log = run(tmp_path, "begin:after:python", DRIVER)
    assert (code, output) == (0, "before\njvm lives -9\n")
    assert log.startswith("begin:after ")


def test_a_driver_whose_jvm_dies_goes_on_until_it_notices(tmp_path):
    code, output, log = run(tmp_path, "begin:before:jvm", DRIVER)
    assert code == -9
    assert output == "before\nafter\n"
    assert log.startswith("begin:before ")


def test_both_die(tmp_path):
    code, output, log = run(tmp_path, "begin:before:both", DRIVER)
    assert (code, output) == (-9, "")
    assert log.count("\n") == 1


def test_another_point_is_no_matter(tmp_path):
    code, output, log = run(tmp_path, "offsets:after:both", DRIVER)
    assert (code, output, log) == (0, "before\nafter\njvm lives 0\n", "")


def test_a_worker_that_reaches_the_point_takes_the_driver_with_it(tmp_path):
    code, output, log = run(tmp_path, "begin:after:python", WORKER)
    assert (code, output) == (0, "jvm lives -9\n")
    assert log.count("\n") == 1
