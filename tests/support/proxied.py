"""A broker that all reach through a proxy, itself included, and what must hold behind it."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eos.errors import EosError
from eos.local.broker_node import HOST, free_ports
from eos.local.embedded_kafka import EmbeddedKafka
from eos.observe import events
from support import outside
from support.brokers import abandon
from support.copy import Copy, Job
from support.frames import end_asked
from support.played import At, Hurried
from support.proxy import Proxy

SOURCE, PARTITIONS, NUMBERS = "numbers", 2, 60
Values = Mapping[int, list[bytes | None]]  # of each partition, in order


@dataclass
class ProxiedKafka:
    """`expected` is what a copy of SOURCE must hold in the end, `ends` where its group must be."""

    broker: EmbeddedKafka
    proxy: Proxy
    bootstrap: str
    expected: Values
    ends: Mapping[int, int]
    folder: Path

    def job(self, prefix: str, **options: Any) -> Job:
        """Of a new pipeline, with a target of its own."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        outside.create_topics(self.bootstrap, PARTITIONS, f"{name}.out")
        return Job(self.bootstrap, name, SOURCE, f"{name}.out", self.folder / name, **options)

    def visible(self, topic: str) -> Values:
        """What any read_committed reader sees now."""
        return _values(self.bootstrap, topic)

    def check(self, job: Job) -> None:
        """Everything came through once and in order, and the group's offsets say so."""
        assert self.visible(job.target) == self.expected
        assert outside.group_offsets(self.bootstrap, job.name, SOURCE) == self.ends
        self.check_ends(job)

    def check_ends(self, job: Job) -> None:
        """After a commit may have left, nothing but the same commit is asked for its epoch."""
        asked: dict[tuple[int, int], bool] = {}
        for seen in self.proxy.seen:
            if (seen.api, seen.client) == ("EndTxn", job.name):
                end = end_asked(seen)
                was_commit = asked.setdefault(end[:2], end.is_commit)
                assert end.is_commit or not was_commit, f"aborted after its commit: {end}"
                asked[end[:2]] = end.is_commit

    def check_logs(self, topics: str) -> Mapping[str, int]:
        """Of all topics that match, in their files: see `outside.check_log`."""
        return outside.check_topic(self.broker, topics)


@dataclass
class Ended:
    """How a process of a copy ended: what it took for committed, the attempts that failed before,
    and why it stopped."""

    committed: list[int]
    failed: list[str]
    error: EosError | None


def run(job: Job, crash: At | Hurried | None = None, micro_batches: int | None = None) -> Ended:
    """A process from start to end; not to its clean end if it is to stop after so many."""
    with Copy(job, crash) as copy:
        stopped: EosError | None = None
        try:
            copy.start()
            if micro_batches is None:
                copy.drain()
                copy.stop()
            for _ in range(micro_batches or 0):
                assert copy.step()
        except EosError as error:
            stopped = error
        failed = [event.reason for event in copy.told.of(events.AttemptFailed)]
        return Ended(copy.committed, failed, stopped)


@contextmanager
def proxied_kafka(
    root: Path, config: Mapping[str, str], version: str | None = None
) -> Iterator[ProxiedKafka]:
    with Proxy() as proxy:
        (port,) = free_ports(1)
        bootstrap = f"{HOST}:{proxy.before(port)}"
        everybody = {"advertised.listeners": f"PLAINTEXT://{bootstrap}", **config}
        with EmbeddedKafka(root, port=port, config=everybody, version=version) as broker:
            outside.create_topics(bootstrap, PARTITIONS, SOURCE)
            outside.fill(bootstrap, SOURCE, range(NUMBERS))
            expected, ends = _values(bootstrap, SOURCE), outside.ends(bootstrap, SOURCE)
            yield ProxiedKafka(broker, proxy, bootstrap, expected, ends, root / "jobs")
            abandon(broker)


def _values(bootstrap: str, topic: str) -> Values:
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for row in outside.read(bootstrap, topic):
        found[row.partition].append(row.value)
    return dict(found)
