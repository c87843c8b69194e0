"""The broker's class-data archive: made by its first good end, mapped, and harmless if damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.waiting import wait_until

from eos.cache import cache_root
from eos.local.embedded_kafka import EmbeddedKafka
from eos.local.jars import jar_folder

pytestmark = pytest.mark.nightly

MAKE_S_MAX = 300  # a bound, not a measure: ten seconds of a free core


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Those of a cache of its own, which has the jars already."""
    jars = jar_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (cache_root() / "jars").symlink_to(jars)
    return cache_root() / "archives"


def is_mapped(kafka: EmbeddedKafka, archive: Path) -> bool:
    pid = kafka.nodes[0].pids()["broker_pid"]
    return str(archive) in Path(f"/proc/{pid}/maps").read_text()


def until_made(archives: Path) -> Path:
    wait_until(
        lambda: not list(archives.glob("*.making")),
        lambda: [path.read_text() for path in archives.glob("*.making/log")],
        wait_s=MAKE_S_MAX,
    )
    (made,) = archives.iterdir()
    return made


def test_an_archive_is_made_used_and_not_missed_when_it_is_damaged(
    tmp_path: Path, archives: Path
) -> None:
    root = tmp_path / "broker"
    with EmbeddedKafka(root) as first:
        listed = first.nodes[0].folder / "classes"
        assert "kafka/server/BrokerServer" in listed.read_text(), "what is made is made of this"
    made = until_made(archives)
    with EmbeddedKafka(root) as second:
        assert is_mapped(second, made)
    # Zeros in its middle: the size is right and so is the header. A JVM that maps it crashes.
    made.chmod(0o644)
    with made.open("r+b") as stream:
        stream.seek(made.stat().st_size // 3)
        stream.write(bytes(made.stat().st_size // 3))
    with EmbeddedKafka(root) as third:
        assert not is_mapped(third, made)
        assert not made.exists()
        # It would be made anew; this saves the ten seconds, and shows that it has to be listed.
        listed.unlink()
    assert not list(archives.iterdir())


def test_an_archive_that_the_jvm_refuses_stops_no_broker(
    tmp_path: Path, archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What passes our own look and is still no archive: `-Xshare:auto` goes on without it."""
    foreign = tmp_path / "foreign.jsa"
    foreign.write_bytes(b"of another Java" * 1000)
    monkeypatch.setattr("eos.local.class_archive.Archive._ready", lambda _: foreign)
    with EmbeddedKafka(tmp_path / "broker") as kafka:
        assert not is_mapped(kafka, foreign)
        listed = kafka.tool("org.apache.kafka.tools.TopicCommand", "--version")
        assert listed.returncode == 0
        assert "cds" not in listed.stdout + listed.stderr
    assert not archives.exists() or not list(archives.iterdir())
