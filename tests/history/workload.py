"""Producers, two pipelines and consumers on one cluster, in rounds that end at rest."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from support.copies.pipeline_copy import Job
from support.kafka import kafka_io
from support.waiting import wait_until

from history.checker import check
from history.clients import UNKNOWN, CommittedReader, TransactionalWriter
from history.events import Anomaly, Event
from history.pipelines import Supervised
from history.recorder import Recorder

PARTITIONS = 2
_WRITERS = 2
_REST_S = 600
_ANY = -1  # a partition that no topic has: the rounds have checked where values are
_JOB: Mapping[str, Any] = {
    "records": 100,
    "request_timeout_ms": 3_000,
    "transaction_timeout_ms": 20_000,
    "start_timeout_ms": 60_000,
}


class Workload:
    """Two pipelines in a chain: `name.0` is copied to `name.1`, and that to `name.2`.

    `direct` reaches the brokers; `bootstrap` too, but with the faults on the way. Between `resume`
    and `rest` there is load. After each `rest` the history of the round is checked.
    """

    def __init__(
        self,
        direct: str,
        bootstrap: str,
        name: str,
        folder: Path,
        seed: int,
        replication: int = 1,
    ) -> None:
        self.random = random.Random(seed)
        self.recorder = Recorder(folder / "history.jsonl")
        self.rounds = self.checked = self.compared = 0
        self._direct = direct
        self.topics = [f"{name}.{number}" for number in range(3)]
        kafka_io.create_topics(direct, PARTITIONS, *self.topics, replication=replication)
        steps = list(zip(self.topics, self.topics[1:], strict=False))
        self.jobs = [
            Job(bootstrap, f"{target}.copy", source, target, folder / target, **_JOB)
            for source, target in steps
        ]
        self._copies = [{"op": "copy", "source": each, "target": to} for each, to in steps]
        self.pipelines = [Supervised(job) for job in self.jobs]
        self.writers = [
            TransactionalWriter(
                f"w{number}",
                bootstrap,
                self.topics[0],
                PARTITIONS,
                f"{seed}.{number}",
                self.recorder,
            )
            for number in range(_WRITERS)
        ]
        self.readers = [
            CommittedReader(f"r.{topic}", bootstrap, topic, PARTITIONS, self.recorder)
            for topic in self.topics
        ]
        self._committed: dict[str, dict[int, int]] = {}  # the group's offsets at the last look
        self._ledger_starts: Counter[str] = Counter()
        self._starts = {topic: dict.fromkeys(range(PARTITIONS), 0) for topic in self.topics}

    @property
    def clients(self) -> list[TransactionalWriter | CommittedReader]:
        return [*self.writers, *self.readers]

    def resume(self) -> None:
        for client in self.clients:
            client.resume()

    def rest(self) -> list[Anomaly]:
        """No load until everything is copied and read; then what is wrong with this round."""
        for writer in self.writers:
            writer.pause()
        for job in self.jobs:
            self._wait(lambda job=job: self._is_copied(job), lambda job=job: f"{job} is behind")
        for reader in self.readers:
            self._wait(lambda reader=reader: self._has_all(reader), f"{reader.name} is behind")
            reader.pause()
        self.rounds += 1
        whole = [self._all(topic, number) for topic in self.topics for number in range(PARTITIONS)]
        self.checked += sum(len(event["records"]) for event in whole)
        for event in (*whole, *map(self._ledger, self.jobs)):
            self.recorder.add(**event)
        found = check([*self._copies, *self.recorder.next_round()])
        problems = [each for pipeline in self.pipelines for each in pipeline.problems]
        assert not problems, problems
        return found

    def rest_of_all(self) -> list[Anomaly]:
        """After the last `rest`: what is wrong with everything that was copied, read once more, and
        with what the pipelines' processes reported. Some of their reports came after their round.
        """
        whole = [
            {
                "op": "all",
                "topic": topic,
                "partition": number,
                "records": _read(self._direct, topic, number, 0, end),
            }
            for topic, ends in self._starts.items()
            for number, end in ends.items()
        ]
        values = {value for event in whole for _, value in event["records"]}
        written = {
            "op": "write",
            "producer": "all of them",
            "outcome": UNKNOWN,
            "records": [[self.topics[0], _ANY, value] for value in values],
        }
        reports = [report for pipeline in self.pipelines for report in pipeline.reports()]
        self.compared = len(reports)
        self._ledger_starts.clear()
        ledgers = map(self._ledger, self.jobs)
        return check([*self._copies, written, *whole, *ledgers, *reports])

    def close(self) -> None:
        for pipeline in self.pipelines:
            pipeline.close()
        for client in self.clients:
            client.close()
        self.recorder.close()

    def counts(self) -> dict[str, Any]:
        """Of the whole time, once it is closed."""
        events: Counter[str] = sum((each.events for each in self.pipelines), Counter())
        outcomes: Counter[str] = Counter()
        for writer in self.writers:
            outcomes.update(writer.outcomes)
        return {
            "rounds": self.rounds,
            "records checked": self.checked,
            "reports compared": self.compared,
            "transactions of the writers": dict(outcomes),
            "micro-batches committed": events["MicroBatchCommitted"],
            "attempts failed": events["AttemptFailed"],
            "processes of the pipelines by exit code": {
                str(code): count
                for code, count in sorted(
                    sum((each.ends for each in self.pipelines), Counter()).items()
                )
            },
            "longest stall in s": {
                reader.name: round(reader.gap.longest_s, 1) for reader in self.readers
            },
        }

    def _wait(self, until: Callable[[], bool], otherwise: object) -> None:
        wait_until(until, otherwise, wait_s=_REST_S)

    def _is_copied(self, job: Job) -> bool:
        kafka_io.wait_closed(self._direct, job.source)
        ends = kafka_io.ends(self._direct, job.source)
        offsets = kafka_io.group_offsets(self._direct, job.name, job.source)
        earlier = self._committed.setdefault(job.name, {})
        backwards = {
            n: (earlier[n], offsets.get(n)) for n in earlier if offsets.get(n, 0) < earlier[n]
        }
        assert not backwards, f"committed offsets of {job.name} went back: {backwards}"
        earlier.update(offsets)
        if any(offsets.get(number, 0) < end for number, end in ends.items()):
            return False
        kafka_io.wait_closed(self._direct, job.target)
        return True

    def _has_all(self, reader: CommittedReader) -> bool:
        ends = kafka_io.ends(self._direct, reader.topic)
        return all(reader.ends.get(number, 0) >= end for number, end in ends.items())

    def _all(self, topic: str, partition: int) -> Mapping[str, Any]:
        """What this round added, read by another consumer."""
        start = self._starts[topic][partition]
        end = kafka_io.ends(self._direct, topic)[partition]
        records: Sequence[list[Any]] = _read(self._direct, topic, partition, start, end)
        self._starts[topic][partition] = end
        return {"op": "all", "topic": topic, "partition": partition, "records": records}

    def _ledger(self, job: Job) -> Event:
        """The ledger records that were not yet read."""
        kafka_io.wait_closed(self._direct, job.ledger)
        start, end = self._ledger_starts[job.ledger], kafka_io.ends(self._direct, job.ledger)[0]
        self._ledger_starts[job.ledger] = end
        records = _read(self._direct, job.ledger, 0, start, end)
        places = {"source": job.source, "target": job.target}
        return {"op": "ledger", "pipeline": job.name, **places, "records": records}


def _read(bootstrap: str, topic: str, partition: int, start: int, end: int) -> list[list[Any]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "history.all",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, start)])
    found: list[list[Any]] = []

    def is_read() -> bool:
        for each in consumer.consume(10_000, 0.2):
            error = each.error()
            if error is None:
                found.append([each.offset(), each.value().decode()])
            elif error.code() == KafkaError._PARTITION_EOF and each.offset() >= end:
                return True
        return False

    try:
        wait_until(is_read, lambda: f"{topic}-{partition} can't be read to {end}")
    finally:
        consumer.close()
    return found
