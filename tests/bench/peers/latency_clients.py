"""Writes records at a steady rate, or reads them: two processes of the latency benchmark.

    latency_clients.py write BOOTSTRAP TOPIC RATE SECONDS
    latency_clients.py read BOOTSTRAP TOPIC RECORDS SKIPPED

A value begins with the time at which the producer got it, in microseconds, and with its number. The
reader is a `read_committed` consumer. It prints the latencies' median and 99th percentile in
milliseconds, without those of the first SKIPPED records, and whether each number came once.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

VALUE_BYTES, KEYS = 180, 1_000
QUIET_S_MAX = 60  # without a record: a bound, not a measurement
PROBE = b"probe"  # the first record of a turn
_TIME, _NUMBER = 16, 12  # digits
_TICK_S = 0.001
_ASK_S = 60


def write(bootstrap: str, topic: str, rate: int, seconds: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 1,
            "compression.type": "lz4",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
        }
    )
    padding = b"." * (VALUE_BYTES - _TIME - _NUMBER)
    count, sent, begun = rate * seconds, 0, time.monotonic()
    while sent < count:
        due = min(count, int((time.monotonic() - begun) * rate))
        for number in range(sent, due):
            value = b"%016d%012d" % (time.time_ns() // 1000, number)
            producer.produce(topic, value + padding, b"k%d" % (number % KEYS))
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(_TICK_S)
    left = producer.flush(_ASK_S)
    print(json.dumps({"seconds": round(time.monotonic() - begun, 3), "unsent": left}))


def read(bootstrap: str, topic: str, records: int, skipped: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "outside",  # never used: nothing is subscribed or committed
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    partitions = consumer.list_topics(topic, timeout=_ASK_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    seen, latencies = bytearray(records), [0] * records
    read_count, last = 0, time.monotonic()
    while read_count < records and time.monotonic() - last < QUIET_S_MAX:
        message = consumer.poll(0.1)
        if message is None:
            continue
        assert message.error() is None, message.error()
        now, value = time.time_ns() // 1000, message.value()
        if value == PROBE:
            continue
        number = int(value[_TIME : _TIME + _NUMBER])
        latencies[number] = now - int(value[:_TIME])
        seen[number] = min(seen[number] + 1, 255)
        read_count, last = read_count + 1, time.monotonic()
    consumer.close()
    counted = sorted(each for each in latencies[skipped:] if each)
    print(
        json.dumps(
            {
                "records": read_count,
                "once": seen.count(1) == read_count == records,
                "median_ms": counted[len(counted) // 2] / 1000 if counted else None,
                "p99_ms": counted[len(counted) * 99 // 100] / 1000 if counted else None,
            }
        )
    )


def main() -> None:
    bootstrap, topic, first, second = sys.argv[2:]
    {"write": write, "read": read}[sys.argv[1]](bootstrap, topic, int(first), int(second))


if __name__ == "__main__":
    main()
