"""What stops a start before it has fenced or written more than it must, and what does not."""

from __future__ import annotations

import json

import pytest
from support.copies.recovery import Pipeline
from support.errors import raises
from support.kafka.kafka_io import consuming

from eos.errors import EosError, PromiseBrokenError


def refused(pipeline: Pipeline, code: str) -> EosError:
    with raises(code, PromiseBrokenError) as caught, pipeline.running():
        pass
    assert caught.value.message.startswith(f"{pipeline.name}: ")
    return caught.value


def test_a_topic_taken_out_of_the_pipeline_file_stops_until_it_is_forgotten(pipeline):
    both = [pipeline.source, f"{pipeline.name}.more"]
    pipeline.create(both[1], 1)
    path = pipeline.folder / "pipelines" / "its-folder" / "pipeline.yaml"
    one = path.read_text()
    path.write_text(one.replace(json.dumps({"topic": both[0]}), json.dumps({"topics": both})))
    pipeline.ran(3)
    path.write_text(one)
    told = refused(pipeline, "left_out")
    assert told.fields["topic"] == both[1]
    assert f"eos recover {pipeline.name} --forget-topic {both[1]}" in told.hint
    pipeline.did("--forget-topic", both[1])
    pipeline.ran(2)
    assert pipeline.ends() == {both[0]: {"0": 5, "1": 5}}


@pytest.mark.parametrize("is_new", [True, False])
def test_a_foreign_member_of_the_group_stops_the_start(pipeline, is_new):
    if not is_new:
        pipeline.ran(3)
    group = pipeline.planned().names.group
    with consuming(pipeline.bootstrap, group, pipeline.source):
        told = refused(pipeline, "group_has_members")
        assert told.fields["group"] == group
