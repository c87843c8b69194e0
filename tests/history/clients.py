"""Producers and read_committed consumers of librdkafka, which record what they do and see."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from history.recorder import Recorder

OK, ABORTED, UNKNOWN = "ok", "fail", "info"
_ABORTS = 0.2
_RECORDS_MAX = 6
_TIMEOUT_S = 60
_QUIET = {"log_level": 0}


class Switched:
    """A thread that works step by step, and can be paused between two steps."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._may_run, self._is_over = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        self._idle.clear()
        self._may_run.set()

    def pause(self) -> None:
        """Returns when the step that runs has ended."""
        self._may_run.clear()
        assert self._idle.wait(300), f"{self} does not come to an end"
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self._is_over.set()
        self._may_run.set()
        self._thread.join(300)

    def step(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            while True:
                if not self._may_run.is_set():
                    self._idle.set()
                    self._may_run.wait()
                if self._is_over.is_set():
                    return
                self.step()
        except BaseException as error:  # noqa: BLE001 - `pause` raises it in the test's thread
            self.error = error
        finally:
            self._idle.set()


class TransactionalWriter(Switched):
    """Writes transactions of a few values, each value once, and aborts some of them."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: int, seed: str, recorder: Recorder
    ) -> None:
        self.name, self._bootstrap, self._recorder = name, bootstrap, recorder
        self._topic, self._partitions = topic, partitions
        self._random = random.Random(seed)
        self._producer: Producer | None = None
        self._number = 0
        self.outcomes = {OK: 0, ABORTED: 0, UNKNOWN: 0}
        super().__init__()

    def step(self) -> None:
        self._number += 1
        count = self._random.randint(1, _RECORDS_MAX)
        records = [
            (
                self._topic,
                self._random.randrange(self._partitions),
                f"{self.name}.{self._number}.{n}",
            )
            for n in range(count)
        ]
        is_aborted = self._random.random() < _ABORTS
        outcome = self._written(records, is_aborted)
        self.outcomes[outcome] += 1
        self._recorder.add(op="write", producer=self.name, outcome=outcome, records=records)
        time.sleep(self._random.uniform(0, 0.1))

    def _written(self, records: list[tuple[str, int, str]], is_aborted: bool) -> str:
        """After an error of the commit, nobody knows what became of it. If the commit was never
        asked for, the next producer of this id aborts what is open."""
        is_committing = False
        try:
            producer = self._begun()
            for topic, partition, value in records:
                producer.produce(topic, value=value.encode(), partition=partition)
            if is_aborted:
                producer.abort_transaction(_TIMEOUT_S)
                return ABORTED
            assert producer.flush(_TIMEOUT_S) == 0
            is_committing = True
            producer.commit_transaction(_TIMEOUT_S)
        except (KafkaException, AssertionError):
            self._producer = None
            return UNKNOWN if is_committing else ABORTED
        return OK

    def _begun(self) -> Producer:
        if self._producer is None:
            made = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "client.id": f"history.{self.name}",
                    "transactional.id": f"history.{self._topic}.{self.name}",
                    "linger.ms": 0,
                    **_QUIET,
                }
            )
            made.init_transactions(_TIMEOUT_S)
            self._producer = made
        self._producer.begin_transaction()
        return self._producer


@dataclass
class Gap:
    """The longest time without a record while records were written."""

    longest_s: float = 0
    last: float = field(default_factory=time.monotonic)

    def restart(self) -> None:
        self.last = time.monotonic()

    def seen(self) -> None:
        now = time.monotonic()
        self.longest_s, self.last = max(self.longest_s, now - self.last), now


class CommittedReader(Switched):
    """Reads a topic from its beginning on, without a group."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: int, recorder: Recorder
    ) -> None:
        self.name, self.topic, self._recorder = name, topic, recorder
        self.records, self.gap = 0, Gap()
        self.ends: dict[int, int] = {}  # at which it found nothing more, by partition
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"history.{name}",
                "group.id": f"history.{name}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                **_QUIET,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        super().__init__()

    def resume(self) -> None:
        self.gap.restart()
        super().resume()

    def step(self) -> None:
        got: dict[int, list[list[Any]]] = {}
        for message in self._consumer.consume(500, 0.2):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self.ends[message.partition()] = message.offset()
            else:
                record = [message.offset(), message.value().decode()]
                got.setdefault(message.partition(), []).append(record)
        if got:
            self.gap.seen()
        for partition, records in got.items():
            self.records += len(records)
            self._recorder.add(
                op="read",
                consumer=self.name,
                topic=self.topic,
                partition=partition,
                records=records,
            )

    def close(self) -> None:
        super().close()
        self._consumer.close()
