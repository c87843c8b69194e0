"""`eos stop`: the marker that ends one run, the lock file that names it, and the verb's answers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support import doubles
from support.docs import blocks, require_shown
from support.errors import raises
from support.waiting import wait_until

from eos.errors import UsageError
from eos.folder import LocalFolder
from eos.local.file_locks import is_held
from eos.plan.names import Names
from eos.plan.plan import Plan
from eos.run import host
from eos.run.shutdown import Stopping
from eos.startup import stop_marker
from eos.startup.lock_holder import LockHolder
from eos.startup.ownership import RunLock

CHECKOUT = Path(__file__).parents[2]
A, B = "a" * 32, "b" * 32
PIPELINE = """
version: 1
name: orders
source: {kafka: {topic: orders}}
sink: {kafka: {topic: orders.out}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "pipelines" / "orders"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "conf").mkdir()
    profile = f"kafka: {{bootstrap: '127.0.0.1:9'}}\nstate: {{root: {tmp_path / 'state'}}}\n"
    (tmp_path / "conf" / "local.yaml").write_text(profile)
    return tmp_path


@pytest.fixture
def planned(project: Path) -> Plan:
    names = Names.of("eos", "orders", str(project / "state"))
    return replace(doubles.plan(), names=names)


def stop(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "eos", "stop", "orders", *words]
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    return subprocess.run(
        command, cwd=project, env=env, capture_output=True, text=True, check=False
    )


@contextmanager
def releasing(planned: Plan, run_id: str) -> Iterator[None]:
    """Hold the lock as a run with this id, until its marker is there."""
    lock, folder = RunLock(planned, run_id), LocalFolder(Path(planned.names.stops))
    lock.acquire(is_forced=False)
    is_over = threading.Event()

    def end() -> None:
        wait_until(lambda: is_over.is_set() or stop_marker.read(folder, run_id) is not None)
        lock.close()

    thread = threading.Thread(target=end)
    thread.start()
    yield
    is_over.set()
    thread.join()


# --- the marker and the lock file -----------------------------------------------------------------


def test_a_marker_is_for_one_run(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "stops")
    stop_marker.write(folder, A)
    assert stop_marker.read(folder, B) is None
    by = stop_marker.read(folder, A)
    assert by is not None
    assert socket.gethostname() in by
    stop_marker.clear(folder.path)
    assert stop_marker.read(folder, A) is None


