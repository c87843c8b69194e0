"""What happens to a pipeline while it runs: its target goes, its checkpoint is another's, too."""

from __future__ import annotations

from collections import Counter

import pytest
from support.kafka import brokers, kafka_io
from support.spark.project import TRANSFORM, Project
from support.spark.spark_recovery import RECORDS, SparkPipeline

LIMIT = 150  # bytes: two or three of the records
REFUSING = """
def passed_on(frame):
    return frame.selectExpr(
        "key", "if(CAST(value AS STRING) = '{value}', raise_error('not yet'), value) AS value"
    )
"""
CONCURRENT = """
import shutil
from pathlib import Path

def passed_on(frame):
    offsets = Path({folder!r}) / "0001" / "offsets"
    if (offsets / "0").exists() and not (offsets / "1").exists():
        shutil.copy(offsets / "0", offsets / "1")  # as another query that plans the next one
    return frame
"""
OVERWRITTEN = """
from pathlib import Path

from eos.checkpoint.offset_log import Checkpoint

def overwritten(ranges):
    def overwrites(checkpoint, batch_id):
        if batch_id == 1:
            Checkpoint.ranges = ranges
            offsets = Path(checkpoint.location) / "offsets"
            (offsets / "1").write_bytes((offsets / "0").read_bytes())
        return ranges(checkpoint, batch_id)
    return overwrites

Checkpoint.ranges = overwritten(Checkpoint.ranges)

def passed_on(frame):
    return frame
"""


@pytest.fixture
def past(project: Project) -> SparkPipeline:
    return SparkPipeline(project, {project.source: 2})


def transform(past: SparkPipeline, text: str, **values: object) -> None:
    place = past.project.folder / "pipelines" / past.project.name / "transform.py"
    place.write_text(text.format(**values) if values else text)


@pytest.mark.long
def test_started_again_inside_the_process_after_it_failed_it_goes_on(past: SparkPipeline) -> None:
    past.ran(1)
    assert past.project.warm is not None
    driver = past.project.warm.pid
    past.write_batches(3)
    transform(past, REFUSING, value=f"{past.project.source}/1/{2 * RECORDS + 3}")
    failed = past.project.run_warm()
    assert failed.returncode == 5, failed.stderr
    assert "micro-batch 1 committed" in failed.stderr
    assert "micro-batch 2, attempt 3 failed" in failed.stderr
    transform(past, TRANSFORM)
    past.goes_on()
    assert past.project.warm.pid == driver
    markers = brokers.check_topic(past.project.broker, past.project.target)
    assert markers["COMMIT"] > 0


@pytest.mark.long
def test_a_second_writer_of_its_checkpoint_ends_the_run_to_be_started_again(
    past: SparkPipeline,
) -> None:
    past.write_batches(3)
    transform(past, CONCURRENT, folder=str(past.checkpoints))
    done = past.project.run_warm()
    assert done.returncode == 5, done.stderr
    assert "micro-batch 0 committed" in done.stderr
    transform(past, TRANSFORM)
    past.goes_on()
    past.ran(1)


@pytest.mark.long
def test_a_plan_that_is_overwritten_before_it_is_read_ends_the_run(past: SparkPipeline) -> None:
    """As by a fenced copy in a store whose rename is not atomic."""
    past.write_batches(3)
    transform(past, OVERWRITTEN)
    done = past.project.run_warm()
    assert done.returncode == 5, done.stderr
    assert "micro-batch 0 committed" in done.stderr
    other = f"{past.project.source}-0 from {RECORDS} to {2 * RECORDS} in the plan, from "
    for words in (
        f"eos: [checkpoint_offsets_mismatch] {past.project.name}",
        "of micro-batch 1",
        other,
    ):
        assert words in done.stderr, done.stderr
    assert "micro-batch 1" not in done.stderr.partition("eos: ")[0]
    transform(past, TRANSFORM)
    past.checkpoint.remove("offsets/1")  # a fenced copy's
    past.goes_on()


def test_a_target_made_anew_before_a_micro_batch_is_written_has_it_whole(
    past: SparkPipeline,
) -> None:
    past.ran(2)
    before = Counter(past.expected)
    past.write_batches(3)
    with past.paused_at("begin:after") as run:
        past.delete_topic(past.project.target)
        past.create_topic(past.project.target, 2)
    assert run.wait() == 0, run.said()
    past.expected -= before  # with the old topic
    past.check()


def test_a_source_recreated_with_fewer_records_is_recreated_and_not_lost(
    past: SparkPipeline,
) -> None:
    """Spark reports offsets that went back, which looks like an unclean leader election."""
    past.write_batches(3)
    source = past.project.source
    with past.paused_at("commit_log:before") as run:  # the first micro-batch is committed
        past.delete_topic(source)
        past.create_topic(source)
        past.written.clear()
        past.write(dict.fromkeys(past.partitions(), 2))
    assert run.wait() == 4, run.said()
    told = run.said()
    words = f"eos: [recreated] {past.project.name}: the source topic '{source}' was recreated"
    assert words in told, told
    assert f"eos recover {past.project.name} --forget-topic {source}" in told
    assert "unclean" not in told


def test_a_limit_that_is_lowered_while_a_pipeline_runs_costs_one_attempt(
    past: SparkPipeline,
) -> None:
    """Record batches of the first attempt are larger than the target's topic then allows."""
    past.write_batches(2)
    target = past.project.target
    with past.paused_at("begin:after") as run:
        kafka_io.set_topic(past.bootstrap, target, max_message_bytes=str(LIMIT))
    assert run.wait() == 0, run.said()
    lowered = f"max.message.bytes of the topic '{target}' changed from 1048588 to {LIMIT}"
    assert lowered in run.said()
    assert "attempt 2 failed" not in run.said()
    past.check()
