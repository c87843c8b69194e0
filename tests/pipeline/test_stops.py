"""The ways a run ends before its source does: exit code, words, and what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from support.kafka import brokers, kafka_io
from support.spark.project import PIPELINE, Project, WarmRun
from support.waiting import wait_until

FOREVER = PIPELINE.replace("available_now: true", "every: 100 ms")
WAIT_S_MAX = 600

FAILS_ONCE = '''
from pathlib import Path
import pandas as pd
from pyspark.sql.functions import pandas_udf

def passed_on(frame):
    """Its first evaluation fails in a task, after other tasks may have written."""
    flag = Path({flag!r})

    @pandas_udf("binary")
    def fragile(values: pd.Series) -> pd.Series:
        if not flag.exists():
            flag.touch()
            raise ValueError("the first evaluation fails")
        return values

    return frame.withColumn("value", fragile("value"))
'''

WAITS = '''
import time
from pathlib import Path
import pandas as pd
from pyspark.sql.functions import pandas_udf

def passed_on(frame):
    """Its tasks run until they may go on."""
    begun, go_on = Path({begun!r}), Path({go_on!r})

    @pandas_udf("binary")
    def slow(values: pd.Series) -> pd.Series:
        begun.touch()
        until = time.monotonic() + 600
        while not go_on.exists() and time.monotonic() < until:
            time.sleep(0.05)
        return values

    return frame.withColumn("value", slow("value"))
'''


def filled(project: Project, records: int, count: int, text: str = PIPELINE) -> None:
    project.declare(records, text=text)
    kafka_io.create_topics(project.broker.bootstrap, 4, project.source)
    kafka_io.fill(project.broker.bootstrap, project.source, range(count))


def same(project: Project) -> bool:
    bootstrap = project.broker.bootstrap
    out = Counter(row.value for row in kafka_io.read(bootstrap, project.target))
    return out == Counter(row.value for row in kafka_io.read(bootstrap, project.source))


def until_committed(project: Project, process: subprocess.Popen[str], records: int) -> None:
    place = project.broker.bootstrap, project.ledger
    wait_until(
        lambda: kafka_io.committed_attempts(*place) >= records, "nothing was committed", process
    )


def started(project: Project, log: Path) -> subprocess.Popen[str]:
    with log.open("w") as stderr:
        return subprocess.Popen(
            project.command(),
            env=project.environment(),
            cwd=project.folder,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
        )


def has_no_trace(text: str) -> bool:
    return not any(word in text for word in ("Traceback", "\tat ", "Py4JJavaError"))


@pytest.mark.long
def test_a_transform_that_fails_once_is_redone_under_a_new_epoch(project: Project) -> None:
    filled(project, 60_000, 70_000)  # with a shuffle, then without
    transform = project.folder / "pipelines" / project.name / "transform.py"
    flag = project.folder / "failed.once"
    transform.write_text(FAILS_ONCE.format(flag=str(flag)))
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert flag.exists()
    assert "attempt 1 failed" in done.stderr
    assert "ValueError: the first evaluation fails" in done.stderr
    assert has_no_trace(done.stderr), done.stderr
    assert same(project)
    brokers.check_topic(project.broker, project.target)


def test_a_record_too_large_stops_with_its_coordinates_and_loses_nothing(
    project: Project,
) -> None:
    filled(project, 1000, 100)
    bootstrap = project.broker.bootstrap
    producer = kafka_io.producer(bootstrap, {"message.max.bytes": 900_000})
    producer.produce(project.source, key=b"large", value=os.urandom(50_000), partition=2)
    assert producer.flush(300) == 0
    kafka_io.create_topics(bootstrap, 4, project.target)
    limit(project, 10_000)
    stopped = project.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    where = kafka_io.ends(bootstrap, project.source)[2] - 1
    for words in (f"{project.source}-2 at offset {where}", project.target, "10000"):
        assert words in stopped.stderr, f"{words!r} is missing:\n{stopped.stderr}"
    assert has_no_trace(stopped.stderr), stopped.stderr
    assert kafka_io.read(bootstrap, project.target) == []
    limit(project, 1_000_000)
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert same(project)


def limit(project: Project, message_bytes_max: int) -> None:
    kafka_io.set_topic(
        project.broker.bootstrap, project.target, max_message_bytes=str(message_bytes_max)
    )


@pytest.mark.long
def test_a_missing_source_topic_is_a_sentence(project: Project) -> None:
    project.declare(1000)
    stopped = project.run_warm()
    assert stopped.returncode == 2, stopped.stderr
    assert f"the source topic '{project.source}' does not exist" in stopped.stderr
    assert has_no_trace(stopped.stderr), stopped.stderr


def test_a_mistake_in_sql_is_a_sentence(project: Project) -> None:
    step = '{{python: "pipelines.{module}.transform:passed_on"}}'
    project.declare(1000, text=PIPELINE.replace(step, "sql: SELECT nme FROM input"))
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    stopped = project.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert "[UNRESOLVED_COLUMN" in stopped.stderr
    assert has_no_trace(stopped.stderr), stopped.stderr
    assert "QueryContextLogger" not in stopped.stderr


def test_who_can_not_run_takes_the_pipeline_from_nobody(project: Project) -> None:
    filled(project, 1000, 100)
    place = project.folder / "pipelines" / project.name / "transform.py"
    place.write_text("def passed_on(frame):\n    return frame.groupBy('key').count()\n")
    stopped = project.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert "a group, an aggregate" in stopped.stderr
    # No start's record, not even the ledger's topic: nothing was fenced.
    assert project.ledger not in kafka_io.topics(project.broker.bootstrap)


@pytest.mark.long
def test_a_setting_that_breaks_the_promise_is_refused(project: Project) -> None:
    project.declare(1000)
    profile = project.profile
    profile.write_text(profile.read_text() + "    spark.speculation: true\n")
    stopped = project.run()
    assert stopped.returncode == 2, stopped.stderr
    assert "spark.speculation is true; exactly-once needs false" in stopped.stderr
    assert has_no_trace(stopped.stderr), stopped.stderr


def test_sigterm_ends_the_run_cleanly_and_the_next_goes_on(project: Project) -> None:
    filled(project, 500, 5_000, FOREVER)
    log = project.folder / "first.log"
    first = started(project, log)
    until_committed(project, first, 2)
    first.send_signal(signal.SIGTERM)
    assert first.wait(WAIT_S_MAX) == 0, log.read_text()
    assert has_no_trace(log.read_text()), log.read_text()
    left = brokers.check_topic(project.broker, project.target)  # nothing stays open
    assert left["COMMIT"] > 0
    project.declare(5_000)
    last = project.run_warm()
    assert last.returncode == 0, last.stderr
    assert same(project)


@pytest.mark.long
@pytest.mark.parametrize("finishes", [True, False])
def test_an_attempt_whose_tasks_run_may_commit_within_its_time(
    project: Project, *, finishes: bool
) -> None:
    filled(project, 500, 1_000, FOREVER)
    begun, go_on = project.folder / "begun", project.folder / "go.on"
    transform = project.folder / "pipelines" / project.name / "transform.py"
    transform.write_text(WAITS.format(begun=str(begun), go_on=str(go_on)))
    run = project.start_warm(EOS_FINISH_S="600" if finishes else "0.1")
    wait_until(begun.exists, run.said, run)
    if finishes:
        command = [sys.executable, "-m", "eos", "stop", *project.words(), "--wait", "600"]
        with subprocess.Popen(command, env=project.environment()) as stop:
            stopping = "stopping: the open micro-batch has 600 s"
            wait_until(lambda: stopping in run.said(), run.said, run)
            assert stop.poll() is None
            go_on.touch()
            assert stop.wait(WAIT_S_MAX) == 0, run.said()
        assert "asked to stop by " in run.said()
    else:
        run.send_signal(signal.SIGTERM)
    assert run.wait(WAIT_S_MAX) == 0, run.said()
    assert ("micro-batch 0 committed" in run.said()) is finishes, run.said()
    bootstrap = project.broker.bootstrap
    kafka_io.wait_closed(bootstrap, project.target)
    # The first of several micro-batches, and no other was begun; or none.
    assert kafka_io.committed_attempts(bootstrap, project.ledger) == finishes
    assert (0 < len(kafka_io.read(bootstrap, project.target)) < 1_000) is finishes
    go_on.touch()
    project.declare(500)
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert same(project)


def noticed(log: Path) -> list[str]:
    """Warnings, but for the one that a busy machine causes."""
    lines = log.read_text().splitlines()
    return [line for line in lines if "warning" in line and "can't be compared" not in line]


MISTAKEN = {
    "state": (5, "already runs on this machine as process"),
    "elsewhere": (4, "belongs to deployment"),
}


def met_the_first_on_the_checkpoint(second: WarmRun, place: str) -> bool:
    """Spark stops one of two on the same folder, maybe the one that goes on: it asks for another
    start. The other's file was there when it looked, or came between its look and its rename."""
    words = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming queries are concurrently using")
    is_met = any(each in second.said() for each in words)
    return place == "state" and is_met and second.wait(WAIT_S_MAX) == 5