@pytest.mark.parametrize("run_id", ["", "../lock", "A" * 32, A + "\n", A[:-1]])
def test_a_run_id_of_another_form_is_no_path(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(ValueError, match="is not the id of a run"):
        stop_marker.write(LocalFolder(tmp_path / "stops"), run_id)
    assert not list(tmp_path.iterdir())


def test_a_marker_that_this_user_cannot_write_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(stop_marker.private_files, "opener", denied)
    with raises("stop_marker_denied", UsageError) as caught:
        stop_marker.write(LocalFolder(tmp_path / "stops"), A)
    assert A in caught.value.message


def test_a_run_removes_the_markers_of_others_before_it_writes_its_id(planned: Plan) -> None:
    folder = LocalFolder(Path(planned.names.stops))
    stop_marker.write(folder, A)
    stop_marker.write(folder, B)
    with closing(RunLock(planned, B)) as lock:
        lock.acquire(is_forced=False)
        assert not folder.files()
        held = LockHolder.read(Path(planned.names.lock))
        assert held == LockHolder(os.getpid(), socket.gethostname(), B)


@pytest.mark.parametrize(
    ("text", "holder"),
    [
        ("", LockHolder()),
        ("4711\n", LockHolder(4711)),
        ("4711\nmars\n", LockHolder(4711, "mars")),
        (f"4711\nmars\n{A}\n", LockHolder(4711, "mars", A)),
        ("\x00\xff", LockHolder()),
        ("9" * 5_000, LockHolder()),
    ],
)
def test_a_lock_file_of_any_content_is_read(tmp_path: Path, text: str, holder: LockHolder) -> None:
    lock = tmp_path / "lock"
    lock.write_text(text, encoding="latin-1")
    assert LockHolder.read(lock) == holder


def test_a_run_that_finds_its_marker_is_asked_to_stop(
    planned: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_TICK_S", 0.01)
    stopping = Stopping(lambda: None)
    with host.locked(planned, stopping, is_forced=False):
        stop_marker.write(LocalFolder(Path(planned.names.stops)), A)  # another run's
        run_id = LockHolder.read(Path(planned.names.lock)).run_id
        assert len(run_id) == len(A)
        assert not stopping.is_requested
        stop_marker.write(LocalFolder(Path(planned.names.stops)), run_id)
        wait_until(lambda: stopping.is_requested)
        assert stopping.reason.startswith("asked to stop by ")
    assert not is_held(Path(planned.names.lock))


class InBucket(LocalFolder):
    local = None


def test_a_run_looks_for_its_own_marker_in_a_bucket(
    planned: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder stands for the bucket; `pipeline/test_state_in_bucket.py` has a real one."""
    folder = InBucket(tmp_path)
    monkeypatch.setattr(host, "_BUCKET_TICK_S", 0.01)
    monkeypatch.setattr(stop_marker, "markers", lambda _names, _conf: folder)
    remote = replace(planned, names=Names.of("eos", "orders", "s3a://bucket/eos"))
    stopping = Stopping(lambda: None)
    with host.locked(remote, stopping, is_forced=False) as lock:
        assert stop_marker.is_run(lock.run_id)
        stop_marker.write(folder, A)  # another run's
        assert not stopping.is_requested
        stop_marker.write(folder, lock.run_id)
        wait_until(lambda: stopping.is_requested)
    assert f" on host {socket.gethostname()}" in stopping.reason
    wait_until(lambda: list(folder.files()) == [A])


def test_a_login_that_only_spark_has_ends_no_run(planned: Plan) -> None:
    """Its bucket may have the checkpoints alone."""
    names = Names.of("eos", "orders", "s3a://bucket/eos")
    conf = {"spark.hadoop.fs.s3a.aws.credentials.provider": "com.example.Own"}
    remote = replace(planned, names=names, spark_conf=conf)
    with pytest.raises(UsageError):
        stop_marker.markers(names, conf)
    with host.locked(remote, Stopping(lambda: None), is_forced=False) as lock:
        assert stop_marker.is_run(lock.run_id)


def test_a_ledger_record_names_no_run_by_a_path() -> None:
    assert not any(map(stop_marker.is_run, ("", "../x", A + "\n", A[:-1], 7, None)))


# --- the verb -------------------------------------------------------------------------------------


def test_it_waits_for_the_runs_end(project: Path, planned: Plan) -> None:
    with releasing(planned, A):
        done = stop(project)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.replace(f"process {os.getpid()}", "process 4711")
    require_shown(dict(blocks(""))["running.md-4"], shown.splitlines())


def test_without_a_run_there_is_nothing_to_stop(project: Path, planned: Plan) -> None:
    done = stop(project, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    told = json.loads(done.stdout)
    assert (told["outcome"], told["process"]) == ("not_running", None)
    assert not Path(planned.names.stops).exists()


def test_a_run_that_does_not_end_in_time_stays_asked(project: Path, planned: Plan) -> None:
    with closing(RunLock(planned, A)) as lock:
        lock.acquire(is_forced=False)
        done = stop(project, "--wait", "1")
    assert (done.returncode, "[stop_timeout]" in done.stderr) == (5, True)
    assert stop_marker.read(LocalFolder(Path(planned.names.stops)), A) is not None


def test_a_recovery_is_not_ended(project: Path, planned: Plan) -> None:
    with closing(RunLock(planned)) as lock:
        lock.acquire(is_forced=False)
        done = stop(project)
    assert (done.returncode, "[lock_held_without_run]" in done.stderr) == (5, True)
    assert f"process {os.getpid()}" in done.stderr


def test_the_next_run_is_named_and_not_stopped(project: Path, planned: Plan) -> None:
    """A supervisor starts the pipeline again before `eos stop` has seen it ended."""
    with closing(RunLock(planned, A)) as lock:
        lock.acquire(is_forced=False)
        lock_file = Path(planned.names.lock)

        def next_run() -> None:
            folder = LocalFolder(Path(planned.names.stops))
            wait_until(lambda: stop_marker.read(folder, A) is not None, wait_s=60)
            LockHolder(os.getpid(), "", B).write(lock_file)

        thread = threading.Thread(target=next_run)
        thread.start()
        done = stop(project)
        thread.join()
    assert (done.returncode, "[restarted_meanwhile]" in done.stderr) == (5, True)
    assert stop_marker.read(LocalFolder(Path(planned.names.stops)), B) is None
