"""What do the peers have to do, and what must come out?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Any
from zlib import crc32

from bench.contents import rows_of
from bench.encoding import records as short_records
from support.kafka.kafka_io import fill_topic, producer

from eos.testing import outside

ROUNDS = int(os.environ.get("EOS_BENCH_ROUNDS", "3"))
# The most records of a workload. Its micro-batches become smaller by the same factor.
RECORDS_MAX = int(os.environ.get("EOS_BENCH_RECORDS", "0"))
SOURCE_PARTITIONS = 4
ACTIVE_PRODUCERS = 1_000_000

EVERYONE = ("eos", "flink", "kafka_streams", "spark_tuned", "spark", "confluent", "quix")
FASTEST = ("eos", "flink", "kafka_streams", "spark_tuned")
ON_SPARK = ("eos", "spark_tuned", "spark")
Rows = tuple[list[bytes], list[bytes]]


@dataclass(frozen=True)
class Contents:
    """The records of a topic, whatever their order: how many, and the sum of their checksums."""

    records: int
    checksum: int

    def __add__(self, other: Contents) -> Contents:
        return Contents(self.records + other.records, self.checksum + other.checksum)


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    kind: str = "copy"
    records: int = 2_000_000
    batch: int = 500_000
    value_bytes: int = 180
    partitions: int = 4  # of each target
    peers: tuple[str, ...] = EVERYONE
    warm_share: float = 1.0  # of the records, in round 0

    def rows(self) -> Rows:
        """The distinct records, which a source repeats."""
        if self.kind == "dedup":
            return short_records(min(self.records, 100_000))
        return rows_of(self.records, self.value_bytes)

    def scaled(self, most: int = RECORDS_MAX) -> Workload:
        """Return the workload with at most so many records, in as many micro-batches."""
        if not most or most >= self.records:
            return self
        batch = max(1, self.batch * most // self.records)
        return replace(self, records=most, batch=batch)

    def part(self, share: float) -> int:
        """The records of a peer that gets a share of them."""
        return max(1, round(self.records * share))

    def targets(self, name: str) -> list[str]:
        return [f"{name}.{suffix}" for suffix in "abc"] if self.kind == "fan_out" else [name]

    def expected(self, rows: Rows, count: int) -> Contents:
        """What all targets must have together."""
        prints = [list(self.fingerprints([row])) for row in zip(*rows, strict=True)]
        of_rows = [Contents(len(each), sum(each)) for each in prints]
        whole, rest = divmod(count, len(of_rows))
        once, few = _total(of_rows), _total(of_rows[:rest])
        copies = len(self.targets(""))
        records = copies * (whole * once.records + few.records)
        return Contents(records, copies * (whole * once.checksum + few.checksum))

    def fingerprints(self, rows: Iterable[tuple[bytes | None, bytes | None]]) -> Iterable[int]:
        """A number of each record that comes out for these source records."""
        if self.kind in {"json", "delta"}:
            orders = ((key, json.loads(value or b"{}")) for key, value in rows)
            taxed = (
                (key, {**order, "gross": order["amount"] * 1.19})
                for key, order in orders
                if order["status"] != "open"
            )
            return (_order_print(key, order) for key, order in taxed)
        return (_plain_print(key, value) for key, value in rows)

    def found(self, bootstrap: str, topic: str, cores: int = 2) -> Contents:
        """What independent consumers read from a target, `read_committed`."""
        shares = [range(first, self.partitions, cores) for first in range(cores)]
        with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
            each = pool.map(partial(self._found, bootstrap, topic), filter(None, shares))
            return _total(each)

    def _found(self, bootstrap: str, topic: str, partitions: Iterable[int]) -> Contents:
        total, checksum = 0, 0
        is_json = self.kind in {"json", "delta"}
        for message in outside.messages(bootstrap, topic, partitions=partitions):
            key, value = message.key(), message.value()
            total += 1
            checksum += (
                _order_print(key, json.loads(value)) if is_json else _plain_print(key, value)
            )
        return Contents(total, checksum)

    def fill(self, bootstrap: str, topic: str, rows: Rows, count: int) -> None:
        if self.kind == "dedup":
            _fill_stamped(bootstrap, topic, rows, count)
        else:
            fill_topic(bootstrap, topic, rows, count, SOURCE_PARTITIONS)


def _total(contents: Iterable[Contents]) -> Contents:
    return sum(contents, Contents(0, 0))


def _plain_print(key: bytes | None, value: bytes | None) -> int:
    return crc32(value or b"", crc32(key or b""))


def _order_print(key: bytes | None, order: dict[str, float]) -> int:
    """Of the columns, since each system writes JSON in its own way."""
    columns = f"{order['order_id']} {order['customer']} {order['amount']:.2f} {order['gross']:.2f}"
    return crc32(columns.encode(), crc32(key or b""))


def _fill_stamped(bootstrap: str, topic: str, rows: Rows, count: int) -> None:
    """Records of many producers in turn, each numbered, in the partition of its producer."""
    outside.create_topics(bootstrap, SOURCE_PARTITIONS, topic)
    writer = producer(bootstrap, {"compression.type": "lz4", "linger.ms": 50})
    keys, values = rows
    active = min(ACTIVE_PRODUCERS, max(1, count // 2))
    for number in range(count):
        at, sequence = number % active, number // active
        stamp = [("p", b"%d" % at), ("e", b"0"), ("s", b"%d" % sequence)]
        row = number % len(keys)
        place = at % SOURCE_PARTITIONS
        writer.produce(topic, values[row], keys[row], partition=place, headers=stamp)
        if number % 50_000 == 0:
            assert writer.flush(300) == 0
    assert writer.flush(300) == 0


def _of_four(name: str, title: str, **more: Any) -> Workload:
    """Without the systems that take ten times as long."""
    return Workload(name, title, peers=FASTEST, **more)


def _of_batch(size: int, records: int) -> Workload:
    title = f"micro-batches of {size:,}"
    return Workload(f"batch_{size}", title, records=records, batch=size, peers=ON_SPARK)


WORKLOADS = (
    Workload("pass_through", "pass-through", records=10_000_000, batch=1_000_000, warm_share=0.2),
    Workload("json", "JSON in, filter and projection, JSON out", "json"),
    Workload("pandas", "a pandas step", "pandas", peers=ON_SPARK),
    _of_four(
        "fan_out", "fan-out to three topics", kind="fan_out", records=1_000_000, batch=250_000
    ),
    _of_four("repartition", "4 to 12 partitions", partitions=12),
    _of_four("value_100b", "records of 100 B", value_bytes=100),
    _of_four("value_1kb", "records of 1 KB", records=400_000, batch=100_000, value_bytes=1_000),
    _of_four("value_10kb", "records of 10 KB", records=40_000, batch=10_000, value_bytes=10_000),
    _of_four("targets_1", "1 target partition", records=1_000_000, partitions=1),
    _of_four("targets_50", "50 target partitions", records=1_000_000, partitions=50),
    _of_four("targets_200", "200 target partitions", records=1_000_000, partitions=200),
    _of_batch(10, 550),
    _of_batch(100, 5_500),
    _of_batch(1_000, 55_000),
    _of_batch(10_000, 400_000),
    _of_batch(100_000, 1_000_000),
    _of_batch(1_000_000, 4_000_000),
    _of_batch(4_000_000, 8_000_000),
    Workload("dedup", "dedup on, Spark's sinks without", "dedup", peers=ON_SPARK),
    Workload("delta", "the JSON workload, and a Delta table", "delta", peers=ON_SPARK),
)
