"""Crash points: inert unless planned, deadly where planned, and they say so before."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.errors import raises
from support.spark.processes import state
from support.waiting import wait_until

from eos.errors import UsageError
from eos.faults import KINDS, MOMENTS, POINTS, VICTIMS, CrashPlan, Points

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
        timeout=300,
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
    assert plan.number == signal.SIGKILL
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
        "stop:before:jvm",
        "stop.:before:jvm",
        ".begin:before:jvm",
        "attempt.begin:before:jvm",
        "start.stop.begin:before:jvm",
    ],
)
def test_words_that_name_no_point_are_refused(monkeypatch, text):
    monkeypatch.setenv("EOS_CRASH_AT", text)
    with raises("crash_point_invalid") as caught:
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


# --- what is no micro-batch ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_point_of_another_transaction_has_its_kind_before_it(monkeypatch, kind):
    monkeypatch.setenv("EOS_CRASH_AT", f"{kind}.offsets:after:python")
    assert CrashPlan.from_environment().point == f"{kind}.offsets:after"


class Heard(list):
    reached = list.append


def test_points_are_told_with_the_kind_of_what_is_under_way():
    heard = Heard()
    points = Points(heard)
    points.reached("offsets:after")
    points.kind = "refresh"
    points.reached("offsets:after")
    points.kind = ""
    points.reached("offsets:before")
    assert heard == ["offsets:after", "refresh.offsets:after", "offsets:before"]


# --- a pause ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "log"), [("STOP", ""), ("TERM", "/log"), ("stop", "/log")])
def test_a_pause_without_a_log_and_other_signals_are_refused(monkeypatch, name, log):
    monkeypatch.setenv("EOS_CRASH_AT", "begin:before:python")
    monkeypatch.setenv("EOS_CRASH_SIGNAL", name)
    monkeypatch.setenv("EOS_CRASH_LOG", log)
    with raises("crash_signal_invalid"):
        CrashPlan.from_environment()


REPEATED = DRIVER.replace('print("before"', 'plan.reached("begin:after")\nprint("before"')
PAUSES = {  # where, in what, how many stand still, and what is said in the end
    "python": ("begin:after:python", DRIVER, 1, "before\nafter\njvm lives 0\n"),
    "jvm": ("begin:after:jvm", DRIVER, 1, "before\nafter\njvm lives 0\n"),
    "both": ("begin:after:both", DRIVER, 2, "before\nafter\njvm lives 0\n"),
    "once": ("begin:after:python", REPEATED, 1, "before\nafter\njvm lives 0\n"),
    "worker": ("begin:after:python", WORKER, 2, "worker lives\ndriver lives 0\njvm lives 0\n"),
}


@pytest.mark.parametrize("case", PAUSES)
def test_who_was_paused_goes_on_when_it_is_continued_as_if_nothing_had_been(tmp_path, case):
    """All of the victims stand still, and so does a worker that reached the point."""
    at, program, count, output = PAUSES[case]
    log = tmp_path / "log"
    given = {"EOS_CRASH_AT": at, "EOS_CRASH_LOG": str(log), "EOS_CRASH_SIGNAL": "STOP"}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, program],
        env={**os.environ, **given},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as jvm:
        wait_until(lambda: len(stopped(jvm.pid)) >= count, "nobody stands still")
        assert (jvm.pid in stopped(jvm.pid)) == at.endswith((":jvm", ":both"))
        os.killpg(jvm.pid, signal.SIGCONT)
        assert jvm.communicate()[0] == output
    assert log.read_text().count("\n") == 1


def stopped(session: int) -> set[int]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            number = int(process.name)
            if os.getsid(number) == session and state(number) == "T":
                found.add(number)
    return found


# --- in tasks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["encode:after:worker", "1/encode:worker", "1/begin:after:worker", "1/encode:after:jvm"]
)
def test_words_that_name_no_fault_of_a_task_are_refused(monkeypatch, text):
    monkeypatch.setenv("EOS_TASK_FAULTS", f"1/encode:after:worker {text}")
    monkeypatch.setenv("EOS_TASK_FAULTS_FOLDER", "/somewhere")
    with pytest.raises(UsageError, match=text):
        CrashPlan.from_environment()


def test_faults_of_a_micro_batch_strike_one_after_the_other(monkeypatch, tmp_path):
    faults = ["1/encode:after:worker", "2/encode:before:shuffle", "1/first_produce:after:executor"]
    monkeypatch.setenv("EOS_TASK_FAULTS", " ".join(faults))
    monkeypatch.setenv("EOS_TASK_FAULTS_FOLDER", str(tmp_path))
    plan = CrashPlan.from_environment()
    first, _, second = plan.tasks
    assert (plan.of_tasks(0), plan.of_tasks(1), plan.of_tasks(3)) == (plan, first, plan)
    (tmp_path / "1.encode.after.worker").touch()
    assert plan.of_tasks(1) == second
    (tmp_path / "1.first_produce.after.executor").touch()
    assert plan.of_tasks(1) == plan
