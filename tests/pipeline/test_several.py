"""Several pipelines in one Spark application: what happens to one leaves the others alone."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.docs import blocks, require_shown
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.spark.project import RUN_S_MAX, Project
from support.waiting import WAIT_S_MAX, wait_until

from eos.local.file_locks import FileLock
from eos.micro_batch.jobs import ONE_TASK_RECORDS_MAX

pytestmark = [pytest.mark.spark, pytest.mark.long]

RECORDS = 1_000
PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}, value: {form}}}
transform:
  # Each query reads a view `input`, which is another one in each pipeline.
  - sql: SELECT key, concat({column}, '{suffix}') AS value FROM input
  - {{python: "pipelines.{module}.transform:passed_on"}}
sink: {{kafka: {{topic: {target}, value: value, create: {{partitions: 1}}}}}}
trigger: {{every: 100 ms}}
"""
TRANSFORM = """
from pathlib import Path
import pandas as pd
from pyspark.sql.functions import pandas_udf

def passed_on(frame):
    context = frame.sparkSession.sparkContext
    assert context.getConf().get("spark.scheduler.mode") == "FAIR"
    fails = Path("{fails}")

    @pandas_udf("string")
    def fragile(values: pd.Series) -> pd.Series:
        if fails.exists():
            raise ValueError("an example")
        return values

    return frame.withColumn("value", fragile("value"))
"""


