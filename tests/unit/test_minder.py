"""When a broker's minder stops it, and what does not keep it from starting."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from eos.launch import minder
from eos.launch.embedded import status_of
from eos.launch.locks import FileLock


class JustKept(type(Path())):  # type: ignore[misc]
    """A `keep` that its user writes, letting go, right after the first look at it."""

    def exists(self, **options: bool) -> bool:
        found = super().exists(**options)
        self.touch()
        return found


def forgotten(users: Path, keep: Path) -> bool:
    descriptor = os.open(users, os.O_RDWR | os.O_CREAT)
    try:
        found = minder._is_forgotten(descriptor, keep)
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


def code_of_a_minder(node: Path) -> int:
    command = [sys.executable, "-I", "-S", minder.__file__, str(node), "--", "false"]
    return subprocess.run(command, check=False, timeout=60).returncode


def test_looking_at_a_node_does_not_keep_its_minder_from_starting(tmp_path: Path) -> None:
    """`eos broker status` holds the node's lock for a moment, and the minder wants all of it."""
    (tmp_path / "cluster.json").write_text(json.dumps({"id": "x", "ports": [[1, 2]]}))
    node = tmp_path / "node-1"
    node.mkdir()
    (tmp_path / "keep").touch()
    looked, enough = threading.Event(), threading.Event()

    def look() -> None:
        while not enough.is_set():
            status_of(tmp_path)
            looked.set()

    looking = [threading.Thread(target=look) for _ in range(4)]
    for one in looking:
        one.start()
    try:
        assert looked.wait(30)
        codes = [code_of_a_minder(node) for _ in range(5)]
    finally:
        enough.set()
        for one in looking:
            one.join()
    assert codes == [1] * 5


def test_a_second_minder_gives_up(tmp_path: Path) -> None:
    node = tmp_path / "node-1"
    node.mkdir()
    first = FileLock(node / "lock")
    assert first.try_exclusive()
    assert code_of_a_minder(node) == minder.EXIT_HELD
    first.close()
