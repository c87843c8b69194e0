"""What Protobuf costs beside Avro, which Spark reads and writes itself: the same orders."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

from bench.conftest import Figures
from pyspark.sql import DataFrame, SparkSession
from support.kafka.schemas import add, descriptor_file, file_of
from support.spark.spark_session import local_spark

from eos.config.sink import EncodedFormat, KafkaSink
from eos.config.source import KafkaSource
from eos.formats.expressions import Format
from eos.plan.names import Names
from eos.plan.outputs import Outputs, outputs
from eos.plan.plan import Plan
from eos.protobuf.message import message_in
from eos.read.decode import Decode
from eos.spark.sink_columns import sink_columns

ROWS, TURNS = 300_000, 5
KINDS = {
    "id": ("long", "int64", "id"),
    "customer": ("string", "string", "concat('customer-', id % 997)"),
    "amount": ("double", "double", "id / 4D"),
    "count": ("int", "int32", "int(id % 100)"),
    "is_paid": ("boolean", "bool", "id % 2 = 0"),
    "note": ("string", "string", "repeat('n', int(id % 20))"),
    "raw": ("bytes", "bytes", "CAST(CAST(id AS STRING) AS BINARY)"),
    "seen": ("long", "int64", "id * 1000"),
}


def test_reading_and_writing(figures: Figures, tmp_path: Path) -> None:
    fields = [{"name": name, "type": kind} for name, (kind, _, _) in KINDS.items()]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    file = file_of("shop")
    order = file.message_type.add(name="Order")
    for number, (name, (_, kind, _)) in enumerate(KINDS.items(), 1):
        add(order, number, kind, name)
    (tmp_path / "shop.desc").write_bytes(descriptor_file(file))
    message, names = message_in(descriptor_file(file), "shop.Order"), tuple(KINDS)
    reads = {
        "avro": Format("avro", schema, names),
        "protobuf": Format("protobuf", columns=names, message=message),
    }
    writes = {
        "avro": EncodedFormat(avro=schema),
        "protobuf": EncodedFormat(protobuf={"file": "shop.desc", "message": "shop.Order"}),
    }
    with local_spark("bench-protobuf") as spark:
        made = _orders(spark)
        took: dict[tuple[str, str], list[float]] = {}
        for turn in range(TURNS + 1):  # the first warms up
            for kind in ("avro", "protobuf"):
                sinks = (KafkaSink(topic="out", value=writes[kind]),)
                planned = _plan(outputs(sinks, tmp_path))
                out = sink_columns(made, planned)
                (value,) = planned.outputs.columns
                written = _took(out)
                kept = out.selectExpr(f"{value} AS value").cache()
                kept.count()
                rows = kept.selectExpr("CAST(NULL AS BINARY) AS key", "value", "'t' AS topic")
                rows = rows.selectExpr("*", "0 AS partition", "0L AS offset")
                read = _took(Decode(value=reads[kind], on_error="drop").apply(rows))
                kept.unpersist()
                if turn:
                    took.setdefault((kind, "written"), []).append(written)
                    took.setdefault((kind, "read"), []).append(read)
        for what in ("read", "written"):
            avro, ours = (statistics.median(took[kind, what]) for kind in ("avro", "protobuf"))
            told = f"{ours / avro:.1f} times as long ({ROWS / ours:,.0f} records/s)"
            figures.add(f"Protobuf {what}, of Avro {what}", told)


def _orders(spark: SparkSession) -> DataFrame:
    made = spark.range(0, ROWS, 1, 1)
    columns = [f"{sql} AS {name}" for name, (_, _, sql) in KINDS.items()]
    rows = made.selectExpr(*columns).cache()
    rows.count()
    return rows


def _took(frame: DataFrame) -> float:
    start = time.perf_counter()
    frame.write.format("noop").mode("append").save()
    return time.perf_counter() - start


def _plan(found: Outputs) -> Plan:
    return Plan(
        names=Names.of("", "bench", "/tmp"),
        bootstrap=(),
        source=KafkaSource(topic="in"),
        transforms=(),
        sinks=found.sinks,
        created_topics={},
        trigger_every_ms=None,
        transaction_timeout_ms=60_000,
        deployment="bench",
        outputs=found,
    )
