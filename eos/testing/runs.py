"""Runs of a pipeline file in a test, each in a process of its own, as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eos.config.load import load_pipeline, load_profile
from eos.config.model import PipelineFile
from eos.errors import UsageError
from eos.launch.spark import with_java_options
from eos.plan.delta_sink import TEST_TABLES
from eos.plural import plural
from eos.spark.local_session import SHORT_LIFE
from eos.testing.outside import Kafka, Record

# Headers of a record: a mapping by name, or a list of pairs if a name occurs more than once.
Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]
RUN_S_MAX = 600  # a generous limit, so that a test does not fail on a slow machine
_SHOWN_LINES_MAX = 40
_SPARK = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


@dataclass(frozen=True)
class Ended:
    """The result of a run: its exit code, and its output on stderr (`said`)."""

    code: int
    said: str


def ended(
    name: str,
    words: Sequence[str],
    variables: Mapping[str, str],
    cwd: Path,
    folder: Path,
    *,
    crash: str,
    code: int,
) -> Ended:
    """Run a command to its end, in which `name` runs. `folder` gets the log of a crash.

    Raise AssertionError if a crash point was not reached, or, without one, if the exit code is
    another one."""
    log = folder / f"crash-{uuid.uuid4().hex[:8]}.log"
    asked = {"EOS_CRASH_AT": crash, "EOS_CRASH_LOG": str(log)} if crash else {}
    done = subprocess.run(
        list(words),
        env={**variables, **asked},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    last = "\n".join(done.stderr.splitlines()[-_SHOWN_LINES_MAX:])
    if crash and not log.exists():
        raise AssertionError(
            f"{name} did not reach {crash}, and ended with exit code {done.returncode}; check that "
            f"the source had new records\n{last}"
        )
    if not crash and done.returncode != code:
        raise AssertionError(
            f"{name} ended with exit code {done.returncode}, expected {code}\n{last}"
        )
    return Ended(done.returncode, done.stderr)


@dataclass(frozen=True)
class PipelineRun:
    """A pipeline file that is prepared to run on a test's cluster.

    Each instance has its own ledger, checkpoint, group and Delta tables, and its source and target
    topics begin empty, so tests don't affect one another. But don't use two instances of one
    pipeline at the same time on one cluster: both would use the same topics.
    """

    pipeline: PipelineFile
    kafka: Kafka
    folder: Path
    master: str = "local[2]"

    @classmethod
    def of(cls, path: Path | str, kafka: Kafka, folder: Path, partitions: int = 2) -> PipelineRun:
        """Prepare a pipeline file to run on the cluster `kafka`.

        Delete its topics of earlier tests, and create each source topic with `partitions`
        partitions. `folder` is for its checkpoint, logs and profile.
        """
        made = cls(load_pipeline(path), kafka, folder)
        source = made.pipeline.source.kafka
        old = [n for n in kafka.topics() if source.reads(n) and not n.startswith("__")]
        kafka.delete(*old, *made.pipeline.sink.topic_names)
        for topic in source.topic_names:
            kafka.create(topic, partitions)
        made._write_profile()
        return made

    @property
    def profile(self) -> Path:
        return self.folder / "conf" / "test.yaml"

    def feed(
        self,
        values: Iterable[Any],
        key: str | None = None,
        topic: str | None = None,
        headers: Headers | Callable[[Any], Headers] | None = None,
    ) -> int:
        """Write records to a source topic, and return how many there were.

        A mapping or list is written as JSON, text and bytes unchanged, None as a tombstone. `key`
        names the field of a mapping that is the record's key. `headers` are the headers of every
        record, or a function that gets a value and returns the headers of its record.
        """
        records = (_record(each, key, headers) for each in values)
        return self.kafka.write(topic or self._source(), records)

    def run(self, *options: str, crash: str = "", code: int = 0) -> Ended:
        """Run the pipeline until all existing records are read, whatever the file's `trigger`.

        With `crash`, a result of `crash_at`, the run is killed at that point. Raise AssertionError
        if it never reaches the point, or without `crash`, if its exit code is not `code`.
        """
        words = [str(self.pipeline.path), "--available-now", "--profile", str(self.profile)]
        return ended(
            self.pipeline.name,
            [sys.executable, "-m", "eos.cli.run", *words, *options],
            {**environment(), TEST_TABLES: str(self._tables)},
            self.pipeline.project_root,
            self.folder,
            crash=crash,
            code=code,
        )

    def read(self, topic: str | None = None) -> list[Record]:
        """Return the committed records of a target topic, by default of the pipeline's only one.

        A topic that the pipeline has not created yet has none."""
        names = self.pipeline.sink.topic_names
        name = topic or self._only("target topic", names)
        is_new = name in names and name not in self.kafka.topics()
        return [] if is_new else self.kafka.read(name)

    def table(self, name: str | None = None) -> Path:
        """Return the folder of a Delta table, by default of the pipeline's only one.

        It is not the folder in the pipeline file: tests write no real tables. `name` is the sink's
        `name`, or the last part of its `path`."""
        names = tuple(sink.table for sink in self.pipeline.sink.delta)
        chosen = name or self._only("Delta table", names, argument="name")
        if chosen not in names:
            raise LookupError(f"pipeline {self.pipeline.name} has no Delta table {chosen!r}")
        return self._tables / chosen

    @property
    def _tables(self) -> Path:
        return self.folder / "tables"

    def read_source(self, topic: str | None = None) -> list[Record]:
        return self.kafka.read(topic or self._source())

    def _source(self) -> str:
        return self._only("source topic", self.pipeline.source.kafka.topic_names)

    def _only(self, what: str, names: tuple[str, ...], argument: str = "topic") -> str:
        if len(names) != 1:
            name, count = self.pipeline.name, len(names)
            example = names[0] if names else "NAME"
            raise UsageError(
                "test_topic_ambiguous",
                f"pipeline {name} has {plural(count, what)}",
                hint=f"select one by the argument {argument}={example!r}",
            )
        return names[0]

    def _write_profile(self) -> None:
        """Write a profile for the test's cluster and folder, with the project's Spark settings.

        It has a new `names.prefix`, so that ledger, group and transactional id are new, too.
        """
        own = load_profile(None, self.pipeline.project_root)
        profile = {
            "kafka": {"bootstrap": self.kafka.bootstrap},
            "state": {"root": str(self.folder / "state")},
            "spark": {"master": self.master, "conf": {**own.spark.conf, **_SPARK}},
            "names": {"prefix": f"test-{uuid.uuid4().hex[:8]}"},
        }
        self.profile.parent.mkdir(parents=True, exist_ok=True)
        self.profile.write_text(json.dumps(profile), encoding="utf-8")  # JSON is valid YAML


def environment() -> Mapping[str, str]:
    """Return the environment variables for a run: this process's, without those that would change
    the run, such as EOS_PROFILE and EOS_CRASH_AT."""
    inherited = {key: text for key, text in os.environ.items() if not key.startswith("EOS_")}
    return with_java_options(inherited, *SHORT_LIFE)


def _record(
    value: Any, key: str | None, headers: Headers | Callable[[Any], Headers] | None = None
) -> dict[str, Any]:
    is_data = isinstance(value, dict | list)
    record = {"value": json.dumps(value).encode() if is_data else value}
    if key is not None:
        record["key"] = str(value[key]).encode()
    if headers is not None:
        own = headers(value) if callable(headers) else headers
        record["headers"] = list(own.items() if isinstance(own, Mapping) else own)
    return record
