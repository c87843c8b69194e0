"""Who may run a pipeline: the lock of a machine, and the look at the ledger's last record."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.doubles import plan
from support.errors import raises

import eos
from eos.errors import PromiseBrokenError, Recovery, UnavailableError
from eos.kafka.api import Identity
from eos.ledger.record import LedgerRecord, Position
from eos.local import file_locks as locks
from eos.local.file_locks import FileLock, is_held
from eos.plan.names import Names
from eos.startup.lock_holder import LockHolder
from eos.startup.ownership import RunLock, is_ours, owner, require_free

# Holds the lock of a plan until it dies.
HOLDER = """
import sys, time
from pathlib import Path
from eos.local.file_locks import FileLock
lock = FileLock(Path(sys.argv[1]))
assert lock.try_exclusive()
Path(sys.argv[1]).write_text("4711\\n")
print("held", flush=True)
time.sleep(900)
"""


def written_by(deployment: str, kind: str = "attempt") -> LedgerRecord:
    by = {"deployment": deployment, "host": "mars", "process": 7, "version": "1"}
    return LedgerRecord(kind, Position({}, {}), by, at_ms=0, offset=0, identity=Identity(1, 0))


# --- the lock -----------------------------------------------------------------------------------


def test_a_second_run_of_the_machine_is_told_who_runs_and_what_to_do(tmp_path):
    planned = plan(tmp_path / "locks" / "eos.orders")
    first, second = RunLock(planned), RunLock(planned)
    first.acquire(is_forced=False)
    with pytest.raises(UnavailableError) as caught:
        second.acquire(is_forced=False)
    told = caught.value
    assert told.message.startswith(f"orders already runs on this machine as process {os.getpid()};")
    assert "--take-over" in told.hint
    assert (told.code, told.recovery) == ("already_running", Recovery.RESTART)
    assert told.fields["path"] == planned.names.lock
    first.close()
    second.acquire(is_forced=False)
    second.close()


def test_a_look_at_the_lock_fails_no_startup(tmp_path, monkeypatch):
    """`eos status` and `eos recover` share the lock for a moment."""
    path = tmp_path / "lock"
    look = FileLock(path)
    assert look.try_shared()
    monkeypatch.setattr(locks, "time", SimpleNamespace(sleep=lambda _s: look.close()))
    lock = RunLock(plan(path))
    assert lock.try_acquire()
    assert is_held(path)
    lock.close()


def test_taken_twice_by_the_same_run_it_is_still_held(tmp_path):
    planned = plan(tmp_path / "lock")
    first, second = RunLock(planned), RunLock(planned)
    first.acquire(is_forced=False)
    first.acquire(is_forced=False)
    assert first.try_acquire()
    assert not second.try_acquire()
    first.close()
    second.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_death_of_its_holder_frees_it(tmp_path, number):
    path = tmp_path / "lock"
    lock = RunLock(plan(path))
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with raises("already_running") as caught:
            lock.acquire(is_forced=False)
        assert "as process 4711;" in caught.value.message
        holder.send_signal(number)
        holder.wait()
    lock.acquire(is_forced=False)
    assert LockHolder.read(path).process == os.getpid()
    lock.close()


def test_by_force_it_runs_without_the_lock_and_takes_it_when_the_holder_ends(tmp_path):
    planned = plan(tmp_path / "lock")
    older, newer, third = RunLock(planned), RunLock(planned), RunLock(planned)
    older.acquire(is_forced=False)
    newer.acquire(is_forced=True)
    assert not newer.try_acquire()
    older.close()
    assert newer.try_acquire()
    with pytest.raises(UnavailableError):
        third.acquire(is_forced=False)
    newer.close()
    third.close()


def test_a_holder_that_did_not_write_yet_who_it_is_is_no_riddle(tmp_path):
    planned = plan(tmp_path / "lock")
    first, second = RunLock(planned), RunLock(planned)
    first.acquire(is_forced=False)
    Path(planned.names.lock).write_text("")
    with raises("already_running") as caught:
        second.acquire(is_forced=False)
    assert "process" not in caught.value.message
    first.close()
    second.close()


def test_a_state_root_that_is_no_folder_of_this_machine_has_no_lock(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = RunLock(plan()), RunLock(plan())
    first.acquire(is_forced=False)
    second.acquire(is_forced=False)
    assert second.try_acquire()
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_pipelines_of_one_state_root_have_locks_of_their_own(tmp_path):
    names = [Names.of("eos", name, str(tmp_path)) for name in ("orders", "payments")]
    locks = [RunLock(plan(each.lock)) for each in names]
    for lock in locks:
        lock.acquire(is_forced=False)
    for lock in locks:
        lock.close()
    assert Names.of("eos", "orders", "s3a://bucket/state").lock == ""


# --- the look -----------------------------------------------------------------------------------


def test_an_owner_says_where_it_runs():
    found = owner(plan(deployment="prod"))
    assert (found["deployment"], found["process"]) == ("prod", os.getpid())
    assert (bool(found["host"]), found["version"]) == (True, eos.__version__)


@pytest.mark.parametrize("kind", ["start", "attempt", "refresh"])
def test_another_deployment_that_may_be_alive_is_left_alone(kind):
    with pytest.raises(PromiseBrokenError) as caught:
        require_free(plan(), written_by("there", kind), is_forced=False)
    told = caught.value
    for words in ("orders", "'there'", "host mars", "process 7", "'here'"):
        assert words in told.message
    assert "--take-over" in told.hint
    assert (told.code, told.recovery) == ("another_deployment", Recovery.STOP)
    require_free(plan(), written_by("there", kind), is_forced=True)
    require_free(plan(), written_by("here", kind), is_forced=False)
    assert not is_ours(plan(), written_by("there"))


def test_a_new_pipeline_a_clean_end_and_a_recovery_are_free_for_anybody():
    require_free(plan(), None, is_forced=False)
    require_free(plan(), written_by("there", "stop"), is_forced=False)
    require_free(plan(), written_by("there", "recovery"), is_forced=False)


# --- the deployment -------------------------------------------------------------------------------

ROOT = "/srv/eos"


def of(deployment: str, host: str = "", **more: str) -> LedgerRecord:
    by = {"deployment": deployment, "host": host or socket.gethostname(), "process": 7, **more}
    return LedgerRecord("attempt", Position({}, {}), by, at_ms=0, offset=0, identity=Identity(1, 0))


def test_a_record_names_the_deployment_and_where_its_state_root_is():
    found = owner(plan(deployment="a1", root=ROOT))
    assert (found["deployment"], found["root"]) == ("a1", ROOT)


@pytest.mark.parametrize("deployment", ["a1", "orders-0", ""])
def test_a_record_of_an_older_release_is_ours_on_its_host_and_at_its_path_only(deployment):
    """It names the state root. An image has the same one on every machine."""
    ours = plan(deployment=deployment, root=ROOT)
    assert is_ours(ours, of(ROOT))
    require_free(ours, of(ROOT), is_forced=False)
    assert not is_ours(ours, of(ROOT, host="another"))
    assert not is_ours(ours, of("/srv/other"))
    assert not is_ours(ours, of(ROOT, root=ROOT)), "a name that looks like a path"


def test_an_older_release_with_a_name_in_the_profile_is_trusted_on_every_host():
    assert is_ours(plan(deployment="orders-0", root=ROOT), of("orders-0", host="another"))


def test_without_an_id_nothing_is_ours():
    assert not is_ours(plan(deployment="", root=ROOT), of("", root=ROOT))
    assert not is_ours(plan(deployment=""), of("a1", root=ROOT))


def test_the_same_root_with_another_id_is_explained_with_both_remedies():
    theirs = of("a1", host="mars", root=ROOT)
    with pytest.raises(PromiseBrokenError) as caught:
        require_free(plan(deployment="b2", root=ROOT), theirs, is_forced=False)
    told = caught.value
    assert "deployment 'a1' (state root /srv/eos, host mars, process 7)" in told.message
    assert "this is 'b2' (state root /srv/eos)." in told.message
    for words in ("was its disk replaced?", "--take-over", "`deployment:` in the profile"):
        assert words in told.hint
