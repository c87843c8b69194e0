"""Pipelines without Spark on a real broker, and the checks of what they wrote.

A test plays many scenes at a time, since most of each is waiting:

    @pytest.mark.parametrize("point", POINTS)
    def test_something(side_by_side, point):
        side_by_side(scene, point)  # returns, or raises, what became of this point

`Flow` runs a scene's copy in a thread. `ProxiedKafka` is a broker that all clients, and the broker
itself, reach through a proxy.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from eos.errors import EosError
from eos.local.broker_node import HOST, free_ports
from eos.local.embedded_kafka import EmbeddedKafka
from eos.observe import events
from support.copies.pipeline_copy import Copy, Job
from support.doubles import At, Hurried
from support.kafka import kafka_io
from support.kafka.brokers import abandon, check_topic
from support.kafka.proxy import Proxy
from support.kafka.proxy_rules import end_asked

PARTITIONS = 2
AT_A_TIME = 4


class Scenes:
    """`prefix` is how all names in Kafka begin; `options` are those of all jobs. `bootstrap`: where
    the jobs find the broker; `replication`: of their topics, -1 as the broker is set up."""

    def __init__(
        self,
        broker: EmbeddedKafka,
        folder: Path,
        prefix: str,
        *,
        bootstrap: str = "",
        replication: int = 1,
        **options: Any,
    ) -> None:
        self.broker = broker
        self._bootstrap = bootstrap or broker.bootstrap
        self._replication = replication
        self._options = options
        self._folder = folder
        self._prefix = prefix
        self._producer = kafka_io.producer(
            broker.bootstrap,
            {"socket.timeout.ms": 5_000, "log_level": 2},  # of a broker that answers nothing
        )

    def new(self, records: int, **options: Any) -> Scene:
        """`records` are in the source from the beginning."""
        name = f"{self._prefix}-{uuid.uuid4().hex[:8]}"
        source, target = f"{name}.in", f"{name}.out"
        kafka_io.create_topics(
            self.broker.bootstrap, PARTITIONS, source, target, replication=self._replication
        )
        given = {**self._options, **options}
        job = Job(self._bootstrap, name, source, target, self._folder / name, **given)
        scene = Scene(self, job)
        scene.feed(records)
        return scene

    def feed(self, topic: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._producer.produce(topic, value=b"%d" % number, partition=number % PARTITIONS)
        assert self._producer.flush(300) == 0

    def check_logs(self) -> Mapping[str, int]:
        """Of all scenes, targets and ledgers: see `brokers.check_log`."""
        return check_topic(self.broker, f"{self._prefix}-*.[!i]*")


@dataclass
class Scene:
    """One pipeline. Its source holds the numbers from 0 on, in turn over its partitions."""

    scenes: Scenes
    job: Job
    fed: int = 0

    def feed(self, count: int) -> None:
        self.scenes.feed(self.job.source, range(self.fed, self.fed + count))
        self.fed += count

    def ledger(self) -> Sequence[Mapping[str, Any]]:
        """Its committed records, as a stranger reads them once nothing of it is open."""
        return [body for _, body in self.ledger_with_offsets()]

    def ledger_with_offsets(self) -> Sequence[tuple[int, Mapping[str, Any]]]:
        kafka_io.wait_closed(self.job.bootstrap, self.job.ledger)
        rows = kafka_io.read(self.job.bootstrap, self.job.ledger)
        return [(row.offset, json.loads(row.value or b"")) for row in rows]

    def check(self) -> None:
        """Everything came through once and in order, the group says so, and owners follow one
        another: none commits after another one has."""
        found: dict[int, list[int]] = defaultdict(list)
        for row in kafka_io.read(self.job.bootstrap, self.job.target):
            found[row.partition].append(int(row.value or b"-1"))
        numbers = range(self.fed)
        assert found == {p: list(numbers[p::PARTITIONS]) for p in range(PARTITIONS)}
        offsets = kafka_io.group_offsets(self.job.bootstrap, self.job.name, self.job.source)
        assert offsets == kafka_io.ends(self.job.bootstrap, self.job.source)
        processes = [record["owner"]["process"] for record in self.ledger()]
        turns = [process for process, _ in itertools.groupby(processes)]
        assert len(turns) == len(set(turns)), f"an older owner committed again: {turns}"


class SideBySide:
    """Plays a scene for every case of a test as soon as the first of them asks for its own."""

    def __init__(self, scenes: Scenes) -> None:
        self._scenes = scenes
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self._begun: dict[Callable[[Scenes, Any], None], dict[Any, Future[None]]] = {}

    def play(self, item: pytest.Function, scene: Callable[[Scenes, Any], None], case: Any) -> None:
        """Returns when the scene has been played for this case. Raises what was raised in it."""
        if scene not in self._begun:
            self._begun[scene] = {
                each: self._pool.submit(scene, self._scenes, each) for each in _cases(item)
            }
        self._begun[scene][case].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _cases(item: pytest.Function) -> list[Any]:
    """Of the test that `item` is one case of: those that are to run."""
    return [
        next(iter(each.callspec.params.values()))
        for each in item.session.items
        if isinstance(each, pytest.Function)
        and (each.path, each.originalname) == (item.path, item.originalname)
    ]


def run_to_end(copy: Copy, *, take_over: bool = False) -> EosError | None:
    """Runs a copy from its start to its clean end, or to the error that ends it."""
    try:
        copy.start(take_over=take_over)
        copy.drain()
        copy.stop()
    except EosError as error:
        return error
    return None


PATIENCE_S = 300  # a test that waits for longer has failed
_STEP_S = 0.05


@dataclass
class Flow:
    """A pipeline that copies in a thread of its own, and when it committed (`marks`)."""

    scene: Scene
    crash: At | None = None
    goes_on: bool = False  # until `finish`, instead of until its source is drained
    told: list[events.Event] = field(default_factory=list)
    marks: list[float] = field(default_factory=list)
    end: Future[EosError | None] = field(default_factory=Future)
    copy: Copy | None = None  # once it runs
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def job(self) -> Job:
        return self.scene.job

    @property
    def commits(self) -> int:
        return sum(isinstance(event, events.MicroBatchCommitted) for event in self.told)

    @property
    def failed(self) -> list[str]:
        return [event.reason for event in self.told if isinstance(event, events.AttemptFailed)]

    def stall_s(self, since: float) -> float:
        """The longest time without a commit, of those that lasted beyond that moment."""
        return max(after - before for before, after in pairwise(self.marks) if after > since)

    def run(self) -> EosError | None:
        """From its start to its clean end, or to the error that ends it."""
        self.marks.append(time.monotonic())
        with Copy(self.job, self.crash, self._tell) as copy:
            self.copy = copy
            try:
                copy.start()
                while copy.step() or self.goes_on:
                    time.sleep(_STEP_S)  # what a trigger does
                copy.stop()
            except EosError as error:
                return error
        return None

    def finish(self) -> EosError | None:
        """Returns when it has drained its source; the error that ended it, if one did."""
        self.goes_on = False
        return self.end.result(PATIENCE_S)

    def wait_commits(self, count: int) -> None:
        """Until there are as many, or it ended."""
        with self._changed:
            met = self._changed.wait_for(
                lambda: self.commits >= count or self.end.done(), PATIENCE_S
            )
        assert met, f"{self.job.name}: {self.commits} commits, told {self.told[-3:]}"

    def _tell(self, event: events.Event) -> None:
        with self._changed:
            self.told.append(event)
            if isinstance(event, events.MicroBatchCommitted):
                self.marks.append(time.monotonic())
            self._changed.notify_all()


NUMBERS_TOPIC, NUMBERS = "numbers", 60
Values = Mapping[int, list[bytes | None]]  # of each partition, in order


@dataclass
class ProxiedKafka:
    """`expected`: the final content of each copy of NUMBERS_TOPIC; `ends`: its group's offsets."""

    broker: EmbeddedKafka
    proxy: Proxy
    bootstrap: str
    expected: Values
    ends: Mapping[int, int]
    folder: Path

    def job(self, prefix: str, **options: Any) -> Job:
        """Of a new pipeline, with a target of its own."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        kafka_io.create_topics(self.bootstrap, PARTITIONS, f"{name}.out")
        return Job(
            self.bootstrap, name, NUMBERS_TOPIC, f"{name}.out", self.folder / name, **options
        )

    def visible(self, topic: str) -> Values:
        """What any read_committed reader sees now."""
        return _values(self.bootstrap, topic)

    def check(self, job: Job) -> None:
        """Everything came through once and in order, and the group's offsets say so."""
        assert self.visible(job.target) == self.expected
        assert kafka_io.group_offsets(self.bootstrap, job.name, NUMBERS_TOPIC) == self.ends
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
        assert asked, "no EndTxn passed through the proxy"

    def check_logs(self, topics: str) -> Mapping[str, int]:
        """Of all topics that match, in their files: see `brokers.check_log`."""
        return check_topic(self.broker, topics)


