"""Loads the sample orders, and checks what the pipeline made of them.

    demo.py load   --bootstrap HOST:PORT
    demo.py report --bootstrap HOST:PORT [--seconds S] [--already N] [--json]

The check is independent on purpose: it reads with librdkafka, as any other consumer would, and
shares no code with what it checks. `report` exits with 1 if an order is missing, twice, or not one
that was loaded.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

SOURCE, TARGET = "quickstart.orders", "quickstart.orders.out"
LEDGER = "eos.ledger.quickstart"
ORDERS = 100_000
PARTITIONS = 4
WAIT_S = 300.0  # a bound, not a measure: a slow machine is no fault
NO_LEADER_YET = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    # What the client finds out by itself; the names with _ are public.
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)
QUIET = {"log_level": 3}  # librdkafka tells each retry otherwise
PRODUCTS = ("apples", "bread", "cheese", "dates", "eggs", "figs", "garlic", "honey")


class Order(NamedTuple):
    number: int
    partition: int
    key: bytes
    value: bytes


class Read(NamedTuple):
    """A record of a topic, as far as the check needs it."""

    partition: int
    offset: int
    value: bytes


def orders(count: int = ORDERS) -> Iterator[Order]:
    """The same orders each time. A customer's orders share a partition and keep their order."""
    dice = random.Random(20_260_101)
    for number in range(count):
        customer = f"c{dice.randrange(10_000):05d}"
        quantity, cents = dice.randint(1, 9), dice.randint(99, 9_999)
        value = {
            "order": number,
            "customer": customer,
            "product": dice.choice(PRODUCTS),
            "quantity": quantity,
            "amount": quantity * cents / 100,
        }
        key = customer.encode()
        yield Order(number, zlib.crc32(key) % PARTITIONS, key, json.dumps(value).encode())


def missing(present: Sequence[int], wanted: Iterable[Order]) -> Iterator[Order]:
    """The orders that an earlier load, ended in the middle, did not bring.

    An idempotent producer keeps the order within a partition, so each partition holds the first
    of its orders: as many as it has records.
    """
    left = list(present)
    for order in wanted:
        if left[order.partition] > 0:
            left[order.partition] -= 1
        else:
            yield order


@dataclass
class Tally:
    """What was read, counted. Twenty bytes an order, however large the records are."""

    records_in: int = 0
    records_out: int = 0
    strangers: int = 0  # records of the target that no order of the source explains
    _numbers: dict[int, array[int]] = field(default_factory=dict)
    _seen: dict[int, bytearray] = field(default_factory=dict)

    def add_source(self, record: Read) -> None:
        numbers = self._numbers.setdefault(record.partition, array("q"))
        gap = record.offset - len(numbers)
        numbers.extend([-1] * gap)
        numbers.append(json.loads(record.value)["order"])
        self.records_in += 1

    def add_target(self, record: Read) -> None:
        """An order counts for the source record that it says it came from."""
        self.records_out += 1
        try:
            order = json.loads(record.value)
            partition, offset = order["origin"]["partition"], order["origin"]["offset"]
            number = self._numbers[partition][offset]
            if number != order["order"] or number < 0 or offset < 0:
                raise KeyError(offset)
        except (ValueError, KeyError, IndexError, TypeError):
            self.strangers += 1
            return
        seen = self._seen.setdefault(partition, bytearray(len(self._numbers[partition])))
        seen[offset] = min(seen[offset] + 1, 255)

    @property
    def duplicates(self) -> int:
        """More than one record for a source record, or one order number in two source records."""
        again = sum(count - 1 for seen in self._seen.values() for count in seen if count > 1)
        numbers = [n for column in self._numbers.values() for n in column if n >= 0]
        return again + len(numbers) - len(set(numbers))

    @property
    def lost(self) -> int:
        found = sum(1 for seen in self._seen.values() for count in seen if count)
        return self.records_in - found


@dataclass(frozen=True)
class Report:
    records_in: int
    records_out: int
    transactions: int
    duplicates: int
    lost: int
    seconds: float


