"""Pipelines that keep state: counted right whatever dies when, and never begun anew unasked."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from support.kafka import kafka_io
from support.spark import stateful
from support.spark.project import KILLED, Project

from eos.errors import Recovery
from eos.faults import POINTS

RECORDS = 20  # a micro-batch


@pytest.fixture
def made(project: Project) -> Project:
    kafka_io.create_topics(project.broker.bootstrap, stateful.PARTITIONS, project.source)
    return project


def supervised(
    project: Project, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run again, as a supervisor does after exit code 5, while a Python worker starts too late.

    Spark gives the worker of a function with state 10 s for its start and has no option for it.
    That is too short when the machine is busy.
    """
    for _ in range(3):
        done = project.run_warm(*options, **environment)
        if "[python_worker_late]" not in done.stderr:
            break
    return done


def ran(project: Project, *options: str, **environment: str) -> str:
    done = supervised(project, *options, **environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


def counted(project: Project) -> Counter[tuple[str, str, int]]:
    return Counter((row["user"], row["hour"], row["count"]) for row in stateful.found(project))


def attempts(project: Project) -> list[dict[str, object]]:
    rows = kafka_io.read(project.broker.bootstrap, project.ledger)
    bodies = [json.loads(row.value or b"") for row in rows]
    return [body for body in bodies if body["kind"] == "attempt"]


# Behind these: states are written and the transaction is not; that is, and Spark does not know it;
# Spark knows it, too.
AROUND_THE_COMMIT = ("all_acked", "end_txn_answered", "commit_log")


@pytest.mark.timeout(1800)  # four starts of Spark, or nine
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(AROUND_THE_COMMIT, id="around the commit", marks=pytest.mark.long),
        pytest.param(POINTS, id="at each step", marks=pytest.mark.nightly),
    ],
)
def test_each_group_is_told_once_whatever_dies_when(made: Project, points: Sequence[str]) -> None:
    """A kill behind each step. The last micro-batch has no data: only the watermark moved."""
    records = RECORDS * (len(points) + 4)
    stateful.declare(made, "counted", RECORDS)
    stateful.feed(made, range(records))
    for point in points:
        died = supervised(made, EOS_CRASH_AT=f"{point}:after:both")
        assert died.returncode == KILLED, died.stderr
    told = ran(made)
    assert "0 records in" in told
    assert counted(made) == stateful.hours(records)
    batch_ids = [body["batch_id"] for body in attempts(made)]
    assert batch_ids == list(range(len(batch_ids)))
    group = kafka_io.group_offsets(made.broker.bootstrap, made.group, made.source)
    assert group == kafka_io.ends(made.broker.bootstrap, made.source)


