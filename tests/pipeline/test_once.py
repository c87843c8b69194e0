"""`trigger: {once: true}`: one micro-batch of all that is there, and not another one behind it."""

from __future__ import annotations

from support.kafka import kafka_io
from support.spark.project import PIPELINE, Project

FAILING = """
from pathlib import Path

def passed_on(rows):
    if Path({flag!r}).exists():
        raise ValueError("as written")
    return rows
"""
ONCE = (
    PIPELINE.replace(", max_records: {records}", "")
    .replace("python:", "arrow:")
    .replace('passed_on"', 'passed_on", returns: "*"')
    .replace("available_now", "once")
)


def test_once_is_one_micro_batch_also_where_one_was_begun(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    project.declare(0, text=ONCE)
    flag = project.folder / "fails"
    transform = project.folder / "pipelines" / project.name / "transform.py"
    transform.write_text(FAILING.format(flag=str(flag)))
    kafka_io.create_topics(bootstrap, 2, project.source)

    def written() -> int:
        return len(kafka_io.read(bootstrap, project.target))

    kafka_io.fill(bootstrap, project.source, range(50))
    flag.touch()
    failed = project.run_warm()
    assert failed.returncode != 0, failed.stderr
    assert "ValueError: as written" in failed.stderr
    flag.unlink()
    kafka_io.fill(bootstrap, project.source, range(50, 100))
    # One micro-batch is what the failed run planned: what came since is not in it.
    once = project.run_warm()
    assert once.returncode == 0, once.stderr
    assert "one micro-batch was requested" in once.stderr
    assert written() == 50
    # By a word of the run the same file is drained.
    drained = project.run_warm("--available-now")
    assert drained.returncode == 0, drained.stderr
    assert "drained" in drained.stderr
    assert written() == 100
    # A flag overrides the file, and the run says which key it ignores.
    project.declare(5)
    kafka_io.fill(bootstrap, project.source, range(100, 120))
    overridden = project.run_warm("--once")
    assert overridden.returncode == 0, overridden.stderr
    assert "so `max_records: 5` of the pipeline file is ignored" in overridden.stderr
    assert overridden.stderr.count(" committed: ") == 1
    assert written() == 120
