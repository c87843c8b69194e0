"""Several pipelines in one application, watched from outside: each has its own traces, metrics and
lineage, and a failure of one is no failure of another."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest
from support.collectors import lineage, otlp
from support.collectors.otlp import values
from support.delta import lake
from support.kafka import kafka_io
from support.spark.project import RUN_S_MAX, Project

pytestmark = [pytest.mark.spark, pytest.mark.long]

RECORDS = 1_000
FAILING = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}, value: {{json: "k INT NOT NULL"}}}}
sink: {{kafka: {{topic: {target}, value: json, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""
PASSED_ON = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""


@pytest.mark.nightly
def test_traces_metrics_and_lineage_of_each_pipeline_are_its_own(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    made = {
        name: replace(project, name=f"{project.name}_{name}") for name in ("bad", "topic", "lake")
    }
    texts = {"bad": FAILING, "topic": PASSED_ON, "lake": lake.COPIED}
    for name, each in made.items():
        kafka_io.create_topics(bootstrap, 1, each.source)
        kafka_io.fill(bootstrap, each.source, range(RECORDS))
        each.declare(RECORDS // 2, 1, text=texts[name].replace("FOLDER", str(project.folder)))
    words = [each.words()[0] for each in made.values()]
    command = [sys.executable, "-m", "eos.cli.run", *words, *project.words()[1:]]
    with closing(otlp.Collector()) as collector, closing(lineage.Collector()) as lineages:
        profile = project.profile
        profile.write_text(
            f"{profile.read_text()}"
            f'opentelemetry: {{endpoint: "{collector.endpoint}"}}\n'
            f'openlineage: {{url: "{lineages.url}", interval_s: 3600}}\n'
        )
        done = subprocess.run(
            command,
            env=project.environment(),
            cwd=project.folder,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
    assert done.returncode == 4, done.stderr
    assert f"{made['bad'].name} 4, {made['topic'].name} 0, {made['lake'].name} 0" in done.stderr
    topic = [row.value for row in kafka_io.read(bootstrap, made["topic"].target)]
    assert topic == [b"%d" % number for number in range(RECORDS)]
    table = sorted(int(row["text"]) for row in lake.rows(lake.table(project, "all")))
    assert table == list(range(RECORDS))
    require_own_traces(collector, made)
    require_own_metrics(collector, made)
    require_own_lineage(lineages, made)


def require_own_traces(collector: otlp.Collector, made: dict[str, Project]) -> None:
    spans = [each for each in collector.spans if not each.parent_span_id]
    of = {each.span_id: values(each.attributes)["eos.pipeline"] for each in spans}
    found = sorted((of[each.span_id], each.name) for each in spans)
    roots = [(made[name].name, f"micro-batch {n}") for name in ("lake", "topic") for n in (0, 1)]
    assert [each for each in found if each[0] != made["bad"].name] == roots
    (failed,) = (
        each for each in spans if values(each.attributes)["eos.pipeline"] == made["bad"].name
    )
    assert failed.name == "micro-batch 0"
    tables = [each for each in collector.spans if each.name == "table all"]
    lakes = {e.span_id for e in spans if values(e.attributes)["eos.pipeline"] == made["lake"].name}
    assert {each.parent_span_id for each in tables} == lakes


def require_own_metrics(collector: otlp.Collector, made: dict[str, Project]) -> None:
    def of(metric: str) -> dict[str, float]:
        return {
            values(point.attributes)["pipeline"]: point.as_double
            for point in collector.points[metric]
            if values(point.attributes).get("outcome", "committed") == "committed"
        }

    bad, topic, table = (made[name].name for name in ("bad", "topic", "lake"))
    assert of("eos_run_exit_code") == {bad: 4, topic: 0, table: 0}
    committed = of("eos_attempts")
    assert (committed[topic], committed[table]) == (2, 2)
    assert committed.get(bad, 0) == 0


def require_own_lineage(lineages: lineage.Collector, made: dict[str, Project]) -> None:
    states: dict[str, list[str]] = {}
    runs: dict[str, set[str]] = {}
    outputs = {}
    for event in lineages.events:
        lineage.require_valid(event)
        job = event["job"]["name"]
        states.setdefault(job, []).append(event["eventType"])
        runs.setdefault(job, set()).add(event["run"]["runId"])
        outputs[job] = {name for _, name in lineage.names_of(event["outputs"])}
    bad, topic, table = (made[name].name for name in ("bad", "topic", "lake"))
    assert states == {
        bad: ["START", "FAIL"],
        topic: ["START", "COMPLETE"],
        table: ["START", "COMPLETE"],
    }
    assert len(set().union(*runs.values())) == 3, "each run has an id of its own"
    assert outputs[topic] == {made["topic"].target}
    assert outputs[table] == {str(lake.table(made["lake"], "all"))}
