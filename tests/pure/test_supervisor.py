"""When a broker's minder stops it, and what does not keep it from starting."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from support.spark.processes import state

from eos.local import supervisor
from eos.local.file_locks import FileLock


class JustKept(type(Path())):  # type: ignore[misc]
    """A `keep` that its user writes, letting go, right after the first look at it."""

    def exists(self, **options: bool) -> bool:
        found = super().exists(**options)
        self.touch()
        return found


def forgotten(users: Path, keep: Path) -> bool:
    descriptor = os.open(users, os.O_RDWR | os.O_CREAT)
    try:
        found = supervisor._is_forgotten(descriptor, keep)
        held = FileLock(users)
        try:
            assert held.try_shared() is not found, "the lock stays with a minder that stops"
        finally:
            held.close()
    finally:
        os.close(descriptor)
    return found


def test_a_broker_without_users_is_forgotten_unless_it_is_kept(tmp_path: Path) -> None:
    users, keep = tmp_path / "users", tmp_path / "keep"
    user = FileLock(users)
    assert user.try_shared()
    assert not forgotten(users, keep)
    user.close()
    assert forgotten(users, keep)
    keep.touch()
    assert not forgotten(users, keep)


def test_a_broker_that_is_told_to_stay_at_the_last_moment_stays(tmp_path: Path) -> None:
    assert not forgotten(tmp_path / "users", JustKept(tmp_path / "keep"))


def started_minder(node: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", supervisor.__file__, str(node), "--", "false"]
    return subprocess.Popen(command)


def has_open(pid: int, path: Path) -> bool:
    try:
        return path in [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
    except FileNotFoundError:  # a file or the process went while we looked
        return False


def test_looking_at_a_node_does_not_keep_its_minder_from_starting(tmp_path: Path) -> None:
    """`eos broker status` holds the node's lock for a moment, and the minder wants all of it."""
    node = tmp_path / "node-1"
    node.mkdir()
    (tmp_path / "keep").touch()
    look = FileLock(node / "lock")
    assert look.try_shared()
    with started_minder(node) as one:
        # It waits, with the lock's file open: it was refused, and did not give up.
        while one.poll() is None and not (has_open(one.pid, look.path) and state(one.pid) == "S"):
            time.sleep(0.001)
        look.close()
        assert one.wait(300) == 1, "the code of its broker, which is `false`"


def test_a_second_minder_gives_up(tmp_path: Path) -> None:
    node = tmp_path / "node-1"
    node.mkdir()
    first = FileLock(node / "lock")
    assert first.try_exclusive()
    with started_minder(node) as one:
        assert one.wait(300) == supervisor.EXIT_HELD
    first.close()
