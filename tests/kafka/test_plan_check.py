"""`eos plan --check` beside a real broker: what would stop a run is found, with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from support.copies.recovery import Pipeline
from support.kafka import kafka_io

from eos.cli.plan import _cluster
from eos.inspect.check import Check


def found(pipeline: Pipeline, *levels: str) -> Iterator[Check]:
    return (each for each in _cluster(pipeline.planned()) if each.level in (levels or ("finding",)))


def test_what_fits_has_no_findings_and_the_rest_names_the_way_out(pipeline: Pipeline) -> None:
    assert not list(found(pipeline))
    says = [each.message for each in found(pipeline, "ok")]
    assert f"{pipeline.source}: 2 partitions, 1 replica" in says
    target = f"{pipeline.name}.out"
    assert f"{target}: the first run creates it, 1 partition" in says
    assert any(words.startswith("begins; `eos recover") for words in says)
    assert f"all that are needed on {pipeline.source}" in says

    file = Path(pipeline.words[0]) / "pipeline.yaml"
    text = file.read_text()
    file.write_text(
        text.replace("create: {partitions: 1}", "create: {partitions: 1, replication: 3}")
    )
    (short,) = found(pipeline)
    assert short.message == f"{target} needs 3 replicas, but there are 1 brokers"
    file.write_text(text.replace(", create: {partitions: 1}", ""))
    absent, stop = found(pipeline)
    assert (absent.subject, absent.message) == ("target", f"{target} does not exist")
    assert "create: {partitions: N}" in absent.remedy
    assert stop.subject == "start"

    kafka_io.create_topics(pipeline.bootstrap, 1, target)
    kafka_io.set_topic(pipeline.bootstrap, target, min_insync_replicas="2")
    (starved,) = found(pipeline)
    assert starved.message.endswith(
        "1 replica, 1 in sync, min.insync.replicas=2: nothing can be written"
    )
    assert "min.insync.replicas=1" in starved.remedy


def test_what_would_stop_the_next_start_is_a_finding(pipeline: Pipeline) -> None:
    pipeline.ran(3)
    assert not list(found(pipeline))
    pipeline.move_group({0: 5})
    (ahead,) = found(pipeline)
    assert ahead.subject == "start"
    assert "the group's offsets differ from the ledger" in ahead.message
    assert f"eos recover {pipeline.name} --from-group" in ahead.remedy
