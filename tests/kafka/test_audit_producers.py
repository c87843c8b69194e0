"""The table `producers` beside a real cluster: it equals what the leaders have, whatever dies."""

from __future__ import annotations

import json
import re
import shutil
import signal
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from support.copies import audit as kept
from support.copies.audit import CopyingPipeline, check_producers, producer_states, projection
from support.copies.pipeline_copy import Copy
from support.copies.recovery import run_verb, soon
from support.doubles import At, EventLog
from support.errors import in_turn, raises
from support.verbs import audit
from support.waiting import wait_until

from eos.audit import producer_rows
from eos.audit.follower import Follower
from eos.audit.producer_states import EntryKey
from eos.audit.table import ProducersTable
from eos.errors import AttemptFailedError, UnavailableError
from eos.faults import MOMENTS, POINTS
from eos.inspect.producers_live import RowStatus
from eos.kafka.api import TopicPartition
from eos.observe import events


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "transactions"


def caught_up(made):
    """Markers may be on their way."""

    def settled():
        found = made.catch_up(soon())
        return found if found.is_settled else None

    return wait_until(settled)


def statuses(scene, client, location) -> set[RowStatus]:
    names = scene.job.name, scene.job.ledger, scene.job.name
    return set(check_producers(client, location, *names).values())


def ran(scene):
    with Copy(scene.job) as copy:
        copy.start()
        copy.drain()
        copy.stop()


@pytest.mark.parametrize("profile", ["TV2", "TV1"])
def test_the_table_has_what_the_leaders_have(scenes, clients, location, profile):
    client = clients()
    scene = scenes.new(60, profile=profile)
    ran(scene)
    caught_up(projection(scene, client, location))
    assert statuses(scene, client, location) == {RowStatus.SAME}
    states = producer_states(location, scene.job.name, scene.job.ledger)
    leaders = client.describe_producers({key.partition for key in states.entries}, soon())
    for key, entry in states.entries.items():
        (leader,) = (one for one in leaders[key.partition] if one.identity[0] == key.producer_id)
        last = entry.batches[-1].sequence_last if profile == "TV1" else -1
        assert leader.identity.epoch == entry.state.epoch
        assert (leader.sequence_last, leader.transaction_start_offset) == (last, -1)
        assert leader.coordinator_epoch == entry.coordinator_epoch
        if key.partition.topic == scene.job.ledger:
            assert leader.last_ms == entry.state.at_ms
    assert states.coordinator.phase.value == "CompleteCommit"
    assert client.transaction_state(scene.job.name, soon()).identity == states.coordinator.identity


@pytest.mark.parametrize("profile", ["TV2", pytest.param("TV1", marks=pytest.mark.long)])
def test_after_every_kill_the_table_equals_the_leaders(scenes, client, location, profile):
    """At each point, before and after it. First as the dead process left everything, then once the
    next one has run a micro-batch."""
    scene = scenes.new(20, profile=profile)
    made = projection(scene, client, location)

    def dies() -> None:
        raise KeyboardInterrupt

    found: set[RowStatus] = set()
    for at in [f"{point}:{moment}" for point in POINTS[:-1] for moment in MOMENTS]:
        scene.feed(20)
        crash = At(at, dies)
        with Copy(scene.job, crash) as copy:
            copy.start()
            with suppress(KeyboardInterrupt):
                copy.drain()
            assert crash.times == 1, at
        made.catch_up(soon())
        found |= statuses(scene, client, location)
        with Copy(scene.job) as copy:
            copy.start()
            copy.drain()
        caught_up(made)
        found |= statuses(scene, client, location)
    assert {RowStatus.SAME, RowStatus.NEWER} <= found
    assert RowStatus.DIFFERS not in found


def test_partitions_of_an_aborted_attempt_are_unknown_until_they_are_written(
    scenes, client, location
):
    scene = scenes.new(40)

    def fails() -> None:
        raise AttemptFailedError("example", "a task was lost")

    with Copy(scene.job, At("all_acked:after", fails)) as copy:
        copy.start()
        copy.step()
        caught_up(projection(scene, client, location))
        states = producer_states(location, scene.job.name, scene.job.ledger)
        assert set(states.aborted.values()) == {copy.coordinator.identity.epoch - 2}
        assert all(map(states.is_known, states.entries)), "a later epoch has written to all"
        assert statuses(scene, client, location) == {RowStatus.SAME}


POINTS_OF_TABLES = [
    f"{point}:{moment}" for point in ("audit_append", "producers_replace") for moment in MOMENTS
]


@pytest.mark.long
@pytest.mark.parametrize("point", in_turn(POINTS_OF_TABLES, 1, every=4))
def test_whoever_dies_between_the_two_tables_leaves_neither_ahead(scenes, client, location, point):
    scene = scenes.new(40)
    ran(scene)
    process = kept.spawn_projection(scene, location, point)
    assert process.wait(300) == -signal.SIGKILL
    process.stdout.close()
    ledger = {offset for offset, _ in scene.ledger_with_offsets()}
    for found in (
        kept.table_rows(location, scene.job.name),
        ProducersTable(location.with_name("producers")).query("SELECT * FROM producers"),
    ):
        assert {row["ledger_offset"] for row in found} <= ledger
    if point == "audit_append:before":
        assert not kept.table_rows(location, scene.job.name), "validated before its rows are stored"
        assert producer_states(location, scene.job.name, scene.job.ledger).entries
    caught_up(projection(scene, client, location))
    assert not kept.check_table(scene, location)
    assert statuses(scene, client, location) == {RowStatus.SAME}


