"""`eos plan`: every stage that runs is in the tree and in the chart, with what guarantees it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.verbs import plan as plan_verb

from eos.config.load import load_pipeline, load_profile
from eos.plan.plan import Plan, plan
from eos.plan.tree import EXACTLY_ONCE, lines, mermaid, stages
from eos.transform.functions import load

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "pipelines" / "orders_enriched"
SQL_ONLY = """
version: 1
name: one
source: {kafka: {pattern: "orders[.](eu|us)", start: {group: old}}, key: string}
transform: [{sql: 'SELECT *, "x" AS y FROM input -- <b>'}]
sink: {kafka: [{topic: {column: y, topics: [a, b]}, value: json, create: {partitions: 3}}]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "pipelines" / "one"
    place.mkdir(parents=True)
    (place / "pipeline.yaml").write_text(SQL_ONLY)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "local.yaml").write_text("state: {root: state}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(folder: Path) -> Plan:
    pipeline = load_pipeline(folder)
    functions = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    return plan(pipeline, load_profile(None, pipeline.project_root), (), functions)


def test_each_stage_of_the_plan_is_there_once_and_in_order():
    made = planned(EXAMPLE)
    found = stages(made)
    wanted = ["source", "expect", *(f"step {n}" for n in range(1, len(made.transforms) + 1))]
    wanted += [*(f"sink {n}" for n in range(1, len(made.sinks) + 1)), "dead letters"]
    assert [stage.name for stage in found] == [*wanted, "ledger", "group"]
    text = "\n".join(lines("x", found))
    for topic in (*made.source_topics, *made.sink_topics, made.names.ledger, made.names.group):
        assert topic in text
    assert made.decode.rules
    for rule in made.decode.rules:
        assert f"{rule.name}: {rule.condition}; else {rule.on_error}" in text


@pytest.mark.parametrize(
    ("trigger", "spark", "told"),
    [
        ("every: 2 seconds", {"processingTime": "2000 milliseconds"}, "every 2,000 ms"),
        ("available_now: true", {"availableNow": True}, "runs until drained"),
        (
            "once: true",
            {"once": True},
            "all existing records in one micro-batch, then the run ends",
        ),
    ],
)
def test_a_trigger_is_sparks_of_the_same_meaning(project, trigger, spark, told):
    with (project / "pipelines" / "one" / "pipeline.yaml").open("a") as file:
        file.write(f"trigger: {{{trigger}}}\n")
    made = planned(project / "pipelines" / "one")
    assert made.spark_trigger == spark
    facts = stages(made)[0].facts
    assert told in facts[-1]
    assert any("a micro-batch" in fact for fact in facts[:-1]) != made.is_once  # the bound


def test_only_a_run_without_end_waits_for_records(project):
    path = project / "pipelines" / "one" / "pipeline.yaml"
    waits = "{min_records: 50, max_delay: 1 minute, pattern: "
    path.write_text(path.read_text().replace("{pattern: ", waits))
    made = planned(path.parent)
    assert made.waits_for == (50, 60_000)
    assert stages(made)[0].facts[-1] == (
        "every 1,000 ms, a micro-batch if 50 records have arrived, or if the last one began "
        "60,000 ms ago"
    )
    for ending in ("available_now", "once"):
        ended = load_pipeline(path, ends=ending)
        functions = load(ended.transform, ended.project_root, ended.folder)
        profile = load_profile(None, ended.project_root)
        assert plan(ended, profile, (), functions).waits_for is None


def test_a_limit_in_bytes_is_named_with_the_key_that_sets_it(project):
    path = project / "pipelines" / "one" / "pipeline.yaml"
    path.write_text(path.read_text().replace("{pattern: ", "{max_bytes: 64 MiB, pattern: "))
    made = planned(path.parent)
    assert made.bytes_max == 64 << 20
    told = "at most 67,108,864 bytes of record batches a transaction, by samples of the log"
    assert f"{told} (`max_bytes`)" in stages(made)[0].facts
    ended = load_pipeline(path, ends="once")
    functions = load(ended.transform, ended.project_root, ended.folder)
    assert plan(ended, load_profile(None, ended.project_root), (), functions).bytes_max is None


def test_whatever_is_written_names_its_guarantee_and_how_it_comes_about():
    found = stages(planned(EXAMPLE))
    written = [stage for stage in found if stage.does.startswith("kafka: ") and stage.guarantee]
    sinks = [stage for stage in written if stage.guarantee == EXACTLY_ONCE]
    assert [stage.name for stage in sinks] == ["sink 1", "sink 2", "dead letters"]
    for stage in sinks:
        assert stage.in_transaction
        assert "one transaction" in stage.mechanism
        assert any("isolation.level=read_committed" in fact for fact in stage.facts)


def test_a_pattern_a_topic_by_column_and_another_groups_offsets_are_told(project):
    found = {stage.name: stage for stage in stages(planned(project / "pipelines" / "one"))}
    assert found["source"].does == "kafka: all topics that match orders[.](eu|us)"
    assert "begins at the offsets of group old if the ledger is empty" in found["source"].facts
    assert "key as string" in found["source"].facts
    assert found["sink 1"].does == "kafka: by column y: a, b"
    assert found["sink 1"].facts.count("created if absent: 3 partitions") == 2


def test_the_chart_has_every_stage_and_no_label_ends_early(project):
    for folder in (EXAMPLE, project / "pipelines" / "one"):
        found = stages(planned(folder))
        chart = list(mermaid(found))
        nodes = [re.fullmatch(r' +(\w+)\[\(?"[^"<>]*"\)?\]', line) for line in chart]
        assert [node[1] for node in nodes if node] == [
            each.name.replace(" ", "_")
            for each in sorted(found, key=lambda each: each.in_transaction)
        ]
        arrows = [line.split() for line in chart if "->" in line]
        known = {node[1] for node in nodes if node}
        assert {word for start, _, end in arrows for word in (start, end)} == known


def test_the_verb_prints_a_tree_a_chart_or_json_in_plain_ascii(project, capsys):
    assert plan_verb(["one"]) == 0
    tree = capsys.readouterr().out
    assert tree.startswith(f"one ({project}/pipelines/one/pipeline.yaml, profile local)\n|- source")
    assert tree.isascii()
    assert "\x1b" not in tree
    assert plan_verb(["one", "--mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart TD\n")
    assert plan_verb(["one", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["stages"][0]["stage"] == "source"
    assert not (project / "state").exists(), "it makes nothing"


def test_without_a_check_it_loads_neither_spark_nor_delta(project):
    code = (
        "import sys\n"
        "from eos.cli.main import command\n"
        "command(['plan', 'one'])()\n"
        "heavy = {'pyspark', 'py4j', 'delta', 'deltalake', 'pandas'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=project)
    assert done.stdout.endswith("loaded: []\n")
