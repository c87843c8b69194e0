"""Spark's tasks that read Kafka without the JVM return the rows of Spark's own Kafka source."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from support.errors import raises
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.kafka.varied_topics import VariedTopics
from support.spark.spark_session import local_spark

from eos import seal
from eos.errors import KafkaRefusedError
from eos.formats.json_columns import JsonParser
from eos.formats.json_schema import JsonField
from eos.kafka.api import TopicPartition
from eos.kafka.range_fetcher import Range
from eos.kafka.read_amounts import ReadAmounts
from eos.kafka.settings import KafkaSettings
from eos.read.kafka_source import SparkKafkaSource
from eos.read.ranges import divide
from eos.spark.arrow_source import ArrowSource
from eos.spark.failure import Failure
from eos.spark.fused_step import parsed
from eos.spark.read_report import ReadReport
from eos.testing import require_same_rows

pytestmark = pytest.mark.spark

Offsets = dict[TopicPartition, tuple[int, int]]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("arrow source") as session:
        session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        yield session


@pytest.fixture(scope="module")
def varied(broker: Kafka) -> VariedTopics:
    return VariedTopics.made(broker.bootstrap)


def arrow(spark: SparkSession, bootstrap: str, tasks: list[list[Range]]) -> DataFrame:
    return ArrowSource(KafkaSettings((bootstrap,)), None, tasks).frame(spark)


def sparks(spark: SparkSession, bootstrap: str, offsets: Offsets) -> DataFrame:
    starts = {tp: start for tp, (start, _) in offsets.items()}
    source = SparkKafkaSource(bootstrap, [], 1, None, starts)
    return source.records(spark, {tp: end for tp, (_, end) in offsets.items()})


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


def test_all_rows_and_columns_are_those_of_sparks_source(
    spark: SparkSession, varied: VariedTopics
) -> None:
    offsets = {tp: (start, end) for tp, start, end in varied.ranges}
    ours = arrow(spark, varied.bootstrap, divide(offsets, 3, splits=False))
    theirs = sparks(spark, varied.bootstrap, offsets)
    assert ours.rdd.getNumPartitions() == 3
    assert ours.count() > 15_000
    require_same_rows(ours, theirs)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_ranges_begin_and_end_anywhere_and_rows_are_in_the_order_of_the_log(
    spark: SparkSession, varied: VariedTopics, seed: int
) -> None:
    chance = random.Random(seed)
    offsets = {}
    for tp, start, end in varied.ranges:
        first, last = sorted(chance.randint(start, end) for _ in range(2))
        if first < last:
            offsets[tp] = first, last
    rows = arrow(spark, varied.bootstrap, divide(offsets, 4, splits=True)).collect()
    for tp in offsets:
        of = [row.offset for row in rows if (row.topic, row.partition) == tp]
        assert of == sorted(of)
    assert in_order(rows) == in_order(sparks(spark, varied.bootstrap, offsets).collect())


def test_tasks_report_the_trace_contexts_of_their_records(
    spark: SparkSession, broker: Kafka
) -> None:
    topic, contexts = "traced", [f"00-{number:032x}-{number:016x}-01" for number in range(3)]
    kafka_io.create_topics(broker.bootstrap, len(contexts), topic)
    kafka_io.write_records(
        broker.bootstrap,
        topic,
        [
            kafka_io.Record(number % 3, b"", b"", (("traceparent", each.encode()),), 0)
            for number, each in enumerate(contexts * 2)
        ],
    )
    tasks = [[Range(TopicPartition(topic, number), 0, 2)] for number in range(len(contexts))]
    report = ReadReport(spark, with_traces=True)
    source = replace(ArrowSource(KafkaSettings((broker.bootstrap,)), None, tasks), report=report)
    assert source.frame(spark).count() == 6
    assert sorted(report.contexts) == contexts
    whole = report.amounts
    assert whole.records == {topic: 6}
    report.clear()
    assert (report.contexts, report.amounts) == ((), ReadAmounts())
    assert arrow(spark, broker.bootstrap, tasks[:1]).count() == 2
    assert report.contexts == (), "only a source with a report adds to it"
    assert replace(source, ranges=tasks[:1]).frame(spark).count() == 2
    assert report.contexts == (contexts[0],)
    assert report.amounts.records == {topic: 2}
    assert 0 < report.amounts.bytes[topic] < whole.bytes[topic]
    untraced = ReadReport(spark, with_traces=False)
    assert replace(source, report=untraced).frame(spark).count() == 6
    assert (untraced.contexts, untraced.amounts) == ((), whole)


def test_a_timestamp_has_a_zone_whatever_sparks_default_is(
    spark: SparkSession, broker: Kafka
) -> None:
    topic, text = "zoned", b'{"at": "2026-01-02T03:04:05Z"}'
    kafka_io.create_topics(broker.bootstrap, 1, topic)
    kafka_io.write_records(broker.bootstrap, topic, [kafka_io.Record(0, b"k", text, (), 0)])
    tasks = [[Range(TopicPartition(topic, 0), 0, 1)]]
    parser = JsonParser("value", (JsonField("at", "timestamp"),))
    source = ArrowSource(KafkaSettings((broker.bootstrap,)), None, tasks, parsers=(parser,))
    expected = source.frame(spark)
    assert expected.collect()[0]["__eos_value_0"] is not None
    parsed.cache_clear()
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        found = source.frame(spark)
        assert (found.schema, found.collect()) == (expected.schema, expected.collect())
    finally:
        spark.conf.unset("spark.sql.timestampType")
        parsed.cache_clear()


def test_columns_that_are_not_asked_for_are_null(spark: SparkSession, broker: Kafka) -> None:
    topic, texts = "some-columns", [b'{"id": 1}', b"{", None]
    kafka_io.create_topics(broker.bootstrap, 1, topic)
    records = [kafka_io.Record(0, b"k", text, (("h", b"v"),), 0) for text in texts]
    kafka_io.write_records(broker.bootstrap, topic, records)
    tasks = [[Range(TopicPartition(topic, 0), 0, 3)]]
    parser = JsonParser("value", (JsonField("id", "int"),))
    source = ArrowSource(KafkaSettings((broker.bootstrap,)), None, tasks, parsers=(parser,))
    whole = source.frame(spark)
    assert [row["__eos_value_0"] for row in whole.collect()] == [1, None, None]
    assert [row["__eos_value_left"] for row in whole.collect()] == [None, texts[1], None]
    for names in ({"key", "__eos_value_0"}, {"headers", "timestamp"}, set()):
        some = replace(source, columns=frozenset(names)).frame(spark)
        assert some.schema == whole.schema
        for ours, theirs in zip(some.collect(), whole.collect(), strict=True):
            # Even without any column the JVM gets the offsets, to count the rows.
            kept = names or {"offset"}
            expected = {n: v if n in kept else None for n, v in theirs.asDict().items()}
            assert ours.asDict() == expected


def test_an_error_of_a_task_reaches_the_driver_as_itself(
    spark: SparkSession, varied: VariedTopics
) -> None:
    lost = Range(TopicPartition(f"{varied.name}.shapes", 9), 0, 1)
    with pytest.raises(Exception, match="kafka_unknown") as caught:
        arrow(spark, varied.bootstrap, [[lost]]).collect()
    error = seal.crossed(Failure.of(caught.value).text)
    assert isinstance(error, KafkaRefusedError)
    with raises("kafka_unknown_topic_or_partition"):
        raise error


def test_without_ranges_there_are_no_rows(spark: SparkSession, broker: Kafka) -> None:
    assert arrow(spark, broker.bootstrap, []).collect() == []
