"""A pipeline on Spark with committed micro-batches, and what operators do to it.

It remembers every value that was written to its source. After each accident a check reads the
target and asserts that each value is there once, without the code under test.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from confluent_kafka.admin import AdminClient

from support.copies.recovery import run_verb
from support.kafka import kafka_io
from support.spark.processes import is_paused
from support.spark.project import PIPELINE, Project, WarmRun
from support.verbs import recover
from support.waiting import wait_until

RECORDS = 8  # of a partition, in one micro-batch: even shares, so that Spark's limit is met exactly
WAIT_S = 600

At = tuple[str, int]  # topic, partition


@dataclass
class SparkPipeline:
    """`topics` have `partitions` each; a micro-batch takes RECORDS of every partition."""

    project: Project
    topics: dict[str, int]
    text: str = PIPELINE
    state: str = "state"
    expected: Counter[bytes] = field(default_factory=Counter)
    written: dict[At, int] = field(default_factory=Counter)  # how many values of each partition

    def __post_init__(self) -> None:
        self.declare()
        for name, partitions in self.topics.items():
            kafka_io.create_topics(self.bootstrap, partitions, name)

    @property
    def bootstrap(self) -> str:
        return self.project.broker.bootstrap

    @cached_property
    def admin(self) -> AdminClient:  # kept: its futures fail when it goes
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})

    @property
    def checkpoints(self) -> Path:
        return self.project.folder / self.state / "checkpoints" / self.project.group

    @property
    def checkpoint(self) -> SparkCheckpoint:
        """The newest folder."""
        return SparkCheckpoint(max(self.checkpoints.iterdir()))

    def declare(self, times: int = 1, text: str = "") -> None:
        """With micro-batches of so many times the usual size."""
        records = sum(self.topics.values()) * RECORDS * times
        self.project.declare(records, 2, text or self.text)

    def write(self, counts: Mapping[At, int], *, is_lost: bool = False) -> None:
        """So many more values into each; with `is_lost` they are not to come out."""
        producer = kafka_io.producer(self.bootstrap)
        for (topic, partition), count in counts.items():
            for _ in range(count):
                number = self.written[topic, partition]
                self.written[topic, partition] += 1
                key, value = f"{topic}/{partition}".encode(), f"{topic}/{partition}/{number}"
                producer.produce(topic, value.encode(), key, partition)
                self.expected[value.encode()] += not is_lost
        assert producer.flush(WAIT_S) == 0

    def never(self, topic: str, partition: int, numbers: range) -> None:
        """These were written, and are not to come out."""
        self.expected -= Counter(f"{topic}/{partition}/{number}".encode() for number in numbers)

    def write_batches(self, count: int) -> None:
        self.write(dict.fromkeys(self.partitions(), count * RECORDS))

    def partitions(self) -> Iterator[At]:
        for topic, partitions in self.topics.items():
            yield from ((topic, number) for number in range(partitions))

    def ran(self, batches: int) -> SparkPipeline:
        """So many micro-batches, committed by a run that drained the source."""
        self.write_batches(batches)
        before = kafka_io.committed_attempts(self.bootstrap, self.project.ledger)
        self.goes_on()
        after = kafka_io.committed_attempts(self.bootstrap, self.project.ledger)
        assert after - before == batches
        return self

    def goes_on(self, *options: str) -> str:
        """A run that drains the source; then everything is there once. Returns what it said."""
        done = self.project.run_warm(*options)
        assert done.returncode == 0, done.stderr
        self.check()
        return done.stderr

    def check(self) -> None:
        """Each value once, those of a source partition in their order, and the group at the end."""
        rows = kafka_io.read(self.bootstrap, self.project.target)
        found = Counter(row.value for row in rows)
        missing, extra = self.expected - found, found - self.expected
        assert not missing, f"lost: {sorted(missing)[:5]}"
        assert not extra, f"repeated: {sorted(extra)[:5]}"
        newest: dict[bytes | None, int] = {}
        for row in rows:
            number = int((row.value or b"").rpartition(b"/")[2])
            assert newest.get(row.key, -1) < number, f"{row.value!r} after {newest[row.key]}"
            newest[row.key] = number
        for topic in self.topics:
            group = kafka_io.group_offsets(self.bootstrap, self.project.group, topic)
            assert group == kafka_io.ends(self.bootstrap, topic)

    def stops(self, *words: str, remedy: str, code: int = 4, command: str = "recover") -> str:
        """A run that stops with these words, a way out and no trace, and writes nothing."""
        before = kafka_io.read(self.bootstrap, self.project.target)
        done = self.project.run_warm()
        said = done.stderr
        assert done.returncode == code, said
        for word in words:
            assert word in said, f"{word!r} is missing:\n{said}"
        name = self.project.name
        assert re.search(rf"^eos: \[\w+\] {name}\b(?!\.)", said, re.MULTILINE), f"no name:\n{said}"
        hint = said.partition("  hint: ")[2]
        wanted = f"eos {command} {name} {remedy}" if command else remedy
        assert wanted in hint, f"{wanted!r} is missing:\n{said}"
        assert not any(trace in said for trace in ("Traceback", "\tat ", "Py4J")), said
        assert kafka_io.read(self.bootstrap, self.project.target) == before
        return said

    def moved_to(self, state: str) -> None:
        """The same pipeline with another state root: another deployment, which may take it once
        it sees the clean end of this one."""
        kafka_io.wait_closed(self.bootstrap, self.project.ledger)
        profile = self.project.profile
        profile.write_text(re.sub(r"(root: .*)/\w+", rf"\1/{state}", profile.read_text()))
        self.state = state

    @contextmanager
    def paused_at(self, point: str) -> Iterator[WarmRun]:
        """A run that stands still at this point of its first micro-batch while it is entered."""
        log = self.project.folder / "paused"
        run = self.project.start_warm(
            EOS_CRASH_AT=f"{point}:python", EOS_CRASH_SIGNAL="STOP", EOS_CRASH_LOG=str(log)
        )
        wait_until(lambda: log.exists() and is_paused(run.pid), run.said, run)  # log comes first
        try:
            yield run
        finally:
            run.send_signal(signal.SIGCONT)

    def recovers(self, *words: str) -> str:
        """Does what the stop's hint said: explained first, then with --yes. Returns both."""
        code, explained = self._recover()
        assert code == 1, explained
        command = f"eos recover {self.project.name} --profile {self.project.profile} {words[0]}"
        assert command in explained, explained
        code, done = self._recover(*words, "--yes")
        assert code == 0, done
        return explained + done

    def _recover(self, *words: str) -> tuple[int, str]:
        """The command line in the project's folder: exit code and what it printed."""
        before = Path.cwd()
        os.chdir(self.project.folder)
        try:
            profile = str(self.project.profile)
            done = run_verb(recover, self.project.name, "--profile", profile, *words)
        finally:
            os.chdir(before)
        return done.code, done.out + done.err

    # --- what an operator does to Kafka -----------------------------------------------------------

    def delete_topic(self, name: str) -> None:
        kafka_io.delete_topics(self.bootstrap, name)

    def create_topic(self, name: str, partitions: int = 0) -> None:
        kafka_io.create_topics(self.bootstrap, partitions or self.topics[name], name)

    def truncate(self, topic: str, partition: int, before: int) -> None:
        kafka_io.delete_records(self.admin, topic, partition, before)

    def add_partitions(self, topic: str, total: int) -> None:
        kafka_io.add_partitions(self.bootstrap, topic, total)
        self.topics[topic] = total

    def move_group(self, topic: str, offsets: Mapping[int, int]) -> None:
        kafka_io.move_group(self.admin, self.project.group, topic, offsets)

    def delete_group(self) -> None:
        """Behind the last commit's marker, which would bring its offsets back."""
        for topic in self.topics:
            kafka_io.group_offsets(self.bootstrap, self.project.group, topic)
        kafka_io.delete_group(self.admin, self.project.group)