def load(bootstrap: str) -> dict[str, int]:
    create_topics(bootstrap)
    deadline = time.monotonic() + WAIT_S
    while len(present := counts(bootstrap, SOURCE)) != PARTITIONS:
        # None at all: the controller has made it, and the broker that is asked not heard of it yet.
        if present or time.monotonic() > deadline:
            raise SystemExit(
                f"demo: {SOURCE} has {len(present)} partitions instead of {PARTITIONS}"
            )
        time.sleep(0.05)
    producer = Producer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            # Of a topic that was just made a broker may refuse the first record batch and take the
            # second; the first, repeated, is a duplicate in its eyes: lost, and told as a success.
            "max.in.flight": 1,
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": ORDERS,
        }
    )
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    loaded = 0
    if sum(present) < ORDERS:
        for order in missing(present, orders()):
            producer.produce(
                SOURCE, order.value, order.key, partition=order.partition, on_delivery=delivered
            )
            loaded += 1
    if producer.flush(WAIT_S) or failed:
        raise SystemExit(f"demo: the orders could not be loaded: {failed[:1] or 'no answer'}")
    return {"loaded": loaded, "present": sum(present) + loaded}


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
    # Kept for ever: after a week the check would otherwise miss what retention removed.
    config = {"retention.ms": "-1"}
    topics = [NewTopic(name, PARTITIONS, config=config) for name in (SOURCE, TARGET)]
    for future in admin.create_topics(topics).values():
        try:
            future.result(WAIT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": "quickstart.demo",  # never used: nothing is subscribed or committed
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 50,
        }
    )


def partitions(client: Consumer, topic: str) -> list[int]:
    """Empty where there is no such topic."""
    return sorted(client.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)


def counts(bootstrap: str, topic: str) -> list[int]:
    client = consumer(bootstrap)
    try:
        return [count(client, TopicPartition(topic, n)) for n in partitions(client, topic)]
    finally:
        client.close()


def count(client: Consumer, partition: TopicPartition) -> int:
    """Records of a partition that no transaction ever wrote to: its offsets have no gaps."""
    deadline = time.monotonic() + WAIT_S
    while True:  # a topic that was just created has no leader yet
        try:
            first, end = client.get_watermark_offsets(partition, timeout=WAIT_S)
            return int(end - first)
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in NO_LEADER_YET:
                raise
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def read(bootstrap: str, topic: str) -> Iterator[Read]:
    """All committed records of a topic, up to its end as read_committed sees it."""
    client = consumer(bootstrap)
    try:
        waiting = set(partitions(client, topic))
        client.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in waiting])
        deadline = time.monotonic() + WAIT_S
        while waiting:
            if time.monotonic() > deadline:
                raise SystemExit(f"demo: {topic} could not be read to its end in {WAIT_S:.0f} s")
            for message in client.consume(10_000, timeout=0.2):
                error = message.error()
                if error is None:
                    yield Read(message.partition(), message.offset(), message.value())
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    waiting.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        client.close()


def attempts(ledger: Iterable[Read], since_ms: float) -> tuple[int, int]:
    """How many transactions the ledger tells of, and how many of them since then.

    The pipeline writes one ledger record inside each transaction, and a read_committed reader
    sees it only if that transaction committed.
    """
    identities, recent = set(), 0
    for record in ledger:
        entry = json.loads(record.value)
        if entry["kind"] == "attempt":
            attempt = entry["attempt"]
            identities.add((attempt["producer_id"], attempt["epoch"]))
            recent += entry["at_ms"] >= since_ms
    return len(identities), recent


def report(bootstrap: str, seconds: float, already: int, *, as_json: bool) -> int:
    since_ms = (time.time() - seconds) * 1000
    tally = Tally()
    for record in read(bootstrap, SOURCE):
        tally.add_source(record)
    for record in read(bootstrap, TARGET):
        tally.add_target(record)
    transactions, recent = attempts(read(bootstrap, LEDGER), since_ms)
    found = Report(
        records_in=tally.records_in,
        records_out=tally.records_out,
        transactions=transactions,
        duplicates=tally.duplicates,
        lost=tally.lost,
        seconds=round(seconds, 1),
    )
    if already >= tally.records_in and not recent and not found.lost:
        say(f"nothing new: all {tally.records_in:,} orders were already committed")
    if tally.strangers:
        say(f"{tally.strangers:,} records of {TARGET} are no orders of {SOURCE}")
    print(json.dumps(asdict(found)) if as_json else table(found))
    return 1 if found.duplicates or found.lost or tally.strangers else 0


def table(found: Report) -> str:
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in asdict(found).items()]
    return "\n".join(f"  {name:<14}{value:>10}" for name, value in rows)


def say(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="sample orders and what became of them")
    verbs = parser.add_subparsers(dest="verb", required=True)
    loading = verbs.add_parser("load", help="load the sample orders, where they are missing")
    reporting = verbs.add_parser("report", help="read everything back and check it")
    for verb in (loading, reporting):
        verb.add_argument("--bootstrap", required=True, help="Kafka addresses")
    reporting.add_argument("--seconds", type=float, default=0.0, help="what the run took")
    reporting.add_argument("--already", type=int, default=0, help="orders loaded by earlier runs")
    reporting.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args(arguments)
    if options.verb == "load":
        print(json.dumps(load(options.bootstrap)))
        return 0
    return report(options.bootstrap, options.seconds, options.already, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
