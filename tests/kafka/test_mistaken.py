"""A copy that is started by mistake beside a healthy pipeline, or by force, without Spark.

`tests/pipeline/test_stops.py` has the same with whole processes of spark-submit. Here it is shown
that the healthy one can't notice: nothing of its identity is spent by somebody else.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.copies.owners import Forked
from support.copies.pipeline_copy import Copy, Job
from support.copies.scenes import PATIENCE_S, Scene, Scenes, run_to_end
from support.doubles import At
from support.kafka import kafka_io

from eos.checkpoint.files import LocalFiles
from eos.deadline import Deadline
from eos.errors import EosError, PromiseBrokenError, Recovery, UnavailableError
from eos.faults import CrashPlan
from eos.ledger.record import LedgerRecord
from eos.observe import events
from eos.plan.plan import Plan
from eos.startup import acquire, ownership
from eos.startup.local_checks import require_local
from eos.startup.lock_holder import LockHolder

RECORDS, MORE = 20, 20  # a micro-batch each


def same_machine(job: Job) -> Job:
    return job


def elsewhere(job: Job) -> Job:
    """Another state root: no lock in common, and another deployment."""
    return replace(job, folder=job.folder / "elsewhere", deployment="there", lock="")


MISTAKES: dict[str, tuple[Callable[[Job], Job], type[EosError], str, Recovery]] = {
    "on the same machine": (same_machine, UnavailableError, "already_running", Recovery.RESTART),
    "elsewhere": (elsewhere, PromiseBrokenError, "another_deployment", Recovery.STOP),
}


def locked(scenes: Scenes) -> Scene:
    scene = scenes.new(RECORDS)
    scene.job = replace(scene.job, lock=str(scene.job.folder / "lock"))
    return scene


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_healthy_one_does_not_notice_a_copy_by_mistake(scenes, mistake):
    mistaken, kind, case, recovery = MISTAKES[mistake]
    scene = locked(scenes)
    with Copy(scene.job) as healthy:
        healthy.start()
        healthy.drain()
        owned = healthy.coordinator.identity
        for _ in range(2):
            with Copy(mistaken(scene.job)) as copy:
                error = run_to_end(copy)
            assert type(error) is kind
            assert error.code == case
            assert "--take-over" in error.hint
        with Forked(mistaken(scene.job)) as process:
            assert process.wait() == recovery.value
        scene.feed(MORE)
        healthy.drain()
        healthy.stop()
    assert healthy.coordinator.identity == (owned[0], owned[1] + 2)  # batch, end
    assert not healthy.told.of(events.Warned)
    assert not healthy.told.of(events.AttemptFailed)
    owners = {tuple(record["owner"].items()) for record in scene.ledger()}
    assert len(owners) == 1
    scene.check()


def test_a_clean_end_that_is_on_its_way_is_waited_for(scenes, monkeypatch):
    """Moved to another place at once: EndTxn is answered before its marker lies on the ledger."""
    monkeypatch.setattr(acquire, "_MARKER_MS", 300_000)
    looked, told = threading.Event(), list[EosError | None]()

    def is_free(planned: Plan, last: LedgerRecord | None) -> bool:
        found = ownership.is_free(planned, last)
        looked.set()
        return found

    monkeypatch.setattr(acquire, "is_free", is_free)
    scene = locked(scenes)

    def run_elsewhere() -> None:
        with Copy(elsewhere(scene.job)) as copy:
            told.append(run_to_end(copy))

    there = threading.Thread(target=run_elsewhere)

    def look_elsewhere() -> None:
        looked.clear()
        there.start()
        assert looked.wait(PATIENCE_S)

    with Copy(scene.job, At("stop.end_txn_sent:before", look_elsewhere)) as here:
        here.start()
        here.drain()
        here.stop()
    there.join(PATIENCE_S)
    assert told == [None]
    scene.check()


def test_the_one_that_holds_the_lock_is_named(scenes):
    scene = locked(scenes)
    with Forked(scene.job, "--go-on") as healthy:
        healthy.wait_told("committed")
        with Copy(scene.job) as copy:
            error = run_to_end(copy)
    assert error is not None
    assert f"as process {healthy.pid}" in error.message


@pytest.mark.parametrize("mistake", MISTAKES)
def test_after_a_clean_end_or_a_crash_on_this_machine_nobody_is_asked_for_force(scenes, mistake):
    mistaken, *_ = MISTAKES[mistake]
    scene = locked(scenes)
    crashes = mistake == "on the same machine"
    with Forked(scene.job, *(["--go-on"] if crashes else [])) as first:
        first.wait_told("committed")
        if crashes:
            first.kill()
        else:
            assert first.wait() == 0
            kafka_io.wait_closed(scene.job.bootstrap, scene.job.ledger)  # its clean end is seen
    scene.feed(MORE)
    with Copy(mistaken(scene.job)) as second:
        assert run_to_end(second) is None
    scene.check()


def test_after_a_crash_elsewhere_force_is_needed_and_enough(scenes):
    scene = locked(scenes)
    with Forked(scene.job, "--go-on") as first:
        first.wait_told("committed")
    scene.feed(MORE)
    with Copy(elsewhere(scene.job)) as unasked, Copy(elsewhere(scene.job)) as forced:
        refused = run_to_end(unasked)
        assert isinstance(refused, PromiseBrokenError)
        assert f"process {first.pid}" in refused.message
        assert run_to_end(forced, take_over=True) is None
    scene.check()


def test_by_force_it_fences_the_one_that_holds_the_lock_and_has_the_lock_afterwards(scenes):
    scene = locked(scenes)
    with Forked(scene.job, EOS_CRASH_AT="offsets:after:python", EOS_CRASH_SIGNAL="STOP") as older:
        older.wait_paused()
        with Forked(replace(scene.job, idle_ms=50), "--go-on", "--take-over") as newer:
            newer.wait_told("committed")
            older.wake()
            assert older.wait() == Recovery.FENCED.value
            # It tries now and then, while it is idle.
            lock = Path(scene.job.lock)
            newer.wait_until(lambda: LockHolder.read(lock).process == newer.pid, "has no lock")


def of_this_root(scenes: Scenes) -> Scene:
    """A pipeline by the default deployment: the id of its state root."""
    scene = scenes.new(RECORDS)
    root = scene.job.folder / "root"
    scene.job = replace(scene.job, deployment="", root=str(root), lock=str(root / "locks" / "x"))
    return scene


def as_on_another_machine(job: Job) -> None:
    """The same absolute path on a disk of its own: no lock in common, and no id yet."""
    (Path(job.root) / "deployment").unlink()
    Path(job.lock).unlink()


def test_a_second_replica_of_one_image_does_not_disturb_the_first(scenes):
    scene = of_this_root(scenes)
    with Copy(scene.job) as healthy:
        healthy.start()
        healthy.drain()
        owned = healthy.coordinator.identity
        as_on_another_machine(scene.job)
        for _ in range(2):
            with Copy(scene.job) as replica:
                error = run_to_end(replica)
            assert isinstance(error, PromiseBrokenError)
            assert error.code == "another_deployment"
        scene.feed(MORE)
        healthy.drain()
        healthy.stop()
        assert healthy.coordinator.identity == (owned[0], owned[1] + 2)  # batch, end
        assert not healthy.told.of(events.Warned)
    kafka_io.wait_closed(scene.job.bootstrap, scene.job.ledger)
    with Copy(scene.job) as after_its_clean_end:
        assert run_to_end(after_its_clean_end) is None
    scene.check()


def test_after_a_crash_the_id_of_the_state_root_is_known_again(scenes):
    scene = of_this_root(scenes)
    with Forked(scene.job, "--go-on") as first:
        first.wait_told("committed")
        first.kill()
    scene.feed(MORE)
    with Copy(scene.job) as second:
        assert run_to_end(second) is None
    owners = {record["owner"]["deployment"] for record in scene.ledger()}
    assert owners == {(Path(scene.job.root) / "deployment").read_text().strip()}
    scene.check()


def test_a_replaced_disk_needs_force_and_an_explicit_deployment_needs_none(scenes):
    for deployment in ("", "orders-0"):
        scene = of_this_root(scenes)
        scene.job = replace(scene.job, deployment=deployment)
        with Forked(scene.job, "--go-on") as first:
            first.wait_told("committed")
            first.kill()
        scene.feed(MORE)
        shutil.rmtree(scene.job.root)
        with Copy(scene.job) as second, Copy(scene.job) as forced:
            error = run_to_end(second)
            if deployment:
                assert error is None
            else:
                assert isinstance(error, PromiseBrokenError)
                assert "was its disk replaced?" in error.hint
                second.lock.close()
                assert run_to_end(forced, take_over=True) is None
        scene.check()


@pytest.mark.parametrize("is_running", [True, False])
def test_a_record_of_an_older_release_is_ours_on_its_own_host_only(scenes, monkeypatch, is_running):
    """It names the state root as its deployment."""
    scene = of_this_root(scenes)

    def before(planned: Plan) -> dict[str, object]:
        owner = {**ownership.owner(planned), "deployment": planned.names.state_root}
        return {name: value for name, value in owner.items() if name != "root"}

    monkeypatch.setattr(acquire, "owner", before)
    with Copy(scene.job) as older:
        older.start()
        older.drain()
        monkeypatch.undo()
        if is_running:
            as_on_another_machine(scene.job)
            monkeypatch.setattr("socket.gethostname", lambda: "another")
            with Copy(scene.job) as newer:
                error = run_to_end(newer)
            assert error is not None
            assert error.code == "another_deployment"
            monkeypatch.undo()
            scene.feed(MORE)
            older.drain()
            older.stop()
    if not is_running:
        scene.feed(MORE)
        with Copy(scene.job) as newer:
            assert run_to_end(newer) is None, "an upgrade needs no force"
    scene.check()


@pytest.mark.parametrize("is_forced", [True, False])
def test_one_whose_own_files_do_not_fit_fences_nobody(scenes, is_forced):
    """With the name of the first, as a deployment that the profile names twice by mistake."""
    scene = scenes.new(RECORDS)
    with Copy(scene.job) as healthy:
        healthy.start()
        healthy.drain()
        planned = replace(scene.job.plan(), is_stateful=True)

        def examine(last: LedgerRecord | None) -> None:
            require_local(planned, LocalFiles(), None, last, accepts=False)

        deadline = Deadline.after_ms(scene.job.start_timeout_ms)
        with closing(scene.job.client()) as client:
            client.agree_on_profile(deadline)
            asked = partial(acquire.acquire, planned, client, CrashPlan(), deadline)
            with pytest.raises(PromiseBrokenError) as caught:
                asked(is_forced=is_forced, examine=examine)
        assert caught.value.code == "state_lost"
        scene.feed(MORE)
        healthy.drain()
        healthy.stop()
        assert not healthy.told.of(events.AttemptFailed)
    scene.check()
