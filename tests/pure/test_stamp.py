"""The counter file of an upstream: where a start goes on, and when it begins anew."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from eos.stamp import Stamp, StampError


def numbers(stamp, partition, count):
    found = [dict(stamp.headers(partition)) for _ in range(count)]
    assert {each["eos.producer"] for each in found} == {stamp.producer.encode()}
    return [(int(each["eos.epoch"]), int(each["eos.sequence"])) for each in found]


def died(stamp):
    """What the kernel does for a process that is killed."""
    os.close(stamp._lock)


def test_no_other_user_can_hold_the_lock(tmp_path):
    lock = tmp_path / "stamp.lock"
    lock.touch()
    lock.chmod(0o644)  # as an older release left it
    Stamp(tmp_path / "stamp", "a").close()
    assert lock.stat().st_mode & 0o777 == 0o600


def test_each_partition_counts_from_0(tmp_path):
    with Stamp(tmp_path / "deep" / "stamp", "a") as stamp:
        assert numbers(stamp, 0, 2) + numbers(stamp, 3, 1) == [(0, 0), (0, 1), (0, 0)]
        assert numbers(stamp, 0, 1) == [(0, 2)]


def test_a_clean_end_goes_on_and_any_other_begins_an_epoch(tmp_path):
    path = tmp_path / "stamp"
    with Stamp(path, "a") as stamp:
        numbers(stamp, 0, 3)
        stamp.acknowledged()
    with Stamp(path, "a") as stamp:
        assert numbers(stamp, 0, 1) == [(0, 3)]  # not acknowledged
    with Stamp(path, "a") as stamp:
        assert numbers(stamp, 0, 1) == [(1, 0)]
        stamp.acknowledged()
        died(stamp)
        stamp._lock = -1
    with Stamp(path, "a") as stamp:
        assert numbers(stamp, 0, 1) == [(2, 0)]


def test_who_resumes_goes_on_where_the_acknowledged_ones_end(tmp_path):
    path = tmp_path / "stamp"
    stamp = Stamp(path, "a", resumes=True)
    numbers(stamp, 0, 10)
    numbers(stamp, 1, 2)
    stamp.acknowledged(0, through=6)
    died(stamp)
    stamp = Stamp(path, "a", resumes=True)
    assert (stamp.next_of(0), stamp.next_of(1)) == (7, 0)
    assert numbers(stamp, 0, 1) == [(0, 7)]
    died(stamp)
    assert Stamp(path, "a", resumes=True, epoch=5).epoch == 5


def test_it_is_on_the_disk_before_anything_is_stamped(tmp_path):
    """Killed at once: the next one must not send these numbers for other records."""
    path = tmp_path / "stamp"
    code = (
        "import os, sys; from eos.stamp import Stamp; s = Stamp(sys.argv[1], 'a'); s.headers(0); "
    )
    done = subprocess.run(
        [sys.executable, "-c", code + "os.kill(os.getpid(), 9)", str(path)], check=False
    )
    assert done.returncode == -signal.SIGKILL
    with Stamp(path, "a") as stamp:
        assert numbers(stamp, 0, 1) == [(1, 0)]


def test_what_is_refused(tmp_path):
    path = tmp_path / "stamp"
    with Stamp(path, "a") as stamp:
        with pytest.raises(StampError, match="another process uses"):
            Stamp(path, "a")
        stamp.headers(0)
        with pytest.raises(ValueError, match="was not stamped yet"):
            stamp.acknowledged(0, through=1)
    with pytest.raises(ValueError, match="is closed"):
        stamp.acknowledged()
    with pytest.raises(StampError, match="the file of producer 'a'"):
        Stamp(path, "b")
    with pytest.raises(ValueError, match="expected a name"):
        Stamp(path, "")
    for body in ("", "[]", json.dumps({"format": 2})):
        path.write_text(body)
        with pytest.raises(StampError, match="move it away"):
            Stamp(path, "a")
