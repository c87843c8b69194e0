"""The modes of what the project creates for itself: for its user alone, or for a group."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.errors import raises

from eos import private_files
from eos.errors import UsageError
from eos.launch import scratch as scratch_module
from eos.launch.scratch import fits_sockets, scratch
from eos.local.file_locks import FileLock

NOBODY = 65534
GROUP = str(os.getgid())  # a number will do, and this user is a member


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_folders_and_files_are_private_whatever_the_umask_is(tmp_path: Path) -> None:
    root = tmp_path / "state"
    private_files.prepare_root(root, None)
    private_files.create_folder(root / "dedup" / "one")
    lock = FileLock(root / "locks" / "eos.orders")
    with open(
        private_files.own(root / "logs" / "orders") / "jvm.log", "wb", opener=private_files.opener
    ):
        pass
    lock.close()
    made = [root, *root.rglob("*")]
    assert {mode(each) for each in made if each.is_dir()} == {0o700}
    assert {mode(each) for each in made if each.is_file()} == {0o600}


@pytest.mark.usefixtures("umask")
def test_what_is_in_a_shared_root_is_for_its_group(tmp_path: Path) -> None:
    root = tmp_path / "state"
    private_files.prepare_root(root, GROUP)
    private_files.create_folder(root / "dedup" / "one")
    lock = FileLock(root / "locks" / "eos.orders")
    lock.close()
    made = [root, *root.rglob("*")]
    assert {mode(each) for each in made if each.is_dir()} == {0o2770}
    assert mode(lock.path) == 0o660
    assert {each.stat().st_gid for each in made} == {os.getgid()}
    assert (private_files.umask_in(root / "dedup"), private_files.umask_in(tmp_path)) == (
        0o007,
        0o077,
    )


def test_folders_and_locks_of_an_older_release_lose_the_rights_of_others(tmp_path: Path) -> None:
    """The root may be any folder of the user's, so its mode and that of other folders stay."""
    for name in ("logs/orders", "broker", "mine"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "eos.orders").touch()
    for each in [tmp_path, *tmp_path.rglob("*")]:
        each.chmod(0o777 if each.is_dir() else 0o666)
    private_files.prepare_root(tmp_path, None)
    assert {each.name for each in tmp_path.iterdir() if mode(each) == 0o777} == {"mine"}
    assert mode(tmp_path) == 0o777
    assert mode(tmp_path / "checkpoints") == 0o700  # Spark would create it with the umask's mode
    FileLock(tmp_path / "locks" / "eos.orders").close()
    assert mode(tmp_path / "locks" / "eos.orders") == 0o600


def test_a_group_is_taken_away_with_the_mode_of_its_root(tmp_path: Path) -> None:
    root = tmp_path / "state"
    private_files.prepare_root(root, GROUP)
    private_files.own(root / "logs")
    root.chmod(0o700)
    (root / "logs").chmod(0o775)
    private_files.prepare_root(root, None)
    assert mode(root / "logs") == 0o700


def test_a_group_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with raises("state_group_unknown") as refused:
        private_files.prepare_root(tmp_path / "state", "no-such-group")
    assert "`no-such-group`" in refused.value.message
    assert "state: {group: NAME}" in (refused.value.hint or "")


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def can_hold(lock: Path) -> bool:
    """Another user who can read the file: `flock` asks for no right to write. Only root can become
    that user; otherwise the mode tells."""
    if os.geteuid():
        return bool(mode(lock) & 0o077)
    os.seteuid(NOBODY)
    try:
        fcntl.flock(os.open(lock, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except PermissionError:
        return False
    finally:
        os.seteuid(0)
    return True


def test_nobody_else_can_hold_a_lock_and_block_every_start(public: Path) -> None:
    for name in ("new", "old"):
        (public / "old").touch()
        (public / "old").chmod(0o644)
        FileLock(public / name).close()
        assert not can_hold(public / name)


def test_a_lock_of_another_user_is_a_usage_error(public: Path) -> None:
    lock = public / "lock"
    FileLock(lock).close()
    is_root = not os.geteuid()
    if is_root:
        os.seteuid(NOBODY)
    else:
        lock.chmod(0)
    try:
        with raises("lock_file_denied", UsageError) as caught:
            FileLock(lock)
        assert f"`{lock}`: Permission denied" in caught.value.message
    finally:
        if is_root:
            os.seteuid(0)


def test_the_bootstraps_lock_is_private_and_so_is_its_folder(tmp_path: Path) -> None:
    script = Path(private_files.__file__).parent / "launch" / "bootstrap.py"
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "eos-test.stamp").write_text("there")
    words = [sys.executable, str(script), str(tmp_path), "test", "there"]
    subprocess.run(words, check=True, umask=0)
    found = tmp_path / ".eos"
    assert (mode(found), mode(found / "venv.lock")) == (0o700, 0o600)


def test_a_run_has_private_folders_for_sockets_and_in_each_that_the_user_named(
    tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert umask is not None
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    named = [tmp_path / "a", tmp_path / "b"]
    for each in named:
        each.mkdir()
    with scratch(f"{named[0]},{named[1]},/no/such/folder") as run:
        *inside, missing = run.local_dirs.split(",")
        assert [Path(each).parent for each in inside] == named
        assert missing == "/no/such/folder"  # Spark reports it
        assert {mode(Path(each)) for each in (run.folder, *inside)} == {0o700}
        assert fits_sockets(run.folder)
        given = run.environment({"SPARK_SUBMIT_OPTS": "-Dx=y"})
        assert given["SPARK_LOCAL_DIRS"] == run.local_dirs
        assert given["SPARK_SUBMIT_OPTS"] == f"-Djava.io.tmpdir={run.folder} -Dx=y"
        for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):  # where the user chose one
            assert "SPARK_SUBMIT_OPTS" not in run.environment({name: "-Djava.io.tmpdir=/mine"})
    assert not any(each.exists() for each in (run.folder, *map(Path, inside)))
    with scratch(None) as run:
        assert run.local_dirs == ""


def test_java_gets_a_folder_with_a_space_in_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my tmp").mkdir()
    monkeypatch.setattr(scratch_module, "_base", lambda: str(tmp_path / "my tmp"))
    with scratch() as run:
        options = run.environment({})["SPARK_SUBMIT_OPTS"]
        assert options == f'"-Djava.io.tmpdir={run.folder}"'


@pytest.mark.parametrize("name", ["Capitals", "long" * 20])
def test_sockets_are_where_pyspark_and_the_kernel_find_them(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    assert not fits_sockets(tmp_path / name)
    with scratch() as run:
        assert run.folder.parent == Path("/tmp")