@pytest.mark.timeout(1800)  # nine starts of Spark
@pytest.mark.parametrize(
    ("function", "moment", "points"),
    [
        pytest.param(
            "processed",
            "before",
            AROUND_THE_COMMIT,
            id="around the commit",
            marks=pytest.mark.nightly,
        ),
        pytest.param("processed", "before", POINTS, id="before", marks=pytest.mark.nightly),
        pytest.param("distinct", "after", POINTS, id="after", marks=pytest.mark.nightly),
    ],
)
def test_no_state_counts_a_record_twice_whatever_dies_when(
    made: Project, function: str, moment: str, points: Sequence[str]
) -> None:
    """A kill at each step. Beside each new record comes one of the micro-batch before, once more:
    a record that was counted twice, or a state that was lost, is a number too high or too low."""
    records = RECORDS * (len(points) + 4)
    mode = "" if function == "distinct" else "output_mode: update\n"
    stateful.declare(made, function, RECORDS, mode)
    for first in range(0, records, RECORDS // 2):
        before = range(max(0, first - RECORDS // 2), first)
        stateful.feed(made, (*range(first, first + RECORDS // 2), *before))
    for point in points:
        died = supervised(made, EOS_CRASH_AT=f"{point}:{moment}:both")
        assert died.returncode == KILLED, died.stderr
    ran(made)
    if function == "distinct":
        numbers = sorted(int(str(row["number"])) for row in stateful.found(made))
        assert numbers == list(range(records))
        return
    fed = Counter(map(stateful.user, (*range(records), *range(records - RECORDS // 2))))
    told = increments(made)
    assert {who: counts[-1] for who, counts in told.items()} == fed
    assert all(len(counts) == len(set(counts)) for counts in told.values())


@pytest.mark.nightly
def test_a_micro_batch_without_data_is_an_attempt_like_any_other(made: Project) -> None:
    stateful.declare(made, "counted", RECORDS)
    stateful.feed(made, range(60))
    ran(made)
    assert counted(made) == stateful.hours(60)
    last = attempts(made)[-1]
    assert last["attempt"]["starts"] == last["ends"]
    assert last["attempt"]["receipts"]
    told = json.loads(said(made, "verify", "--json"))
    assert told["findings"] == []


@pytest.mark.long
def test_a_micro_batch_that_is_redone_counts_once(made: Project) -> None:
    stateful.declare(made, "running", RECORDS, "output_mode: update\n")
    stateful.feed(made, range(60))
    folder = made.folder / "faults"
    folder.mkdir()
    told = ran(
        made,
        EOS_TASK_FAULTS="0/written:after:worker 1/first_produce:after:worker",
        EOS_TASK_FAULTS_FOLDER=str(folder),
    )
    assert "without a watermark" in told
    assert [body["attempt"]["number"] for body in attempts(made)] == [2, 2, 1]
    assert increments(made) == {"u0": [7, 14, 20], "u1": [7, 13, 20], "u2": [6, 13, 20]}


def increments(project: Project) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for row in stateful.found(project):
        found[str(row["user"])].append(int(str(row["count"])))
    return {who: sorted(counts) for who, counts in found.items()}


@pytest.mark.nightly
@pytest.mark.parametrize("function", ["visits", "processed"])
def test_a_function_with_a_state_of_its_own(made: Project, function: str) -> None:
    stateful.declare(made, function, RECORDS, "output_mode: update\n")
    stateful.feed(made, range(20))
    ran(made)
    stateful.feed(made, range(20, 40))
    ran(made)
    assert increments(made) == {"u0": [7, 14], "u1": [7, 13], "u2": [6, 13]}


@pytest.mark.nightly
def test_a_worker_that_starts_too_late_is_named(made: Project) -> None:
    slow = "import sys, time\nif 'driver_worker' in ''.join(sys.orig_argv): time.sleep(15)\n"
    (made.folder / "sitecustomize.py").write_text(slow)  # each Python of the run imports it
    stateful.declare(made, "processed", RECORDS, "output_mode: update\n")
    stateful.feed(made, range(20))
    late = made.run()
    assert late.returncode == Recovery.RESTART.value, late.stderr
    assert "[python_worker_late]" in late.stderr
    (made.folder / "sitecustomize.py").unlink()
    ran(made)
    assert increments(made) == {"u0": [7], "u1": [7], "u2": [6]}


@pytest.mark.long
def test_duplicates_within_the_watermark_are_left_out(made: Project) -> None:
    stateful.declare(made, "distinct", RECORDS)
    stateful.feed(made, range(30))
    ran(made)
    stateful.feed(made, range(20, 50))
    ran(made)
    numbers = sorted(int(str(row["number"])) for row in stateful.found(made))
    assert numbers == list(range(50))


@pytest.mark.long
def test_lost_state_stops_a_start_until_its_loss_is_accepted(made: Project) -> None:
    stateful.declare(made, "running", RECORDS, "output_mode: update\n")
    stateful.feed(made, range(20))
    ran(made)
    shutil.rmtree(made.folder / "state" / "checkpoints")
    stateful.feed(made, range(20, 40))
    foretold = said(made, "recover")
    stopped = made.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    for told in (foretold, stopped.stderr):
        assert "state_lost" in told
        assert "up to micro-batch 0 of query" in told
    assert "--accept-state-loss" in stopped.stderr
    # Killed before anything was counted: what was accepted stays accepted.
    died = made.run_warm("--accept-state-loss", EOS_CRASH_AT="all_acked:after:both")
    assert died.returncode == KILLED, died.stderr
    assert "dropped, as --accept-state-loss allows" in died.stderr
    ran(made)
    assert increments(made) == {"u0": [7, 7], "u1": [6, 7], "u2": [6, 7]}
    rows = kafka_io.read(made.broker.bootstrap, made.ledger)
    notes = [json.loads(row.value or b"").get("note") for row in rows]
    (note,) = [note for note in notes if note]
    assert note["accepted"] == "state loss"
    assert note["batch_id"] == 0


@pytest.mark.long
def test_a_damaged_checkpoint_is_one_stop_and_its_loss_is_accepted_at_once(made: Project) -> None:
    stateful.declare(made, "running", RECORDS, "output_mode: update\n")
    stateful.feed(made, range(20))
    ran(made)
    (checkpoint,) = (made.folder / "state" / "checkpoints").glob("*/0001")
    (checkpoint / "offsets" / "0").write_text("v1\n")
    stateful.feed(made, range(20, 40))
    foretold = said(made, "recover")
    stopped = made.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    for told in (foretold, stopped.stderr):
        assert "is in that checkpoint" in told
        assert "every total restarts" in told
    assert "state_lost" in foretold
    assert "checkpoint_unreadable" not in foretold
    ran(made, "--accept-state-loss")
    assert increments(made) == {"u0": [7, 7], "u1": [6, 7], "u2": [6, 7]}


def said(project: Project, *words: str) -> str:
    """By a verb of the command line."""
    verb, *options = words
    command = [sys.executable, "-m", "eos", verb, *project.words(), *options]
    done = subprocess.run(
        command,
        env=project.environment(),
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_another_plan_does_not_take_the_state_of_the_one_before(made: Project) -> None:
    stateful.declare(made, "running", RECORDS, "output_mode: update\n")
    stateful.feed(made, range(20))
    ran(made)
    stateful.feed(made, range(20, 40))
    stateful.declare(made, "summed", RECORDS, "output_mode: update\n")
    stopped = made.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert "[state_changed]" in stopped.stderr
    assert f"`eos recover {made.name} --set-checkpoint-aside " in stopped.stderr
    # Left in the command of a supervisor the option must not drop what is still of use.
    assert made.run_warm("--accept-state-loss").returncode == 4


@pytest.mark.long
def test_a_pipeline_that_kept_no_state_has_none_to_go_on_with(made: Project) -> None:
    stateful.declare(made, "passed", RECORDS)
    stateful.feed(made, range(20))
    ran(made)
    stateful.feed(made, range(20, 40))
    stateful.declare(made, "running", RECORDS, "output_mode: update\n")
    stopped = made.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert "[state_lost]" in stopped.stderr
    assert "is not in" in stopped.stderr
    ran(made, "--accept-state-loss")
    stateful.declare(made, "passed", RECORDS)
    stateful.feed(made, range(40, 60))
    stopped = made.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert "[state_lost]" in stopped.stderr
    assert "has the state of other transforms up to micro-batch 0 of query" in stopped.stderr
    ran(made, "--accept-state-loss")


@pytest.mark.long
def test_a_record_that_can_not_be_taken_stops_before_anything_is_committed(made: Project) -> None:
    """Spark's counts of a stateful plan come after the commit, so the plan itself fails."""
    stateful.declare(made, "running", RECORDS, "output_mode: update\n")
    place = made.folder / "pipelines" / made.name / "pipeline.yaml"
    text = place.read_text().replace("}}\ntransform", "}, value: string}\ntransform", 1)
    place.write_text(text + "expect: [{name: small, rule: value < '5'}]\n")
    stateful.feed(made, range(4))
    ran(made)
    stateful.feed(made, range(4, 7))
    stopped = made.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert f"the record {made.source}-" in stopped.stderr
    assert "[record_rule_failed]" in stopped.stderr
    assert "`small`" in stopped.stderr
    assert len(attempts(made)) == 1
    place.write_text(text + "expect: [{name: small, rule: value < '5', on_error: drop}]\n")
    stopped = made.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert "could not be counted before the commit" in stopped.stderr


def test_update_is_for_what_keeps_state(made: Project) -> None:
    stateful.declare(made, "passed", RECORDS, "output_mode: update\n")
    refused = made.run_warm()
    assert refused.returncode == 4, refused.stderr
    assert "`output_mode: update` is for pipelines that keep state" in refused.stderr