@dataclass(frozen=True)
class SparkCheckpoint:
    """A folder as Spark writes it, for accidents."""

    folder: Path

    def numbers(self, kind: str = "offsets") -> list[int]:
        found = (each.name for each in (self.folder / kind).iterdir())
        return sorted(int(name) for name in found if name.isdigit())

    def ends(self, number: int) -> dict[str, dict[str, int]]:
        text = (self.folder / "offsets" / str(number)).read_text()
        return json.loads(text.rstrip("\n").split("\n")[-1])

    def fall_back(self, batches: int, *, to_planned: bool = False) -> None:
        """As if the last so many micro-batches had not been; with `to_planned` the first of them
        is planned already."""
        for kind in ("offsets", "commits"):
            kept = batches - 1 if to_planned and kind == "offsets" else batches
            for number in self.numbers(kind)[len(self.numbers(kind)) - kept :]:
                self._remove(f"{kind}/{number}")

    def read_on(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """What another program that used it leaves: one more micro-batch, committed."""
        last = self.numbers()[-1]
        self.rewrite(f"offsets/{last}", f"offsets/{last + 1}", ends)
        self._copy(f"commits/{last}", f"commits/{last + 1}")

    def rewrite(self, name: str, new: str, ends: Mapping[str, Mapping[int, int]]) -> None:
        """A file of offsets with others, under another name or the same."""
        lines = (self.folder / name).read_text().rstrip("\n").split("\n")
        offsets = {topic: {str(n): at for n, at in of.items()} for topic, of in ends.items()}
        text = "\n".join([*lines[:-1], json.dumps(offsets)])
        self._remove(new)
        (self.folder / new).write_text(text)

    def truncate(self, name: str, size: int) -> None:
        """As a file that was not synced before the machine lost its power."""
        path = self.folder / name
        os.truncate(path, min(size, path.stat().st_size - 1))
        self._crc(name).unlink(missing_ok=True)

    def remove(self, *names: str) -> None:
        for name in names:
            if (self.folder / name).is_dir():
                shutil.rmtree(self.folder / name)
            else:
                self._remove(name)

    def copy_to(self, folder: Path) -> None:
        shutil.copytree(self.folder, folder)

    def restore_from(self, folder: Path) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(folder, self.folder)

    def _remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)
        self._crc(name).unlink(missing_ok=True)

    def _copy(self, name: str, new: str) -> None:
        shutil.copy(self.folder / name, self.folder / new)

    def _crc(self, name: str) -> Path:
        path = self.folder / name
        return path.with_name(f".{path.name}.crc")
