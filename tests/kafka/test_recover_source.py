"""`--forget-topic` and `--accept-start`: topics and records that are gone, or new."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.copies.recovery import Pipeline
from support.errors import raises

from eos.errors import PromiseBrokenError
from eos.ledger.record import flat
from eos.local.embedded_kafka import EmbeddedKafka
from eos.startup import topic_lookup
from eos.startup.source_state import LiveSource


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_lookup, "_PASSES_WITHIN_MS", 300)


@pytest.fixture
def of_two(broker: EmbeddedKafka, tmp_path: Path, name: str):
    """Its source are the topics NAME.a and NAME.b, by a pattern."""
    made = Pipeline(tmp_path, broker.bootstrap, name, pattern=f"{name}[.][ab]")
    for each in "ab":
        made.create(f"{name}.{each}", 1)
        made.fill(5, f"{name}.{each}")
    with made.running() as run:
        run.step()
        run.stop()
    yield made
    made.close()


# --- topics ---------------------------------------------------------------------------------------


def test_a_running_pipeline_compares_topic_ids_before_offsets(pipeline: Pipeline) -> None:
    """A recreated topic with fewer records looks, by its offsets, as after an unclean election."""
    pipeline.ran(5)
    planned, client = pipeline.planned(), pipeline.client()
    source, position = LiveSource(planned, client), pipeline.last().position
    source.require_unchanged(position)
    pipeline.delete(pipeline.source)
    pipeline.create(pipeline.source, 2)
    pipeline.fill(2)
    for starts in (None, position.ends):
        with raises("recreated", PromiseBrokenError) as stop:
            source.require_unchanged(position, starts)
        assert f"eos recover {pipeline.name} --forget-topic {pipeline.source}" in stop.value.hint


def test_a_topic_made_anew_is_read_from_its_beginning(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    old = pipeline.last().position.topic_ids[pipeline.source]
    pipeline.delete(pipeline.source)
    pipeline.create(pipeline.source, 3)
    pipeline.fill(2)
    did = pipeline.did("--forget-topic", pipeline.source)
    assert did["verb"] == f"--forget-topic {pipeline.source}"
    assert did["ends"] == {pipeline.source: {"0": [5, None], "1": [5, None]}}
    assert did["topic_ids"] == {pipeline.source: [old, None]}
    assert "was recreated" in did["says"][0]
    assert pipeline.ends() == {}
    assert pipeline.explained().code == 0
    with pipeline.running() as run:
        run.step()
        assert {tp.partition: at for tp, at in run.read[0].starts.items()} == {0: 0, 1: 0, 2: 0}
    assert pipeline.last().position.topic_ids[pipeline.source] != old


def test_a_deleted_topic_of_a_pattern_is_gone_on_without(of_two: Pipeline) -> None:
    gone, other = f"{of_two.name}.a", f"{of_two.name}.b"
    of_two.delete(gone)
    assert of_two.explained().cases == ["gone"]
    did = of_two.did("--forget-topic", gone)
    assert did["ends"] == {gone: {"0": [5, None]}}
    assert did["says"] == [f"{gone} is gone: its records after the ledger's ends were never read"]
    assert of_two.ends() == {other: {"0": 5}}
    assert of_two.explained().code == 0
    of_two.fill(2, other)
    with of_two.running() as run:
        run.step()
        assert [(tp.topic, at) for tp, at in run.read[0].starts.items()] == [(other, 5)]


def test_two_topics_are_forgotten_at_once_since_one_alone_could_not_be(of_two: Pipeline) -> None:
    """The record commits the group's offsets of all that stays, and one is gone."""
    gone = [f"{of_two.name}.{each}" for each in "ab"]
    of_two.create(f"{of_two.name}.c", 1)
    for topic in gone:
        of_two.delete(topic)
    explained = of_two.explained().json["findings"][0]
    for topic, message in zip(gone, explained["messages"], strict=True):
        assert f"the source topic {topic!r} does not exist" in message
    words = [f"--forget-topic {topic}" for topic in gone]
    assert explained["ways"][0]["command"].endswith(" ".join(words))
    alone = of_two.recover("--forget-topic", gone[0], "--yes")
    assert (alone.code, f"the source topic {gone[1]!r} does not exist" in alone.err) == (4, True)
    said = [word for topic in (*gone, gone[0]) for word in ("--forget-topic", topic)]
    assert of_two.did(*said)["verb"] == " ".join(words)
    assert of_two.ends() == {}


