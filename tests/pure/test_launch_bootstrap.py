"""The bootstrap: what costs nothing, what is taken up again, what is said."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from eos.launch import bootstrap

SCRIPT = Path(bootstrap.__file__).with_name("bootstrap.sh")


def shell(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f". '{SCRIPT}'; {text}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "eos" / "launch").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    for lock in (bootstrap.BUILD_LOCK, *bootstrap.LOCKS.values()):
        (tmp_path / lock).write_text("")
    # Stands in for the installation: says that it was asked.
    (tmp_path / "eos" / "launch" / "bootstrap.py").write_text(
        "import sys, pathlib\n"
        "root = pathlib.Path(sys.argv[1]) / '.venv'\n"
        "root.mkdir(exist_ok=True)\n"
        "(root / f'eos-{sys.argv[2]}.stamp').write_text(sys.argv[3])\n"
        "print('installs')\n"
    )
    return tmp_path


def test_it_installs_once_for_each_version_of_pyproject_and_locks(checkout: Path) -> None:
    call, other = (f"eos_bootstrap '{checkout}' {extra}" for extra in ("test", "testing"))
    assert shell(call).stdout == "installs\n"
    assert shell(call).stdout == ""
    (checkout / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert shell(call).stdout == "installs\n"
    for lock in (bootstrap.BUILD_LOCK, *bootstrap.LOCKS.values()):
        (checkout / lock).write_text("other==1")
        assert shell(call).stdout == "installs\n"
    assert shell(call).stdout == ""
    assert shell(other).stdout == "installs\n"


def test_without_a_python_it_says_so() -> None:
    done = shell("PATH=/nowhere; eos_python", PYTHON="no-such-python")
    assert done.returncode == 2
    assert "no Python 3.10 to 3.13" in done.stderr


def test_a_python_that_was_named_is_taken() -> None:
    assert shell("eos_python", PYTHON=sys.executable).stdout.strip() == sys.executable


def test_a_stamp_that_another_process_wrote_meanwhile_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "eos-test.stamp").write_text("wanted")
    monkeypatch.setattr(bootstrap, "_make", lambda _: pytest.fail("it installed again"))
    assert bootstrap.main([str(tmp_path), "test", "wanted"]) == 0


def test_a_failed_installation_leaves_no_stamp_and_says_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "_make", lambda venv: venv.mkdir())
    monkeypatch.setattr(bootstrap, "_install", lambda *_: bootstrap._run(["false"]))
    assert bootstrap.main([str(tmp_path), "test", "wanted"]) == 5
    assert "the command failed: false" in capfd.readouterr().err
    assert not list((tmp_path / ".venv").iterdir())


def test_with_the_tests_tools_the_runtime_is_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "_make", lambda venv: venv.mkdir())
    monkeypatch.setattr(bootstrap, "_install", lambda *_: None)
    assert bootstrap.main([str(tmp_path), "test", "wanted"]) == 0
    stamps = sorted(path.name for path in (tmp_path / ".venv").iterdir())
    assert stamps == ["eos-test.stamp", "eos-testing.stamp"]


def test_a_word_that_is_no_path_is_a_verb(checkout: Path) -> None:
    """`./spark-submit.sh status orders` is `eos status orders`."""
    script = Path(bootstrap.__file__).parents[2] / "spark-submit.sh"
    (checkout / "spark-submit.sh").write_text(script.read_text())
    (checkout / "eos" / "launch" / "bootstrap.sh").write_text(SCRIPT.read_text())
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)

    def asked(*words: str) -> str:
        command = ["bash", str(checkout / "spark-submit.sh"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=checkout)
        return done.stdout.splitlines()[-1]

    assert asked("status", "orders", "--json") == "-m eos status orders --json"
    for words in (["orders/pipeline.yaml"], ["--help"], []):
        assert asked(*words) == " ".join(["-m eos.cli.run", *words])
    (checkout / "status").mkdir()
    assert asked("status") == "-m eos status"
    (checkout / "status" / "pipeline.yaml").touch()
    assert asked("status") == "-m eos.cli.run status"


def test_nothing_is_installed_without_a_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(bootstrap.UNPINNED, raising=False)
    for extra in bootstrap.LOCKS:
        ran: list[list[str]] = []
        monkeypatch.setattr(
            bootstrap, "_run", lambda words, ran=ran: ran.append([*map(str, words)])
        )
        bootstrap._install(tmp_path / ".venv", tmp_path, extra)
        *fetched, own, check = ran
        assert [words[-1] for words in fetched] == [
            str(tmp_path / lock) for lock in (bootstrap.BUILD_LOCK, bootstrap.LOCKS[extra])
        ]
        assert all("--require-hashes" in words for words in fetched)
        assert own[-3:] == ["--no-build-isolation", "--editable", str(tmp_path)]
        assert "--no-deps" in own
        assert check[-1] == "check"


def test_pip_refuses_a_file_whose_checksum_is_another(tmp_path: Path) -> None:
    """The bootstrap's own options, on a package that is made here."""
    wheel = tmp_path / "small-1.0-py3-none-any.whl"
    info = "small-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    for sha256, is_taken in (
        (hashlib.sha256(wheel.read_bytes()).hexdigest(), True),
        ("0" * 64, False),
    ):
        lock = tmp_path / "python.lock"
        lock.write_text(f"small @ file://{wheel} --hash=sha256:{sha256}\n")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path / "to")]
        hashed = ["--require-hashes", "--no-deps", "--no-build-isolation", "-r", str(lock)]
        done = subprocess.run(
            [*pip, *hashed],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) is is_taken, done.stderr


def test_a_checkout_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = [sys.executable, bootstrap.__file__, str(tmp_path / "file"), "testing", "text"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert done.stderr.startswith(f"eos: {tmp_path}/file/.eos can't be used: Not a directory\n")
