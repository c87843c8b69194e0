"""What spark-submit is given: one source topic through several sinks, in turn, in one session.

One JVM, one set of Python workers, one broker for all arms: what a busy machine does to one arm it
does to its neighbours. Round 0 warms up; only later rounds are figures.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.streaming.query import StreamingQuery

CHECKOUT = Path(__file__).parents[2]
sys.path.insert(0, str(CHECKOUT))
sys.path.insert(0, str(CHECKOUT / "tests"))

from support.spark.processes import cpu_seconds_of, cpu_seconds_of_session, forget_peaks, peaks_mb  # noqa: E402

from eos.observe import events  # noqa: E402
from eos.observe.bus import Bus  # noqa: E402
from eos.observe.live import ProgressLine  # noqa: E402
from eos.run import pipeline  # noqa: E402
from eos.run.prepared import RunOptions  # noqa: E402
from eos.spark.session import open_session  # noqa: E402

PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
sink: {{kafka: {{topic: {target}}}}}
trigger: {{available_now: true}}
"""


class Collected:
    """The transactions that were committed."""

    def __init__(self) -> None:
        self.commits: list[events.MicroBatchCommitted] = []

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.MicroBatchCommitted):
            self.commits.append(event)


@contextmanager
def _heard_by(heard: Collected) -> Iterator[None]:
    """What the console hears during a run, `heard` does, too."""
    shown = pipeline.show_events

    @contextmanager
    def both(bus: Bus, *of_a_run: Any) -> Iterator[ProgressLine | None]:
        bus.subscribe(heard)
        with shown(bus, *of_a_run) as live:
            yield live

    pipeline.show_events = both
    try:
        yield
    finally:
        pipeline.show_events = shown


class Job:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.source: str = settings["source"]
        self.bootstrap: str = settings["bootstrap"]
        self.partitions: int = settings["partitions"]
        self.batch: int = settings["records_a_micro_batch"]
        self.brokers: list[int] = settings["broker_pids"]
        self.root = Path(settings["root"])
        self.spark: SparkSession = open_session("bench")
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.queries: list[StreamingQuery] = []
        self._keep_queries()

    def _keep_queries(self) -> None:
        """`run` starts its query itself: its progress is wanted for both kinds of arm."""
        start, queries = DataStreamWriter.start, self.queries

        def started(writer: DataStreamWriter, *args: Any, **kwargs: Any) -> StreamingQuery:
            queries.append(start(writer, *args, **kwargs))
            return queries[-1]

        DataStreamWriter.start = started

    def run(self, arm: str, number: int) -> dict[str, Any]:
        """One arm through the whole source, into a topic of its own."""
        name = f"{arm.replace('_', '-')}-{number}-{uuid.uuid4().hex[:6]}"
        self.admin.create_topics([NewTopic(name, self.partitions, 1)])[name].result(30)
        heard = Collected()
        forget_peaks(os.getsid(0))
        used, started = self._cpu_seconds(), time.monotonic()
        if arm == "eos":
            self._eos(name, heard)
        else:
            self._spark(name)
        seconds = time.monotonic() - started
        found = {
            "arm": arm,
            "round": number,
            "seconds": round(seconds, 3),
            "cpu_seconds": round(self._cpu_seconds() - used, 2),
            **self._progress(),
            "transactions_ms": [
                [round(ms, 1) for ms in (c.run_ms, c.ledger_ms, c.offsets_ms, c.end_ms)]
                for c in heard.commits
            ],
        }
        found |= peaks_mb(os.getsid(0))
        if arm == "eos":
            found["records"] = sum(commit.records_out for commit in heard.commits)
        self.admin.delete_topics([name])[name].result(30)
        return found

    def _cpu_seconds(self) -> float:
        """Of Spark with its workers, and of the broker."""
        return cpu_seconds_of_session(os.getsid(0)) + sum(map(cpu_seconds_of, self.brokers))

    def _progress(self) -> dict[str, Any]:
        progress = self._triggers()
        return {
            "records": sum(p["numInputRows"] for p in progress),
            "trigger_ms": [p["durationMs"]["triggerExecution"] for p in progress],
            "phases_ms": progress[-1]["durationMs"],
        }

    def _triggers(self) -> list[Any]:
        """Spark's progress of each trigger that read something. Spark does not count the rows that
        the Arrow reader reads, but has their offsets."""
        recent = self.queries[-1].recentProgress
        return [p for p in recent if any(s["startOffset"] != s["endOffset"] for s in p["sources"])]

    def _pipeline(self, name: str) -> Path:
        place = self.root / "pipelines" / name / "pipeline.yaml"
        place.parent.mkdir(parents=True)
        place.write_text(
            PIPELINE.format(name=name, source=self.source, target=name, records=self.batch)
        )
        return place

    def _eos(self, name: str, heard: Collected) -> None:
        place = self._pipeline(name)
        profile = self.root / "conf" / "bench.yaml"
        profile.parent.mkdir(exist_ok=True)
        profile.write_text(f"state: {{root: {self.root / 'state'}}}\n")
        with _heard_by(heard):
            pipeline.run(place, RunOptions(str(profile), self.bootstrap))

    def _spark(self, name: str) -> None:
        checkpoint = self.root / "checkpoint"
        shutil.rmtree(checkpoint, ignore_errors=True)
        stream = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.batch)
            .load()
            .select("key", "value")
        )
        writer = stream.writeStream.format("kafka").option("topic", name)
        writer = writer.option("kafka.bootstrap.servers", self.bootstrap)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query.start().awaitTermination()


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    job = Job(settings)
    with Path(settings["results"]).open("w") as results:
        for number in range(settings["rounds"] + 1):
            for arm in settings["arms"]:
                results.write(json.dumps(job.run(arm, number)) + "\n")
                results.flush()
    job.spark.stop()


if __name__ == "__main__":
    main()
