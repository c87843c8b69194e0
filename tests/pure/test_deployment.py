"""The deployment's name: by the profile, or by the id that the first startup creates."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.doubles import plan
from support.errors import raises

from eos.errors import PromiseBrokenError, Recovery, UsageError
from eos.local.mounts import shared_type
from eos.startup import deployment
from eos.startup.deployment import with_deployment, with_known_deployment

CREATES = """
import sys
sys.path[:0] = [sys.argv[2]]
from support.doubles import plan
from eos.startup.deployment import with_deployment
sys.stdin.readline()
print(with_deployment(plan(deployment="", root=sys.argv[1])).deployment)
"""
TESTS = Path(__file__).parents[1]
MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/far\\040away rw - nfs4 server:/x rw
31 22 0:41 / /mnt/bucket rw - fuse.s3fs s3fs rw
32 22 0:42 / /mnt/far\\040away/disk rw - xfs /dev/sdb rw
33 22 0:43 / /data rw - fuse.encfs encfs rw
34 22 0:44 / /over rw - nfs server:/y rw
35 34 0:45 / /over rw - ext4 /dev/sdc rw
"""


def test_the_first_start_creates_an_id_and_every_later_one_finds_it(tmp_path):
    root = tmp_path / "state"
    planned = plan(deployment="", root=root)
    assert with_known_deployment(planned).deployment == ""
    assert not root.exists(), "a look created something"
    first = with_deployment(planned).deployment
    assert re.fullmatch("[0-9a-f]{32}", first)
    file = root / "deployment"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == f"{first}\n"
    assert with_deployment(planned).deployment == with_known_deployment(planned).deployment == first
    other = with_deployment(plan(deployment="", root=tmp_path / "other")).deployment
    assert other != first


def test_starts_at_the_same_time_get_one_id(tmp_path):
    command = [sys.executable, "-c", CREATES, str(tmp_path / "state"), str(TESTS)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racing = [subprocess.Popen(command, **pipes) for _ in range(4)]
    found = {process.communicate("go\n")[0] for process in racing}
    assert [process.returncode for process in racing] == [0] * 4
    assert found == {(tmp_path / "state" / "deployment").read_text()}
    assert [each.name for each in (tmp_path / "state").glob("*.new")] == []


def test_what_a_start_that_died_left_half_is_no_obstacle(tmp_path):
    (tmp_path / ".deployment.new").write_text("123")
    assert len(with_deployment(plan(deployment="", root=tmp_path)).deployment) == 32


@pytest.mark.parametrize("text", ["", "\0" * 33, "12ab\n", "g" * 32, "a" * 33, "\u00e4" * 500])
@pytest.mark.parametrize("ask", [with_known_deployment, with_deployment])
def test_a_damaged_id_is_not_replaced_by_another(tmp_path, text, ask):
    (tmp_path / "deployment").write_text(text)
    with pytest.raises(PromiseBrokenError) as caught:
        ask(plan(deployment="", root=tmp_path))
    told = caught.value
    assert (told.code, told.recovery) == ("deployment_damaged", Recovery.STOP)
    assert str(tmp_path / "deployment") in told.message
    for words in ("restore the file", "delete the file", "--take-over"):
        assert words in told.hint
    assert (tmp_path / "deployment").read_text() == text


def test_a_name_in_the_profile_is_trusted_and_needs_no_file(tmp_path):
    for root in (tmp_path, "s3a://bucket/eos"):
        planned = plan(deployment="orders-0", root=root)
        assert (
            with_deployment(planned).deployment
            == with_known_deployment(planned).deployment
            == "orders-0"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_can_not_be_locked_needs_a_name(tmp_path, monkeypatch):
    far = plan(deployment="", root="s3a://bucket/eos")
    assert with_known_deployment(far).deployment == ""
    with raises("deployment_required", UsageError) as caught:
        with_deployment(far)
    assert "the state root s3a://bucket/eos is not a folder on" in caught.value.message
    for words in ("`deployment: NAME`", "no other running instance", "StatefulSet"):
        assert words in caught.value.hint
    monkeypatch.setattr(deployment, "shared_type", lambda _folder: "nfs4")
    with raises("deployment_required", UsageError) as caught:
        with_deployment(plan(deployment="", root=tmp_path))
    assert "is on a shared file system (nfs4)" in caught.value.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_copied", [True, False])
def test_a_root_without_locks_needs_a_name_even_if_it_has_an_id(tmp_path, monkeypatch, is_copied):
    """Copied from a disk with locks. Two instances there would fence each other."""
    planned = plan(deployment="", root=tmp_path)
    if is_copied:
        with_deployment(planned)

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    with raises("deployment_required", UsageError) as caught:
        with_deployment(planned)
    assert f"the state root {tmp_path} has no file locks" in caught.value.message


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/eos", ""),
        ("/mnt/far away/eos", "nfs4"),
        ("/mnt/far away/disk/eos", ""),
        ("/mnt/far", ""),
        ("/mnt/bucket", "fuse.s3fs"),
        ("/data/mine", ""),
        ("/over/eos", ""),
    ],
)
def test_a_file_system_that_machines_share_is_known_by_its_type(tmp_path, folder, kind):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert shared_type(Path(folder), mounts) == kind
    assert shared_type(Path(folder), tmp_path / "absent") == ""
