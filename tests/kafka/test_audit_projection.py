"""The table beside a real ledger: exactly once, whoever dies, goes, or writes at the same time."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from pathlib import Path

import pytest
from support.copies import audit
from support.copies.audit import catch_up, check_table, projection, ran
from support.copies.pipeline_copy import Copy
from support.copies.recovery import soon
from support.doubles import At
from support.errors import raises

from eos.audit import rows
from eos.audit.follower import Follower
from eos.deadline import Backoff, Deadline
from eos.errors import AttemptFailedError, FencedError, PromiseBrokenError
from eos.kafka.api import TopicPartition
from eos.observe import events


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "transactions"


def test_the_table_has_each_record_of_the_ledger_once(scenes, client, location):
    scene = ran(scenes)
    first = catch_up(projection(scene, client, location))
    assert first.rows == len(audit.table_rows(location, scene.job.name)) > 4
    assert not check_table(scene, location)
    again = catch_up(projection(scene, client, location))
    assert (again.until, again.rows, again.lost) == (first.until, 0, range(0))


def test_a_table_that_another_process_brings_further_meanwhile_is_not_ahead_of_the_ledger(
    scenes, client, location
):
    scene = ran(scenes)
    slow, quick = (projection(scene, client, location) for _ in range(2))
    catch_up(slow)
    known = slow.table.known

    def overtaken(app: str) -> int:
        """More is committed, and the other one has it already."""
        scene.feed(20)
        with Copy(scene.job) as copy:
            copy.start()
            copy.drain()
            copy.stop()
        catch_up(quick)
        slow.table.known = known
        return known(app)

    slow.table.known = overtaken
    catch_up(slow)
    assert not check_table(scene, location)


def test_an_attempt_that_was_redone_has_its_row_and_so_has_one_that_was_killed(
    scenes, client, location
):
    scene = scenes.new(40)

    def fails() -> None:
        raise AttemptFailedError("example", "a task was lost")

    with Copy(scene.job, At("all_acked:after", fails)) as copy:
        copy.start()
        copy.step()

    def dies() -> None:
        raise KeyboardInterrupt

    with Copy(scene.job, At("offsets:after", dies)) as copy:
        copy.start()
        with pytest.raises(KeyboardInterrupt):
            copy.step()
    with Copy(scene.job) as copy:
        copy.start()
        copy.drain()
        copy.stop()
    catch_up(projection(scene, client, location))
    redone, killed = check_table(scene, location)
    assert (redone["kind"], redone["reason"]) == ("attempt", "a task was lost")
    assert (redone["batch_id"], redone["attempt"], redone["records_in"]) == (0, 1, 20)
    assert redone["sources"]
    assert redone["begun_at"] <= redone["ended_at"]
    assert killed["reason"].startswith("its process died or was replaced")
    found = audit.table_rows(location, scene.job.name)
    identities = [(row["producer_id"], row["epoch"], row["outcome"]) for row in found]
    for row in (redone, killed):
        assert (row["producer_id"], row["epoch"], "CompleteCommit") not in identities


def test_a_run_that_ends_without_a_record_leaves_its_attempts_at_its_end(scenes, client, location):
    scene = scenes.new(20)

    def fails() -> None:
        raise AttemptFailedError("example", "no room")

    with Copy(scene.job, At("all_acked:before", fails, until=3)) as copy:
        copy.start()
        follower = Follower(projection(scene, client, location), copy.told, 10, every_s=0.01)
        follower.start()
        with pytest.raises(AttemptFailedError):
            copy.drain()
        failed, last = copy.batches.failed.listed, copy.batches.ledger.peek(soon())
        follower.close(failed, last)
        Follower(projection(scene, client, location), copy.told, 10).close(failed, last)
    aborted = check_table(scene, location)
    assert [row["attempt"] for row in aborted] == [1, 2, 3]
    assert {row["reason"] for row in aborted} == {"no room"}

    later = {"producer_id": 5, "epoch": 6, "reason": "of another process, which ended at the same"}
    Follower(projection(scene, client, location), copy.told, 10).close([*failed, later], last)
    assert len(check_table(scene, location)) == 4
    Follower(projection(scene, client, location), copy.told, 10).close(failed, None)
    assert "3 aborted attempts" in copy.told.of(events.Warned)[-1].message


def test_who_dies_between_the_transaction_and_its_row_has_it_at_the_next_start(
    scenes, client, location
):
    scene = scenes.new(60)

    def dies() -> None:
        raise KeyboardInterrupt

    with Copy(scene.job, At("end_txn_answered:after", dies, nth=2)) as copy:
        copy.start()
        copy.step()
        with pytest.raises(KeyboardInterrupt):
            copy.step()
    assert not audit.table_rows(location, scene.job.name)
    with Copy(scene.job) as copy:
        copy.start()
        follower = Follower(projection(scene, client, location), copy.told, 99, every_s=0.01)
        follower.start()
        while copy.step():
            follower.committed()
        copy.stop()
        follower.close()
    assert not check_table(scene, location)
    found = audit.table_rows(location, scene.job.name)
    assert sorted({row["batch_id"] for row in found if row["kind"] == "attempt"}) == [0, 1, 2]


def test_an_attempt_that_was_fenced_has_its_row(scenes, client, location):
    scene = scenes.new(40)
    with Copy(scene.job) as other:

        def takes_over() -> None:
            other.start(take_over=True)

        with Copy(scene.job, At("all_acked:after", takes_over)) as copy:
            copy.start()
            with pytest.raises(FencedError):
                copy.step()
            (failed,) = copy.batches.failed.listed
            fenced = (failed["producer_id"], failed["epoch"])
            last = copy.batches.ledger.peek(soon())
            follower = Follower(projection(scene, client, location), copy.told, 10)
            follower.close(copy.batches.failed.listed, last)
        other.drain()
        other.stop()
    catch_up(projection(scene, client, location))
    (aborted,) = check_table(scene, location)  # told by the next owner's start, and not once more
    assert aborted["error"] == "fenced"
    assert (aborted["producer_id"], aborted["epoch"]) == fenced


@pytest.mark.long
@pytest.mark.parametrize(
    "point", [pytest.param("audit_append:before", marks=pytest.mark.long), "audit_append:after"]
)
def test_whoever_dies_at_a_commit_leaves_nothing_twice(scenes, client, location, point):
    scene = ran(scenes, 20)
    process = audit.spawn_projection(scene, location, point)
    assert process.wait(300) == -signal.SIGKILL
    process.stdout.close()
    catch_up(projection(scene, client, location))
    assert not check_table(scene, location)


@pytest.mark.nightly
def test_whoever_dies_anywhere_leaves_nothing_twice(scenes, client, location):
    """Killed while it appends, whatever it is at; and two of them at the same time."""
    scene = ran(scenes, 160)
    for count in (1, 2, 4):
        processes = [audit.spawn_projection(scene, location) for _ in range(2)]
        for _ in range(count):
            processes[0].stdout.readline()
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(300)
            process.stdout.close()
    both = [projection(scene, client, location) for _ in range(2)]
    threads = [threading.Thread(target=catch_up, args=(each,)) for each in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not check_table(scene, location)


def test_who_is_overtaken_by_one_who_wrote_less_writes_the_rest(scenes, client, location):
    scene = ran(scenes)
    slow, quick = projection(scene, client, location), projection(scene, client, location)

    def overtakes(point: str) -> None:
        if point == "audit_append:before":
            slow.reached = lambda _point: None
            ledger = scene.job.ledger
            ledger_id = client.topics([ledger], soon())[ledger].topic_id
            app = f"{scene.job.name}/{ledger_id}"
            first = quick._read_chunk(0, 1, soon()).records
            assert quick.table.known(app) == -1
            found = rows.rows(scene.job.name, ledger, ledger_id, first)
            quick.table.append(rows.table(found), app, first[-1].offset)

    slow.reached = overtakes
    catch_up(slow)
    assert not check_table(scene, location)


def test_a_table_that_was_deleted_is_filled_from_what_the_ledger_has(scenes, client, location):
    scene = ran(scenes)
    made = projection(scene, client, location)
    catch_up(made)
    shutil.rmtree(location)
    assert catch_up(made).lost == range(0)
    assert not check_table(scene, location)
    shutil.rmtree(location)
    third = scene.ledger_with_offsets()[2][0]
    client.delete_records({TopicPartition(scene.job.ledger, 0): third}, soon())
    assert catch_up(made).lost == range(third)
    assert not check_table(scene, location), "as far as the ledger reaches"


def test_a_ledger_that_lost_its_end_is_no_ledger_that_has_nothing_new(scenes, client, location):
    scene = ran(scenes, 20)
    made = projection(scene, client, location)
    catch_up(made)
    found = audit.table_rows(location, scene.job.name)
    app = f"{scene.job.name}/{found[0]['ledger_id']}"
    made.table.known(app)
    made.table.append(rows.table([]), app, 10_000)
    with raises("ledger_behind_audit_table", PromiseBrokenError):
        made.catch_up(soon())


def test_a_pipeline_goes_on_without_its_table_for_so_many_attempts(scenes, client, location):
    """The table is away: its folder is a file. Then it is back, and has all."""
    scene = scenes.new(120)
    location.parent.mkdir(parents=True)
    location.write_text("")
    with Copy(scene.job) as copy:
        copy.start()
        follower = Follower(projection(scene, client, location), copy.told, 3, every_s=0.01)
        follower.start()
        for _ in range(3):
            follower.require()
            copy.step()
            follower.committed()
        with raises("audit_table_lag", PromiseBrokenError) as stop:
            follower.require()
        assert "lacks 3 attempts, the limit is 3" in stop.value.message
        assert "nothing is lost" in stop.value.hint
        assert "can't be read or written" in stop.value.message
        location.unlink()
        until(follower.require)
        copy.drain()
        copy.stop()
        follower.close()
    assert not check_table(scene, location)
    told = [event.message for event in copy.told.of(events.Warned)]
    # How many it lacked at its first try is the thread's and the machine's affair.
    assert [re.sub(r"lacks \d attempts?", "lacks some", words.split(":")[0]) for words in told] == [
        "the audit table lacks some; the pipeline continues, and stops at 3",
        "the audit table can be written again, and is complete",
    ]


def until(asks) -> None:
    deadline, backoff = Deadline.after_ms(120_000), Backoff()
    while not deadline.has_passed:
        try:
            return asks()
        except PromiseBrokenError:
            backoff.sleep(deadline)
    return asks()


def test_the_ledger_keeps_what_the_table_lacks(scenes):
    scene = ran(scenes, 160)
    with Copy(scene.job) as copy:
        copy.start()
        ledger = copy.batches.ledger
        fourth = scene.ledger_with_offsets()[4][0]
        assert ledger.trim(1, soon(), fourth)
        assert scene.ledger_with_offsets()[0][0] == fourth
        assert ledger.trim(1, soon())
        assert scene.ledger_with_offsets()[0][0] > fourth
