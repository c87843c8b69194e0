"""Small micro-batches: one task, connections kept, and rows by the short way."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.kafka.kafka_io import fill_topic
from support.spark.processes import Connection, connections
from support.spark.project import PIPELINE, TRANSFORM, Project, WarmRun
from support.waiting import wait_until

from eos.micro_batch.jobs import ONE_TASK_RECORDS_MAX

pytestmark = pytest.mark.long

LARGE, SMALL = ONE_TASK_RECORDS_MAX + 100, 40  # partitions get rounded shares of a limit
FOREVER = PIPELINE.replace("available_now: true", "every: 10 ms")
RECORDS, WARM, MORE = 4, 10, 20  # of a micro-batch; micro-batches before a look, and after it
IN_ARROW = "\n\ndef in_arrow(rows):\n    return rows\n"
IN_ARROW_STEP = """\
transform: [{{arrow: "pipelines.{module}.transform:in_arrow", returns: "*"}}]
"""
_COMMITTED = re.compile(r"micro-batch (\d+) committed")


@dataclass
class Executed:
    """A plan as Spark's event log has it, and how many tasks each of its stages had."""

    plan: str
    tasks: dict[int, int] = field(default_factory=dict)


def executed_by_attempts(events: Path) -> list[Executed]:
    """In their order."""
    log = [path for path in events.rglob("events_*") if path.is_file()]
    found: dict[str, Executed] = {}
    for line in (line for path in sorted(log) for line in path.read_text().splitlines()):
        event = json.loads(line)
        if event["Event"].endswith("SparkListenerSQLExecutionStart"):
            found[str(event["executionId"])] = Executed(event["physicalPlanDescription"])
        elif event["Event"] == "SparkListenerJobStart":
            told = event["Properties"]
            if "eos-attempt-" in told.get("spark.job.tags", ""):
                of = found[told["spark.sql.execution.id"]]
                stages = event["Stage Infos"]
                of.tasks |= {each["Stage ID"]: each["Number of Tasks"] for each in stages}
    return [each for each in found.values() if each.tasks]


@dataclass(frozen=True)
class Ran:
    """A run of a large and of small micro-batches, in a process of its own."""

    said: str
    events: Path
    sockets: Path  # the folder of those that workers are reached by
    had_sockets: bool


@contextmanager
def ran_to_its_end(broker: Kafka, folder: Path, text: str = PIPELINE) -> Iterator[Ran]:
    project = Project.made(folder, broker)
    project.declare(LARGE, partitions=2, text=text)
    (folder / "pipelines" / project.name / "transform.py").write_text(TRANSFORM + IN_ARROW)
    events = project.folder / "state" / "events"
    events.mkdir(parents=True)
    rows = [b"k%d" % n for n in range(100)], [b"%d" % n for n in range(100)]
    fill_topic(broker.bootstrap, project.source, rows, LARGE + SMALL)
    with tempfile.TemporaryDirectory(prefix="eos-") as sockets:  # pytest's is too long for one
        with project.profile.open("a") as profile:
            profile.write(f"    spark.eventLog.enabled: true\n    spark.eventLog.dir: '{events}'\n")
            profile.write("    spark.eventLog.compress: false\n")
            profile.write(f"    spark.python.unix.domain.socket.dir: '{sockets}'\n")
        made_at = Path(sockets).stat().st_mtime_ns
        done = project.run()
        assert done.returncode == 0, done.stderr
        had_sockets = Path(sockets).stat().st_mtime_ns > made_at
        assert len(kafka_io.read(broker.bootstrap, project.target)) == LARGE + SMALL
        yield Ran(done.stderr, events, Path(sockets), had_sockets)


@pytest.fixture(scope="module")
def ran(broker: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    with ran_to_its_end(broker, tmp_path_factory.mktemp("small")) as found:
        yield found


@pytest.mark.parametrize(("step", "jobs_of_small_ones"), [("", 0), (IN_ARROW_STEP, 1)])
def test_the_driver_writes_few_records_itself_but_calls_no_function_of_the_user(
    broker: Kafka, tmp_path: Path, step: str, jobs_of_small_ones: int
) -> None:
    before, _, rest = PIPELINE.partition("transform:\n")
    text = f"{before}{step}{rest[rest.index('sink:') :]}"
    with ran_to_its_end(broker, tmp_path, text) as found:
        large, *small = executed_by_attempts(found.events)
        counts = re.findall(r"micro-batch \d+ committed: ([\d,]+) records in", found.said)
        assert list(large.tasks.values()) == [2]
        assert len(counts) > 1
        assert len(small) == jobs_of_small_ones * (len(counts) - 1)


def test_a_small_micro_batch_is_one_task_and_a_large_one_has_two_jobs(ran: Ran) -> None:
    """On one machine neither has a shuffle."""
    counts = re.findall(r"micro-batch \d+ committed: ([\d,]+) records in", ran.said)
    encodes, writes, *small = executed_by_attempts(ran.events)
    assert len(counts) == 1 + len(small) > 1
    for each in (encodes, writes):
        assert list(each.tasks.values()) == [2]
        assert "Exchange" not in each.plan
    for each in small:
        assert list(each.tasks.values()) == [1]
        assert "Exchange" not in each.plan
        assert "MapInArrow" in each.plan, "not the plan that was meant"


def test_workers_are_reached_by_sockets_that_go_with_a_run(ran: Ran) -> None:
    """Over TCP the last piece of a task's rows waits for a late acknowledgement."""
    assert ran.had_sockets
    wait_until(lambda: not list(ran.sockets.iterdir()))  # who forks workers ends behind the JVM


@pytest.mark.nightly
def test_connections_are_kept_from_one_micro_batch_to_the_next(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    project.declare(RECORDS, text=FOREVER)
    kafka_io.create_topics(bootstrap, RECORDS, project.source)
    run = project.start_warm()
    first = _connections_after(WARM, run, project)
    last = _connections_after(WARM + MORE, run, project)
    assert last - first == set(), "made anew, or left open"
    by_who = Counter(each.who for each in last)
    assert set(by_who) == {"driver", "jvm", "worker"}, by_who
    run.send_signal(signal.SIGTERM)
    assert run.wait() == 0, run.said()


def _connections_after(micro_batches: int, run: WarmRun, project: Project) -> set[Connection]:
    """While nothing is under way."""
    bootstrap = project.broker.bootstrap
    while _committed(run) < micro_batches:
        kafka_io.fill(bootstrap, project.source, range(WARM * RECORDS))
        wait_until(lambda: _is_whole(project), run.said, run)
    return connections(os.getsid(run.pid), bootstrap)


def _committed(run: WarmRun) -> int:
    return len(_COMMITTED.findall(run.said()))


def _is_whole(project: Project) -> bool:
    ends = (project.target, project.source)
    out, came = (len(kafka_io.read(project.broker.bootstrap, topic)) for topic in ends)
    return out == came