def test_two_processes_at_the_same_time_end_with_the_same_states(scenes, client, location):
    scene = scenes.new(60)
    ran(scene)
    slow, quick = (projection(scene, client, location) for _ in range(2))

    def overtakes(point: str) -> None:
        if point == "producers_replace:before":
            slow.reached = lambda _point: None
            caught_up(quick)

    slow.reached = overtakes
    caught_up(slow)
    assert statuses(scene, client, location) == {RowStatus.SAME}
    expected = producer_states(location, scene.job.name, scene.job.ledger)
    shutil.rmtree(location.with_name("producers"))
    log = EventLog()
    follower = Follower(projection(scene, client, location), log, 1)
    follower._caught_up(soon())
    (warned,) = log.of(events.Warned)
    assert warned.message == "the audit table `producers` was rebuilt from the whole ledger"
    assert producer_states(location, scene.job.name, scene.job.ledger) == expected


def test_states_whose_records_are_gone_are_rebuilt_and_say_so(scenes, client, location):
    scene = scenes.new(60)
    ran(scene)
    made = projection(scene, client, location)
    assert caught_up(made).rebuilt_from is None
    shutil.rmtree(location.with_name("producers"))
    third = scene.ledger_with_offsets()[2][0]
    client.delete_records({TopicPartition(scene.job.ledger, 0): third}, soon())
    assert caught_up(made).rebuilt_from == third
    states = producer_states(location, scene.job.name, scene.job.ledger)
    assert states.ledger_from == third
    assert RowStatus.DIFFERS not in statuses(scene, client, location)
    scene.feed(20)
    ran(scene)
    assert caught_up(made).rebuilt_from is None
    assert producer_states(location, scene.job.name, scene.job.ledger).ledger_from == third


def test_what_is_found_is_reported_although_the_rows_could_not_be_stored(
    scenes, client, location, monkeypatch
):
    scene = scenes.new(20)
    ran(scene)
    made = projection(scene, client, location)
    caught_up(made)
    shutil.rmtree(location.with_name("producers"))
    scene.feed(20)
    ran(scene)

    def is_full(*_arguments: object) -> None:
        raise UnavailableError("example", "the disk is full")

    with monkeypatch.context() as full:
        full.setattr(made.table, "append", is_full)
        with raises("example"):
            made.catch_up(soon())
    assert caught_up(made).rebuilt_from == 0
    assert caught_up(made).rebuilt_from is None


@pytest.fixture
def copying(broker, tmp_path):
    made = CopyingPipeline(tmp_path, broker.bootstrap, f"ap-{uuid.uuid4().hex[:8]}")
    yield made
    made.close()


def test_a_falsified_receipt_is_found_at_once_and_by_the_verb(copying):
    """It tells of two record batches, of which the leader never got the first."""

    def falsified(receipt):
        (batch,) = receipt.batches
        later = batch._replace(sequence_first=batch.sequence_first + 1)
        return replace(receipt, batches=(later,)) if receipt.records > 1 else receipt

    copying.ran(3)
    assert run_verb(audit, *copying.words).code == 0
    copying.fill(4)
    with copying.running() as run:
        run.falsify = falsified
        run.step()
        follower = Follower(kept.projection_of(copying), run.told, 10)
        follower.start()
        follower.committed()
        follower.close()
    told = [each.message for each in run.told.of(events.Warned)]
    assert any("audit finding, verdict" in each and "were acknowledged" in each for each in told)
    for words in ((), ("--producers",)):
        said = run_verb(audit, *copying.words, *words, "--json")
        assert said.code == 1, said
        assert {each["case"] for each in said.json["findings"]} == {"verdict", "receipt"}


def test_the_verb(copying):
    assert "never ran with a table" in run_verb(audit, *copying.words, "--producers").out
    copying.ran(3, 4)
    names = copying.planned().names
    said = run_verb(audit, *copying.words, "--producers")
    assert said.code == 0, said
    assert f"coordinator {names.transactional_id}: CompleteCommit, producer" in said.out
    assert re.search(rf"{re.escape(copying.target)}-0 +known +", said.out), said.out
    assert said.out.splitlines()[-1] == "no findings"
    with pytest.raises(SystemExit):
        run_verb(audit, *copying.words, "--producers", "--since", "1 hour")

    said = run_verb(audit, *copying.words, "--producers", "--live", "--json")
    assert said.code == 0, said
    assert {each["live"] for each in said.json["producers"]} == {"same"}
    assert all(each["leader"]["epoch"] == each["epoch"] for each in said.json["producers"])
    assert said.json["live"]["coordinator"].startswith("CompleteCommit, producer ")

    table = ProducersTable(kept.table_of(copying).with_name("producers"))
    rows = table.query("SELECT * FROM producers")
    ledger_id = rows[0]["ledger_id"]
    app = f"{names.pipeline}/{ledger_id}"
    states = producer_states(kept.table_of(copying), names.pipeline, names.ledger)
    key = next(key for key in states.entries if key.partition.topic == copying.target)
    entry = states.entries[key]
    states.entries[key] = entry._replace(state=entry.state._replace(epoch=entry.state.epoch + 1))
    gone = EntryKey(TopicPartition(names.ledger, 0), 123_456_789)
    states.entries[gone] = entry
    version = table.known(app)
    made = producer_rows.table(names.pipeline, "", ledger_id, states)
    table.replace(made, names.pipeline, app, version + 1)
    said = run_verb(audit, *copying.words, "--producers", "--live")
    assert said.code == 1, said
    assert f"differs: {key.partition}, producer id" in said.out
    assert "the leader does not know it" in said.out
    assert (
        json.loads(run_verb(audit, *copying.words, "--producers", "--json").out)["findings"] == []
    )
