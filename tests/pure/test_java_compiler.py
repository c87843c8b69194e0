"""For which runs the launcher leaves out Java's optimizing compiler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eos.config.load import load_pipeline
from eos.config.model import PipelineFile
from eos.launch import submit
from eos.launch.java_compiler import (
    NOTES,
    WITHOUT_C2,
    chosen,
    java_options,
    leave_note,
    notes_of,
)

STAMP = "{id: header(p), epoch: header(e), sequence: header(s)}"
IN_PYTHON = {
    "copy": {},
    "several sinks": {"sink": "[{topic: out}, {topic: more, partition: partition}]"},
    "arrow": {"transform": '[{arrow: "mine:step", returns: "*"}]'},
    "pandas": {"transform": '[{pandas: "mine:step", returns: "key BINARY, value BINARY"}]'},
    "dedup": {"dedup": f"{{producer: {STAMP}, scope: producer}}"},
}
IN_THE_JVM = {
    "sql": {"transform": '[{sql: "SELECT * FROM input"}]'},
    "a function of DataFrames": {"transform": '[{python: "mine:step"}]'},
    "two steps": {
        "transform": '[{arrow: "mine:a", returns: "*"}, {arrow: "mine:b", returns: "*"}]'
    },
    "pandas with headers": {"transform": '[{pandas: "mine:step", returns: "*"}]'},
    "json": {"value": '{json: "id BIGINT"}'},
    "text": {"key": "string"},
    "a rule": {"expect": '[{name: a, rule: "value IS NOT NULL"}]'},
    "Spark's reader": {"reader": "spark"},
    "json out": {"sink": "{topic: out, value: json}"},
    "a condition": {"sink": '{topic: out, where: "value IS NOT NULL"}'},
    "headers out": {"sink": '{topic: out, headers: {a: "key"}}'},
    "a Delta table": {"delta": "[{path: /lake/out}]"},
    "dedup by columns": {"dedup": "{by: [key], within: 1 hour, watermark: timestamp}"},
    "dedup of a value": {"dedup": "{producer: {id: key, epoch: header(e), sequence: header(s)}}"},
    "verdicts": {"dedup": f"{{producer: {STAMP}, verdict: found}}"},
    "dead letters": {
        "dedup": f"{{producer: {STAMP}, on_gap: dead_letter}}",
        "dead_letter": "{topic: dead}",
    },
}


def loaded(folder: Path, **parts: str) -> PipelineFile:
    source = "".join(
        f"\n  {key}: {parts[key]}" for key in ("key", "value", "reader") if key in parts
    )
    top = "".join(
        f"{key}: {parts[key]}\n" for key in ("dedup", "expect", "transform") if key in parts
    )
    more = "".join(f"\n  {key}: {parts[key]}" for key in ("delta", "dead_letter") if key in parts)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(
        f"version: 1\nname: {parts.get('name', 'orders')}\n"
        f"source:\n  kafka: {{topic: in}}{source}\n{top}"
        f"sink:\n  kafka: {parts.get('sink', '{topic: out}')}{more}\n"
    )
    return load_pipeline(path, {})


def options(folder: Path, *files: PipelineFile, master: str = "local[2]") -> tuple[str, ...]:
    return java_options(files, notes_of(files, folder), master)


@pytest.mark.parametrize("name", IN_PYTHON)
def test_a_jvm_that_gets_no_rows_does_not_optimize(name, tmp_path):
    assert options(tmp_path, loaded(tmp_path, **IN_PYTHON[name])) == (WITHOUT_C2,)


@pytest.mark.parametrize("name", IN_THE_JVM)
def test_a_jvm_that_may_get_rows_does(name, tmp_path):
    assert not options(tmp_path, loaded(tmp_path, **IN_THE_JVM[name]))


def test_one_of_several_pipelines_is_enough(tmp_path):
    copy = loaded(tmp_path / "a", **IN_PYTHON["copy"])
    query = loaded(tmp_path / "b", **IN_THE_JVM["sql"], name="other")
    assert options(tmp_path, copy, master="local")
    assert not options(tmp_path, copy, query, master="local")


def test_a_cluster_keeps_javas_defaults(tmp_path):
    assert not options(tmp_path, loaded(tmp_path), master="spark://a:7077")


@pytest.mark.parametrize(("name", "value"), [("EOS_READER", "spark"), ("EOS_NATIVE", "off")])
def test_a_jvm_that_reads_the_source_optimizes(tmp_path, monkeypatch, name, value):
    """A note of a run without the variable does not count."""
    copy = loaded(tmp_path)
    notes_of([copy], tmp_path)["orders"].write_text("python")
    assert options(tmp_path, copy)
    monkeypatch.setenv(name, value)
    assert not options(tmp_path, copy)


def test_a_run_leaves_a_note_for_the_next_one_of_the_same_file(tmp_path, monkeypatch):
    query = loaded(tmp_path, **IN_THE_JVM["sql"])
    found = chosen({"SPARK_SUBMIT_OPTS": "-Da=b"}, [query], tmp_path, "local[2]")
    assert found["SPARK_SUBMIT_OPTS"] == "-Da=b"
    monkeypatch.setenv(NOTES, found[NOTES])
    leave_note("another", is_in_python=True)
    assert not options(tmp_path, query)
    leave_note("orders", is_in_python=True)
    assert options(tmp_path, query)
    found = chosen({"SPARK_SUBMIT_OPTS": "-Da=b"}, [query], tmp_path, "local[2]")
    assert found["SPARK_SUBMIT_OPTS"] == f"{WITHOUT_C2} -Da=b", "the user's options come last"
    leave_note("orders", is_in_python=False)
    assert not options(tmp_path, query)
    leave_note("orders", is_in_python=True)
    (note,) = tmp_path.glob("*.rows")
    assert note.stat().st_mode & 0o777 == 0o600
    changed = loaded(tmp_path, **IN_THE_JVM["json"])
    assert not options(tmp_path, changed)
    assert not note.exists()


@pytest.mark.parametrize(("text", "is_quick"), [("jvm", False), ("", True), ("\xff", True)])
def test_a_note_of_rows_in_the_jvm_precedes_what_the_file_says(tmp_path, text, is_quick):
    """A damaged note is none."""
    copy = loaded(tmp_path)
    notes_of([copy], tmp_path)["orders"].write_text(text, encoding="latin-1")
    assert bool(options(tmp_path, copy)) is is_quick


def test_the_launcher_starts_the_jvm_with_the_choice(tmp_path, monkeypatch):
    started = []

    def run(app: submit.Application, **_: str) -> int:
        started.append(app.environment)
        return 0

    monkeypatch.setattr(submit.Application, "run", run)
    copy = loaded(tmp_path / "pipelines" / "orders")
    profile = tmp_path / "conf" / "there.yaml"
    profile.parent.mkdir()
    profile.write_text("kafka: {bootstrap: 'localhost:1'}\n")
    assert submit.main([str(copy.path), "--profile", str(profile)]) == 0
    (environment,) = started
    assert WITHOUT_C2 in environment["SPARK_SUBMIT_OPTS"].split()
    (note,) = json.loads(environment[NOTES]).values()
    assert Path(note).parent == tmp_path / ".eos" / "logs" / "orders"


def test_a_note_stays_if_another_pipelines_file_changes(tmp_path):
    first, second = (loaded(tmp_path / name, name=name) for name in ("orders.eu", "orders"))
    kept = notes_of([first], tmp_path)["orders.eu"]
    kept.touch()
    notes_of([second], tmp_path)
    assert kept.exists()


def test_a_driver_of_another_launcher_leaves_no_note(monkeypatch):
    monkeypatch.delenv(NOTES, raising=False)
    leave_note("orders", is_in_python=True)
