"""Pipelines that keep state, what they read, and what must come out: counted here without Spark.

Records carry a user as their key and an event time as their timestamp, ten minutes apart from the
midnight before yesterday's on: brokers delete what is older than a week. Partitions hold the same
number of them, so a micro-batch takes as many from each, and no record is later than the watermark
allows, however Spark cuts them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timezone

from support.kafka import kafka_io
from support.spark.project import Project

PARTITIONS = 2
USERS = 3
_DAY_MS = (int(time.time()) // 86_400 - 2) * 86_400_000  # a midnight of UTC
_STEP_MS = 600_000
_HOUR_MS = 3_600_000

PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
transform:
  - {{python: "pipelines.{module}.transform:FUNCTION"}}
sink: {{kafka: {{topic: {target}, key: user, value: json, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""
TRANSFORM = '''
from pyspark.sql import functions as f


def users(frame):
    return frame.select(f.col("key").cast("string").alias("user"), "timestamp", "value")


def counted(frame, delay="2 hours"):
    """Of each hour and user, once it is over."""
    by_hour = users(frame).withWatermark("timestamp", delay).groupBy(
        f.window("timestamp", "1 hour"), "user"
    )
    return by_hour.count().select("user", f.col("window.start").alias("hour"), "count")


def running(frame):
    """Of each user, whenever it changes."""
    return users(frame).groupBy("user").count()


def summed(frame):
    """Another plan than `running`: its state has other columns."""
    rows = users(frame).withColumn("size", f.length("value"))
    return rows.groupBy("user").agg(f.sum("size").alias("size"), f.max("size").alias("largest"))


def distinct(frame):
    """Each value once, however often it came within a day."""
    rows = users(frame).selectExpr("user", "timestamp", "CAST(value AS STRING) AS number")
    rows = rows.withWatermark("timestamp", "1 day").dropDuplicatesWithinWatermark(["number"])
    return rows.select("user", "number")


def passed(frame):
    return users(frame).selectExpr("user", "1 AS count")


def visits(frame):
    """The running count again, by a function of the user's own."""
    def of(key, pages, state):
        (seen,) = state.get if state.exists else (0,)
        for page in pages:
            seen += len(page)
        state.update((seen,))
        import pandas as pd
        yield pd.DataFrame({"user": [key[0]], "count": [seen]})

    return users(frame).groupBy("user").applyInPandasWithState(
        of, "user STRING, count BIGINT", "seen BIGINT", "update", "NoTimeout"
    )


def processed(frame):
    """And by a processor."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Visits(StatefulProcessor):
        def init(self, handle):
            self.seen = handle.getValueState("seen", "seen BIGINT")

        def handleInputRows(self, key, rows, timers):
            (seen,) = self.seen.get() if self.seen.exists() else (0,)
            seen += sum(len(page) for page in rows)
            self.seen.update((seen,))
            yield pd.DataFrame({"user": [key[0]], "count": [seen]})

        def close(self):
            pass

    return users(frame).groupBy("user").transformWithStateInPandas(
        Visits(), "user STRING, count BIGINT", "Update", "None"
    )
'''


def declare(project: Project, function: str, records: int, more: str = "") -> None:
    project.declare(records, PARTITIONS, PIPELINE.replace("FUNCTION", function) + more)
    place = project.folder / "pipelines" / project.name
    (place / "transform.py").write_text(TRANSFORM)


def feed(project: Project, numbers: Iterable[int], values: str = "%d") -> None:
    producer = kafka_io.producer(project.broker.bootstrap)
    for n in numbers:
        producer.produce(
            project.source,
            key=user(n).encode(),
            value=(values % n).encode(),
            partition=n % PARTITIONS,
            timestamp=_DAY_MS + n // PARTITIONS * _STEP_MS,
        )
    assert producer.flush(300) == 0


def user(n: int) -> str:
    return f"u{n % USERS}"


def found(project: Project) -> list[dict[str, object]]:
    rows = kafka_io.read(project.broker.bootstrap, project.target)
    return [json.loads(row.value or b"") for row in rows]


def hours(count: int, delay_hours: int = 2) -> Counter[tuple[str, str, int]]:
    """What `counted` says once the first `count` records were read: of the hours that are over, and
    older than the last event by the delay."""
    watermark = _DAY_MS + (count - 1) // PARTITIONS * _STEP_MS - delay_hours * _HOUR_MS
    counted: Counter[tuple[str, int]] = Counter()
    for n in range(count):
        hour = (_DAY_MS + n // PARTITIONS * _STEP_MS) // _HOUR_MS * _HOUR_MS
        counted[user(n), hour] += 1
    return Counter(
        (who, _text(hour), total)
        for (who, hour), total in counted.items()
        if hour + _HOUR_MS <= watermark
    )


def _text(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
