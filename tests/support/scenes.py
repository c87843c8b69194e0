"""Pipelines for tests of several owners: topics of their own, and what must hold in the end.

Many scenes are played at a time, since most of each is waiting:

    @pytest.mark.parametrize("point", POINTS)
    def test_something(side_by_side, point):
        side_by_side(scene, point)  # returns, or raises, what became of this point
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from eos.errors import EosError
from eos.local.embedded_kafka import EmbeddedKafka
from support import outside
from support.copy import Copy, Job

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
        self._producer = Producer(
            {
                **outside.IN_ORDER,
                "bootstrap.servers": broker.bootstrap,
                "socket.timeout.ms": 5_000,  # of a broker that answers nothing
                "log_level": 2,
            }
        )

    def new(self, records: int, **options: Any) -> Scene:
        """`records` are in the source from the beginning."""
        name = f"{self._prefix}-{uuid.uuid4().hex[:8]}"
        source, target = f"{name}.in", f"{name}.out"
        outside.create_topics(
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
        """Of all scenes, targets and ledgers: see `outside.check_log`."""
        return outside.check_topic(self.broker, f"{self._prefix}-*.[!i]*")


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
        outside.wait_closed(self.job.bootstrap, self.job.ledger)
        rows = outside.read(self.job.bootstrap, self.job.ledger)
        return [(row.offset, json.loads(row.value or b"")) for row in rows]

    def check(self) -> None:
        """Everything came through once and in order, the group says so, and owners follow one
        another: none commits after another one has."""
        found: dict[int, list[int]] = defaultdict(list)
        for row in outside.read(self.job.bootstrap, self.job.target):
            found[row.partition].append(int(row.value or b"-1"))
        numbers = range(self.fed)
        assert found == {p: list(numbers[p::PARTITIONS]) for p in range(PARTITIONS)}
        offsets = outside.group_offsets(self.job.bootstrap, self.job.name, self.job.source)
        assert offsets == outside.ends(self.job.bootstrap, self.job.source)
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


def ended(copy: Copy, *, take_over: bool = False) -> EosError | None:
    """Runs a copy from its start to its clean end, or to the error that ends it."""
    try:
        copy.start(take_over=take_over)
        copy.drain()
        copy.stop()
    except EosError as error:
        return error
    return None
