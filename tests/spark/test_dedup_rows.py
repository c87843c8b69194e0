"""Accepted rows are counted as they pass: the source may have lost validated records since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.dedup import policy, versions_in
from support.errors import raises
from support.spark.spark_session import local_spark

from eos.dedup.header_stamps import numbers
from eos.dedup.stamp_columns import StampPlace, StampRules
from eos.dedup.verdict_lookup import VerdictLookup
from eos.kafka.api import TopicPartition
from eos.spark.dedup_columns import counted, require_counted, validating

pytestmark = pytest.mark.spark

DEDUP = StampRules(
    StampPlace("header", "p"),
    StampPlace("header", "e"),
    StampPlace("header", "s"),
    policy(window=9),
)
LOOKUP = VerdictLookup("orders", (), {TopicPartition("t", 0): 2, TopicPartition("t", 1): 1})


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("dedup_rows") as session:
        yield session


def rows(spark: SparkSession, *partitions: int) -> DataFrame:
    made = [("t", partition, offset) for offset, partition in enumerate(partitions)]
    return spark.createDataFrame(made, "topic STRING, partition INT, offset BIGINT")


@pytest.mark.parametrize(
    ("place", "column", "wanted"),
    [
        # The last of that name; a name that has letters of the SQL's own; none; one without bytes.
        (StampPlace("header", "h"), "headers", {1: "2", 2: None, 3: None}),
        (StampPlace("header", "it's.\\n"), "headers", {1: "7"}),
        (StampPlace("value", "n"), "value", {1: "5", 2: "x y", 3: None, 4: None}),
        (StampPlace("value", "m.n"), "value", {1: "6", 2: None}),
        (StampPlace("key"), "key", {1: "k", 2: None}),
    ],
)
def test_a_stamp_is_read_where_the_pipeline_says(spark, place, column, wanted):
    made = {
        "headers": [
            [("h", b"1"), ("it's.\\n", b"7"), ("h", b"2"), ("x", b"3"), ("y", b"4")],
            [("x", b"3")],
            [("h", None)],
        ],
        "value": [b'{"n": 5, "m": {"n": 6}}', b'{"n": "x y", "m": 6}', b'{"n": null}', b"no"],
        "key": [b"k", None],
    }[column]
    types = {"headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>"}
    schema = f"row INT, {column} {types.get(column, 'BINARY')}"
    frame = spark.createDataFrame(list(enumerate(made, 1)), schema)
    found = {row[0]: row[1] for row in frame.selectExpr("row", f"{place.sql} AS at").collect()}
    read = {row: None if found[row] is None else bytes(found[row]).decode() for row in wanted}
    assert read == wanted


def test_a_number_that_is_none_is_null(spark):
    texts = [b"5", b" 7 ", b"-1", b"1.5", b"x", b"", b"9" * 30, None]
    frame = spark.createDataFrame([(each,) for each in texts], "key BINARY")
    _, number, _ = replace(DEDUP, epoch=StampPlace("key")).columns
    found = [row[0] for row in frame.selectExpr(number).collect()]
    assert found == [5, 7, -1, None, None, None, None, None]


ODD = [
    *(b"", b"+", b"-", b"- 1", b"-0", b"+7", b"--7", b"1.", b"1.5", b"1e3", b"0x10", b"1_0", b"1L"),
    *(b"0" * 40 + b"12", b"0" * 40, b"1" * 17, b"1" * 18, b"1" * 19, b"9" * 19, b"1" * 20, b"5\n6"),
    *(str(bound + more).encode() for bound in (2**63, -(2**63)) for more in (-1, 0, 1)),
    *(bytes([each, 0x35, each]) for each in range(256)),
    *(
        b"1\xc2\xa0",
        b"\xc2\x855",
        "\u0661".encode(),
        b"\xff\xfe",
        b"1\x00\x00",
        b" \x7f\t8\n\r ",
        None,
    ),
]


def test_a_number_in_a_header_that_python_reads_is_sparks(spark):
    """Each by itself, too: digits alone take a shorter way."""
    _, number, _ = replace(DEDUP, epoch=StampPlace("key")).columns
    frame = spark.createDataFrame([(each,) for each in ODD], "key BINARY").coalesce(1)
    wanted = [row[0] for row in frame.selectExpr(number).collect()]
    assert numbers(pa.array(ODD, pa.binary())).to_pylist() == wanted
    assert [numbers(pa.array([each], pa.binary()))[0].as_py() for each in ODD] == wanted
    assert sum(each is not None for each in wanted) > 40


def test_validated_records_that_are_missing_end_the_attempt(spark):
    expected = {
        "2 records of t-0, but 1 were": (0, 1),
        "1 records of t-1, but 0 were": (0, 0),
    }
    for words, partitions in expected.items():
        there = rows(spark, *partitions)
        job = counted(there, DEDUP)
        job.collect()
        with raises("source_changed_during_attempt") as caught:
            require_counted(job, there, LOOKUP)
        assert words in caught.value.message


def test_complete_rows_are_not_read_again(spark):
    there, gone = rows(spark, 0, 1, 0), rows(spark, 0)
    job = counted(there, replace(DEDUP, verdict="how"))
    assert {row["how"] for row in job.collect()} == {"appended"}
    require_counted(job, gone, LOOKUP)


def test_rows_that_steps_read_twice_or_not_at_all_are_counted_again(spark):
    there, gone = rows(spark, 0, 1, 0), rows(spark, 0, 1)
    once = counted(there, DEDUP)
    for job in (once.union(once), once.where("false"), once.where("offset < 0")):
        job.collect()
        require_counted(job, there, LOOKUP)
    twice = once.union(once)
    assert len(twice.collect()) == 6
    with raises("source_changed_during_attempt"):
        require_counted(twice, gone, LOOKUP)


def test_any_number_of_validating_tasks_gives_the_same_verdicts(spark, tmp_path):
    """One that holds all stamps, one after a shuffle, or several; of two topics, and with parts
    of the source that have no rows."""
    sent = [
        (topic, partition, offset, who, 0, offset)
        for topic in ("a", "b")
        for partition in (0, 3)
        for offset in range(150)
        for who in [f"{topic}-{partition}-{offset % 7}" if offset % 10 else None]
    ]
    stamps = "topic STRING, partition INT, offset BIGINT, who STRING, epoch INT, number BIGINT"
    texts = {"p": "who", "e": "CAST(epoch AS STRING)", "s": "CAST(number AS STRING)"}
    headers = ", ".join(f"struct('{n}', CAST({text} AS BINARY))" for n, text in texts.items())
    typed = f"CAST(array({headers}) AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"
    frame = spark.createDataFrame(sent, stamps).repartition(9)
    frame = frame.selectExpr("topic", "partition", "offset", typed)
    said = []
    for tasks in (0, 1, 3):
        opened = versions_in(tmp_path / str(tasks), policy(window=9)).begin("")
        assert validating(frame, DEDUP, opened.stage, tasks).collect() == []
        said.append((opened.lookup().counts, opened.commit().summary))
    assert all(each == said[0] for each in said)
    counts, expected = said[0]
    assert counts == {TopicPartition(topic, n): 150 for topic in ("a", "b") for n in (0, 3)}
    assert expected["verdicts"]["unstamped"] == 60
    assert expected["states"] == 28