def test_a_deleted_topic_that_the_file_names_still_stops_a_start(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    pipeline.delete(pipeline.source)
    (says,) = pipeline.did("--forget-topic", pipeline.source)["says"]
    assert "remove it from the pipeline file, or the next run stops" in says
    assert pipeline.explained().cases == ["source_topic_missing"]


def test_a_topic_to_which_nothing_happened_is_not_forgotten(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    for name, words in (
        (pipeline.source, "[topic_not_recreated]"),
        ("never.heard.of", f"the ledger has {pipeline.source}"),
    ):
        refused = pipeline.recover("--forget-topic", name, "--yes")
        assert (refused.code, words in refused.err) == (2, True), refused


def test_a_topic_that_left_the_source_may_be_forgotten(of_two: Pipeline) -> None:
    of_two.pattern = f"{of_two.name}[.]b"
    of_two.declare()
    left = f"{of_two.name}.a"
    (says,) = of_two.did("--forget-topic", left)["says"]
    assert (
        says == f"{left} is no topic of the source any more: its ends are removed from the ledger"
    )


# --- records --------------------------------------------------------------------------------------


def test_records_that_are_gone_are_named_and_gone_on_without(pipeline: Pipeline) -> None:
    pipeline.ran(5, 3)
    pipeline.fill(4)
    pipeline.truncate(1, 11)
    assert pipeline.explained().cases == ["truncated"]
    did = pipeline.did("--accept-start")
    assert did["ends"] == {pipeline.source: {"1": [8, 11]}}
    lost = {"topic": pipeline.source, "partition": 1, "from": 8, "to": 11, "count": 3}
    assert did["lost"] == [lost]
    assert did["says"] == [
        f"3 offsets of {pipeline.source}-1 are lost: 8 to 10 were deleted before they were read"
    ]
    assert pipeline.group() == {0: 8, 1: 11}
    assert pipeline.explained().code == 0
    with pipeline.running() as run:
        assert run.location.endswith("/0002")
        run.step()
        assert {tp.partition: at for tp, at in run.read[0].starts.items()} == {0: 8, 1: 11}


@pytest.mark.parametrize(
    ("first", "begins", "lost"), [(0, 3, []), (4, 4, [{"from": 3, "to": 4, "count": 1}])]
)
def test_a_new_partition_begins_where_it_is_planned(
    pipeline: Pipeline, first: int, begins: int, lost: list[dict[str, int]]
) -> None:
    """Another program read it up to 3 on this checkpoint; then retention may delete the next."""
    pipeline.ran(5)
    pipeline.add_partitions(3)
    pipeline.fill(6)
    spark, source = pipeline.checkpoint(), pipeline.source
    spark.plan(0, flat({source: {"0": 5, "1": 5, "2": 3}}))
    spark.plan(1, flat({source: {"0": 11, "1": 11, "2": 6}}))
    if first:
        pipeline.truncate(2, first)
    assert pipeline.explained().cases == ["unknown"]
    did = pipeline.did("--accept-start")
    assert did["ends"] == {source: {"2": [None, begins]}}
    assert did["lost"] == [{"topic": source, "partition": 2, **each} for each in lost]
    told = "1 offsets that were planned are gone" if lost else "3 offsets before it are not read"
    assert did["says"] == [f"{source}-2 is new and begins at {begins}: {told}"]
    with pipeline.running() as run:
        run.step()
        assert {tp.partition: at for tp, at in run.read[0].starts.items()} == {
            0: 5,
            1: 5,
            2: begins,
        }


def test_a_checkpoint_that_is_not_gone_on_with_need_not_be_readable(pipeline: Pipeline) -> None:
    pipeline.ran(5, 3)
    pipeline.fill(4)
    pipeline.truncate(1, 11)
    (pipeline.checkpoint().path / "metadata").unlink()
    assert pipeline.explained().cases == ["truncated", "checkpoint_unreadable"]
    assert pipeline.did("--accept-start")["ends"] == {pipeline.source: {"1": [8, 11]}}
    assert pipeline.explained().code == 0


def test_nothing_is_accepted_where_nothing_is_gone(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    pipeline.truncate(0, 5)  # just up to what is next
    done = pipeline.recover("--accept-start", "--yes")
    assert (done.code, done.out.splitlines()[0]) == (0, "nothing to do")


def test_a_topic_made_anew_comes_first(pipeline: Pipeline) -> None:
    """Its earliest and latest say nothing of the offsets that the ledger knows."""
    pipeline.ran(5)
    pipeline.delete(pipeline.source)
    pipeline.create(pipeline.source, 2)
    verbs = (["--accept-start"], ["--from-group"], ["--restore-group"], ["--rewind-to", "2"])
    for verb in (*verbs, ["--set-checkpoint-aside"], ["--adopt-checkpoint"]):
        refused = pipeline.recover(*verb, "--yes")
        assert (refused.code, "[recreated]" in refused.err) == (4, True), verb
