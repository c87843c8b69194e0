"""Two pipelines whose prefix and name make the same transactional id, without Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from support.copies.pipeline_copy import Copy, Job
from support.copies.scenes import Scene, Scenes, run_to_end
from support.doubles import WatchedClient
from support.kafka import kafka_io

from eos.deadline import Deadline
from eos.errors import EosError, PromiseBrokenError
from eos.kafka.client import KafkaClient
from eos.plan.names import Names
from eos.plan.plan import Plan

RECORDS = 20


@dataclass(frozen=True)
class Named(Job):
    """A job by prefix and name. `name` is what both make."""

    prefix: str = ""

    @property
    def pipeline(self) -> str:
        return self.name.removeprefix(f"{self.prefix}.")

    @property
    def ledger(self) -> str:
        return f"{self.prefix}.ledger.{self.pipeline}"

    def plan(self) -> Plan:
        names = Names.of(self.prefix, self.pipeline, str(self.folder))
        place = str(self.folder / "checkpoint")
        return replace(super().plan(), names=replace(names, checkpoints=place, lock=self.lock))


def pair(scenes: Scenes) -> tuple[Scene, Named]:
    """The first, as a scene, and the second with a state root of its own."""
    scene = scenes.new(RECORDS)
    job = scene.job
    found = vars(job) | {"name": f"{job.name}.team.orders"}
    scene.job = Named(**found, prefix=job.name)
    second = Named(**found | {"folder": job.folder / "second"}, prefix=f"{job.name}.team")
    assert scene.job.plan().names.transactional_id == second.plan().names.transactional_id
    return scene, second


def refused(job: Job, *, take_over: bool = False) -> EosError:
    with Copy(job) as copy:
        error = run_to_end(copy, take_over=take_over)
    assert isinstance(error, PromiseBrokenError)
    return error


@pytest.mark.parametrize("take_over", [False, True])
def test_the_second_of_a_name_does_not_disturb_the_first(scenes, take_over):
    scene, second = pair(scenes)
    with Copy(scene.job) as first:
        first.start()
        first.drain()
        owned = first.coordinator.identity
        error = refused(second, take_over=take_over)
        assert error.code == "names_shared"
        for words in ("'team.orders'", repr(scene.job.ledger), repr(scene.job.name)):
            assert words in error.message
        scene.feed(RECORDS)
        first.drain()
        first.stop()
        assert first.coordinator.identity == (owned[0], owned[1] + 2)  # batch, end
    kafka_io.wait_closed(scene.job.bootstrap, scene.job.ledger)
    assert refused(second).code == "names_shared", "it will start again"
    scene.check()


def test_the_group_shows_a_first_whose_ledger_this_user_may_not_see(scenes, monkeypatch):
    scene, second = pair(scenes)
    asked = KafkaClient.topics

    def hidden(client: KafkaClient, names: object, deadline: object) -> object:
        found = asked(client, names, deadline)
        return {
            name: info._replace(error=29) if name == scene.job.ledger else info
            for name, info in found.items()
        }

    with Copy(scene.job) as first:
        first.start()
        first.drain()
        monkeypatch.setattr(KafkaClient, "topics", hidden)
        error = refused(second)
        monkeypatch.undo()
        assert error.code == "ledger_lost"
        assert f"'team.orders' with the prefix {scene.job.prefix!r}" in error.hint
        scene.feed(RECORDS)
        first.drain()
        first.stop()
    scene.check()


def test_another_copy_that_commits_first_is_not_taken_for_a_lost_ledger(scenes):
    """1. A startup finds the ledger empty. 2. Another copy commits its first record. 3. The startup
    finds the group's offsets."""
    scene, _ = pair(scenes)
    job = replace(scene.job, folder=scene.job.folder / "there", deployment="there")
    with Copy(scene.job) as first, Copy(job) as late:

        def commit_first(request: str) -> None:
            if request == "committed_offsets":
                first.start()
                partitions = first.batches.position.ends  # by name, so that they are waited for
                first.client.committed_offsets(job.name, Deadline.after_ms(60_000), partitions)

        late.client = WatchedClient(late.client, commit_first)
        error = run_to_end(late)
        assert error is not None
        assert error.code == "another_deployment"
        first.drain()
        first.stop()
    scene.check()


def test_two_that_have_both_run_before_take_turns(scenes, monkeypatch):
    """With names and histories of a release that did not look."""
    scene, second = pair(scenes)
    second = replace(second, source=f"{second.source}.2", target=f"{second.target}.2")
    kafka_io.create_topics(second.bootstrap, 1, second.source, second.target)
    with Copy(scene.job) as first:
        assert run_to_end(first) is None
    monkeypatch.setattr("eos.startup.acquire.require_own_names", lambda *_a, **_k: None)
    monkeypatch.setattr("eos.startup.acquire.require_unused_group", lambda *_a: None)
    with Copy(second) as other:
        assert run_to_end(other) is None
    monkeypatch.undo()
    kafka_io.wait_closed(second.bootstrap, second.ledger)
    scene.feed(RECORDS)
    with Copy(scene.job) as first:
        assert run_to_end(first) is None
    kafka_io.wait_closed(scene.job.bootstrap, scene.job.ledger)
    with Copy(second) as other:
        other.start()  # and dies
    scene.feed(RECORDS)
    assert refused(scene.job).code == "names_shared"
    with Copy(scene.job) as first:
        assert run_to_end(first, take_over=True) is None
    scene.check()