@dataclass
class Outcome:
    """How a process of a copy ended: what it took for committed, the attempts that failed before,
    and why it stopped."""

    committed: list[int]
    failed: list[str]
    error: EosError | None


def run_copy(
    job: Job, crash: At | Hurried | None = None, micro_batches: int | None = None
) -> Outcome:
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
        return Outcome(copy.committed, failed, stopped)


@contextmanager
def proxied_kafka(
    root: Path, config: Mapping[str, str], version: str | None = None
) -> Iterator[ProxiedKafka]:
    with Proxy() as proxy:
        (port,) = free_ports(1)
        bootstrap = f"{HOST}:{proxy.before(port)}"
        everybody = {"advertised.listeners": f"PLAINTEXT://{bootstrap}", **config}
        with EmbeddedKafka(root, port=port, config=everybody, version=version) as broker:
            kafka_io.create_topics(bootstrap, PARTITIONS, NUMBERS_TOPIC)
            kafka_io.fill(bootstrap, NUMBERS_TOPIC, range(NUMBERS))
            expected, ends = (
                _values(bootstrap, NUMBERS_TOPIC),
                kafka_io.ends(bootstrap, NUMBERS_TOPIC),
            )
            yield ProxiedKafka(broker, proxy, bootstrap, expected, ends, root / "jobs")
            abandon(broker)


def _values(bootstrap: str, topic: str) -> Values:
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for row in kafka_io.read(bootstrap, topic):
        found[row.partition].append(row.value)
    return dict(found)