@pytest.mark.long  # tests/kafka/test_mistaken.py has the first part; test_zombies.py has the force
@pytest.mark.parametrize("place", ["elsewhere", pytest.param("state", marks=pytest.mark.nightly)])
def test_a_second_copy_leaves_the_first_alone_or_fences_it_by_force(
    project: Project, place: str
) -> None:
    filled(project, 500, 1_000, FOREVER)
    first_log = project.folder / "first.log"
    first = started(project, first_log)
    until_committed(project, first, 1)
    # With checkpoints of its own, as another machine would have, or with the very same.
    text = project.profile.read_text()
    for mistaken_at, (code, words) in MISTAKEN.items():
        project.profile.write_text(text.replace("/state", f"/{mistaken_at}"))
        mistaken = project.run_warm()
        assert mistaken.returncode == code, mistaken.stderr
        assert words in mistaken.stderr
        assert "--take-over" in mistaken.stderr
    project.profile.write_text(text.replace("/state", f"/{place}"))
    kafka_io.fill(project.broker.bootstrap, project.source, range(1_000))
    until_committed(project, first, 3)
    assert not noticed(first_log), "the first copy noticed"
    second = project.start_warm("--take-over")
    try:
        kafka_io.fill(project.broker.bootstrap, project.source, range(1_000, 3_000))
        deadline = time.monotonic() + WAIT_S_MAX
        number = 3_000
        while first.poll() is None:  # it learns of its end when it has something to commit
            assert time.monotonic() < deadline, "the first copy was not fenced"
            kafka_io.fill(project.broker.bootstrap, project.source, range(number, number + 10))
            number += 10
            time.sleep(0.5)
        assert first.returncode == 3, first_log.read_text()
        assert has_no_trace(first_log.read_text()), first_log.read_text()
        deadline = time.monotonic() + WAIT_S_MAX
        while not same(project):
            if second.poll() is not None:
                assert met_the_first_on_the_checkpoint(second, place), second.said()
                second = project.start_warm()
            assert time.monotonic() < deadline, "the second copy does not go on"
            time.sleep(0.5)
    finally:
        second.send_signal(signal.SIGTERM)
        code = second.wait(WAIT_S_MAX)
        assert code == 0 or met_the_first_on_the_checkpoint(second, place), second.said()
    brokers.check_topic(project.broker, project.target)