def declared(project: Project, name: str, form: str = "string", column: str = "value") -> Project:
    """Declare one of the project's pipelines, whose source has no records yet."""
    found = replace(project, name=f"{project.name}_{name}")
    kafka_io.create_topics(project.broker.bootstrap, 1, found.source)
    text = PIPELINE.replace("{form}", form).replace("{column}", column)
    found.declare(RECORDS // 4, text=text.replace("{suffix}", f"-{name}"))
    step = TRANSFORM.replace("{fails}", str(fails(found)))
    (found.folder / "pipelines" / found.name / "transform.py").write_text(step)
    return found


def fails(pipeline: Project) -> Path:
    """The file while which exists all tasks of the pipeline fail."""
    return pipeline.folder / f"{pipeline.name}.fails"


@contextmanager
def started(log: Path, *pipelines: Project) -> Iterator[subprocess.Popen[bytes]]:
    first = pipelines[0]
    files = [each.words()[0] for each in pipelines]
    command = [sys.executable, "-m", "eos.cli.run", *files, *first.words()[1:]]
    environment, folder = first.environment(), first.folder
    with (
        log.open("wb") as stderr,
        subprocess.Popen(command, env=environment, cwd=folder, stderr=stderr) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(RUN_S_MAX)


def scraped(log: str) -> dict[tuple[str, str], float]:
    """The samples of the endpoint by name and pipeline, added up over other labels."""
    (url,) = re.findall(r"metrics are served at (\S+)", log)
    with urllib.request.urlopen(url, timeout=WAIT_S_MAX) as response:
        text = response.read().decode()
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            key = each.name, each.labels["pipeline"]
            found[key] = found.get(key, 0) + each.value
    return found


def written(project: Project) -> list[bytes | None]:
    return [row.value for row in kafka_io.read(project.broker.bootstrap, project.target)]


@pytest.mark.nightly
def test_one_ends_one_is_restarted_and_one_runs_on(
    project: Project, broker: Kafka, tmp_path: Path
) -> None:
    good, late = declared(project, "good"), declared(project, "late")
    bad = declared(project, "bad", form="{{json: 'text STRING NOT NULL'}}", column="text")
    profile = project.profile
    profile.write_text(profile.read_text() + "metrics: {prometheus: {port: 0}}\n")
    log = tmp_path / "run.log"
    lock = FileLock(project.folder / "state" / "locks" / late.group)
    with closing(lock), started(log, bad, good, late) as process:
        assert lock.try_exclusive()

        def count(name: str, of: Project) -> float:
            return scraped(log.read_text()).get((name, of.name), 0)

        def await_records(of: Project) -> None:
            """Write records into the pipeline's source, and wait until it has committed them."""
            kafka_io.fill(broker.bootstrap, of.source, range(RECORDS))
            out = "eos_target_records_total"
            wait_until(lambda: count(out, of) == RECORDS, log.read_text, process)

        again = f"eos: {late.name}: warning: starts again in 2 s, after 2 failures"
        wait_until(lambda: again in log.read_text(), log.read_text, process)
        lock.close()
        kafka_io.fill(broker.bootstrap, bad.source, range(1))
        wait_until(lambda: count("eos_run_exit_code", bad) == 4, log.read_text, process)
        await_records(good)
        await_records(late)
        stop = [sys.executable, "-m", "eos", "stop", *good.words()]
        done = subprocess.run(stop, env=good.environment(), cwd=good.folder, check=False)
        assert done.returncode == 0, log.read_text()

        fails(late).touch()
        kafka_io.fill(broker.bootstrap, late.source, range(RECORDS))
        wait_until(lambda: count("eos_run_exit_code", late) == 5, log.read_text, process)
        fails(late).unlink()
        wait_until(lambda: len(written(late)) == 2 * RECORDS, log.read_text, process)
        found = scraped(log.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_S_MAX) == 4, log.read_text()
    ended = {each.name: found.get(("eos_run_exit_code", each.name)) for each in (bad, good, late)}
    assert ended == {bad.name: 4, good.name: 0, late.name: None}
    assert written(good) == [b"%d-good" % number for number in range(RECORDS)]
    assert written(late) == [b"%d-late" % number for number in range(RECORDS)] * 2
    first = f"eos: {late.name}: warning: starts again in 1 s, after 1 failure since its last commit"
    assert log.read_text().count(first) == 2, "the pauses begin again after a commit"
    require_named(log.read_text(), bad, good, late)
    require_on_page(log.read_text(), {bad: "refunds", good: "orders", late: "payments"})


PASSED_ON = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""


@pytest.mark.nightly
def test_large_micro_batches_of_two_pipelines_end_with_their_sources(
    project: Project, tmp_path: Path
) -> None:
    """Their Python tasks run without the JVM, and here in two stages instead of a barrier stage."""
    many = 2 * ONE_TASK_RECORDS_MAX + 20_000
    pipelines = [replace(project, name=f"{project.name}_{name}") for name in ("one", "other")]
    for each in pipelines:
        kafka_io.create_topics(each.broker.bootstrap, 2, each.source)
        kafka_io.fill(each.broker.bootstrap, each.source, range(many))
        each.declare(many // 2, 2, text=PASSED_ON)
    log = tmp_path / "run.log"
    with started(log, *pipelines) as process:
        assert process.wait(RUN_S_MAX) == 0, log.read_text()
    for each in pipelines:
        values = sorted(int(value or b"-1") for value in written(each))
        assert values == list(range(many))
        large = rf"eos: {each.name}: micro-batch \d committed: \d\d,\d{{3}} records in"
        assert len(re.findall(large, log.read_text())) == 2, log.read_text()
        assert f"eos: {each.name}: pipeline {each.name} stopped: drained" in log.read_text()


def require_named(log: str, *pipelines: Project) -> None:
    """Fail unless each line about a pipeline names it, and the last one has all exit codes."""
    lines = [line for line in log.splitlines() if line.startswith("eos: ")]
    names = [re.escape(each.name) for each in pipelines]
    about = re.compile(rf"eos: (\[\w+\] )?({'|'.join(names)})[: ]")
    others = [line for line in lines if not about.match(line)]
    bad, good, late = (each.name for each in pipelines)
    assert [re.sub(r"\d+/metrics|/\S+$", "", line) for line in others] == [
        "eos: metrics are served at http:",
        f"eos: all pipelines have ended: {bad} 4, {good} 0, {late} 0; the worst exit code is 4",
        "eos: the driver ended with exit code 4; Spark's logs are in ",
    ]


def require_on_page(log: str, names: Mapping[Project, str]) -> None:
    """Fail unless the page shows this log, with other names."""
    for each, shown in names.items():
        log = log.replace(each.name, shown)
    require_shown(dict(blocks(""))["several-pipelines.md-2"], log.splitlines())
