"""Spark's Kafka sink, at least once. Arguments: port, Kafka's address, folder, `tuned` or not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers.programs.turns import Turn, serve
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from eos.local.processes import die_with_parent

CODEC = {"compression.type": "lz4"}  # the same for all peers
# What a user sets who wants it to be fast.
TUNED_SINK = {"linger.ms": "20", "batch.size": "262144"}
TUNED_SOURCE = {"max.poll.records": "10000"}
ORDER = "order_id BIGINT, customer STRING, amount DOUBLE, status STRING"


class Peer:
    def __init__(self, bootstrap: str, folder: Path, *, is_tuned: bool) -> None:
        self.spark = SparkSession.builder.getOrCreate()
        self.bootstrap, self.folder = bootstrap, folder
        self.source_options = TUNED_SOURCE if is_tuned else {}
        self.sink_options = {**CODEC, **(TUNED_SINK if is_tuned else {})}

    def run(self, turn: Turn) -> None:
        source = self.kafka(self.spark.readStream, self.source_options)
        source = source.option("subscribe", turn.source).option("startingOffsets", "earliest")
        source = source.option("includeHeaders", turn.kind == "dedup")
        rows = worked(source.option("maxOffsetsPerTrigger", turn.batch).load(), turn)
        if turn.kind == "delta":
            writer = rows.writeStream.foreachBatch(self.to_both(turn))
        else:
            writer = self.sink(rows.writeStream, turn)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoints" / turn.target))
        writer.trigger(availableNow=True).start().awaitTermination()

    def kafka(self, builder: Any, options: dict[str, str]) -> Any:
        builder = builder.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return builder.options(**{f"kafka.{name}": value for name, value in options.items()})

    def sink(self, writer: Any, turn: Turn) -> Any:
        writer = self.kafka(writer, self.sink_options)
        return writer if turn.kind == "fan_out" else writer.option("topic", turn.target)

    def to_both(self, turn: Turn) -> Any:
        """Write a micro-batch to Kafka and to a Delta table, as Delta's documentation shows."""

        def write(rows: DataFrame, number: int) -> None:
            rows.persist()
            self.sink(rows.select("key", as_json()).write, turn).save()
            table = rows.select(*TAXED).write.format("delta").mode("append")
            table = table.option("txnAppId", turn.target).option("txnVersion", number)
            table.save(str(self.folder / "lake" / turn.target))
            rows.unpersist()

        return write


TAXED = ["order_id", "customer", "amount", "gross"]


def as_json() -> Any:
    return f.to_json(f.struct(*TAXED)).alias("value")


def worked(rows: DataFrame, turn: Turn) -> DataFrame:
    if turn.kind == "dedup":  # it drops nothing, but writes as much as eos does
        return rows.select("key", "value", "headers")
    rows = rows.select("key", "value")
    if turn.kind == "pandas":
        return rows.mapInPandas(unchanged, "key BINARY, value BINARY")
    if turn.kind in {"json", "delta"}:
        order = f.from_json(f.col("value").cast("string"), ORDER)
        rows = rows.select("key", order.alias("order")).where("order.status <> 'open'")
        rows = rows.selectExpr("key", "order.*", "order.amount * 1.19 AS gross")
        return rows.select("key", as_json()) if turn.kind == "json" else rows
    if turn.kind == "fan_out":
        return rows.withColumn("topic", f.explode(f.array(*map(f.lit, turn.targets))))
    return rows


def unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


if __name__ == "__main__":
    die_with_parent()
    peer = Peer(sys.argv[2], Path(sys.argv[3]), is_tuned=sys.argv[4] == "tuned")
    serve(int(sys.argv[1]), peer.run)
    peer.spark.stop()
