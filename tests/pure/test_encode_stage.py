"""The stage: rows to record batches by target, manifests, limits, refusals that name the row."""

from __future__ import annotations

import itertools
import pickle
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pytest
from kafka.record import MemoryRecords
from support.errors import raises

from eos.encode.sink_spec import Partitioner, SinkSpec
from eos.encode.stage import SCHEMA, SPARK_SCHEMA, EncodeStage, read_manifest
from eos.errors import RecordRefusedError
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.compression_type import Codec
from eos.kafka.records.record_batch import HEADER_BYTES, stamp
from eos.kafka.target_partitions import Targets

pytestmark = pytest.mark.usefixtures("each_library")

TARGETS = Targets.of({"orders": (4, 1 << 20), "big": (3, 1 << 20)})


def stage(*sinks: SinkSpec, targets: Targets = TARGETS, **options) -> EncodeStage:
    return EncodeStage(
        sinks=sinks or (SinkSpec("orders"),),
        targets=targets,
        n_writers=options.pop("n_writers", 2),
        base_timestamp_ms=1000,
        **options,
    )


def rows(**columns: list) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def encode(some: EncodeStage, *batches: pa.RecordBatch, task: int = 0) -> list[dict]:
    """Every row that the stage yields, the manifest last."""
    out = []
    for batch in some.encode(iter(batches), task):
        assert batch.schema == SCHEMA
        assert all(column.null_count == 0 for column in batch.columns)
        out += batch.to_pylist()
    return out


def values_by_target(out: list[dict]) -> dict[int, list[bytes | None]]:
    found = defaultdict(list)
    for row in out[:-1]:
        stored = MemoryRecords(stamp(row["blob"], Identity(1, 1), 0))
        found[row["target"]] += [record.value for record in stored.next_batch()]
    return dict(found)


def test_rows_go_to_their_targets_in_order() -> None:
    keys = [b"k%d" % (i % 50) for i in range(3000)]
    values = [b"%d" % i for i in range(3000)]
    some = stage(chunk_rows_max=700)
    batches = [rows(key=keys[i : i + 500], value=values[i : i + 500]) for i in range(0, 3000, 500)]
    found = values_by_target(encode(some, *batches))
    assert sorted(itertools.chain(*found.values())) == sorted(values)
    assert set(found) == {0, 1, 2, 3}
    home = {}
    for target, some_values in found.items():
        numbers = [int(value) for value in some_values]
        assert numbers == sorted(numbers)
        for number in numbers:
            assert home.setdefault(keys[number], target) == target


def test_each_row_says_where_it_came_from_and_who_writes_it() -> None:
    out = encode(stage(n_writers=3), rows(key=[b"%d" % i for i in range(99)], value=[b"v"] * 99))
    assert [row["position"] for row in out] == list(range(len(out)))
    for row in out[:-1]:
        assert row["writer"] == row["target"] % 3
        assert row["records"] == int.from_bytes(row["blob"][57:61], "big")  # the header's count
        assert 0 <= row["digest"] < 2**32


def test_the_manifest_is_last_and_counts_every_record() -> None:
    out = encode(
        stage(chunk_rows_max=10),
        rows(key=[b"%d" % i for i in range(99)], value=[b"v"] * 99),
        task=5,
    )
    counts = defaultdict(int)
    for row in out[:-1]:
        counts[row["target"]] += row["records"]
    last = out[-1]
    assert (last["target"], last["writer"], last["source"], last["records"]) == (-1, 2, 5, 0)
    assert read_manifest(last["blob"]) == dict(counts)
    assert sum(counts.values()) == 99


@pytest.mark.parametrize("batches", [(), (rows(key=[], value=[]),)])
def test_a_task_without_rows_has_a_manifest_too(batches) -> None:
    (manifest,) = encode(stage(), *batches, task=7)
    assert (manifest["target"], manifest["source"], manifest["position"]) == (-1, 7, 0)
    assert read_manifest(manifest["blob"]) == {}


def test_every_row_goes_to_every_sink_in_its_own_codec() -> None:
    some = stage(SinkSpec("orders", codec=Codec.ZSTD), SinkSpec("big", codec=Codec.GZIP))
    out = encode(some, rows(key=[b"a", b"b"], value=[b"1" * 99, b"2" * 99]))
    found = values_by_target(out)
    for first, end in ((0, 4), (4, 7)):
        values = [v for target in range(first, end) for v in found.get(target, [])]
        assert sorted(values) == [b"1" * 99, b"2" * 99]
    codecs = {(row["target"] >= 4, row["blob"][22] & 7) for row in out[:-1]}
    assert codecs == {(False, 4), (True, 1)}


def test_the_topic_column_chooses_among_the_targets() -> None:
    some = stage(SinkSpec(topic_column="to"))
    out = encode(some, rows(key=[b"a"] * 3, value=[b"1", b"2", b"3"], to=["big", "orders", "big"]))
    found = values_by_target(out)
    assert [found[t] for t in sorted(found)] == [[b"2"], [b"1", b"3"]]
    assert min(found) < 4 <= max(found)


def test_the_partition_column_wins_where_it_is_not_null() -> None:
    some = stage(SinkSpec("big", partition_column="at"), SinkSpec("orders"))
    out = encode(some, rows(key=[b"a"] * 4, value=[b"1", b"2", b"3", b"4"], at=[2, None, 0, 1]))
    (free,) = values_by_target(encode(stage(SinkSpec("big")), rows(key=[b"a"], value=[b"x"])))
    expected = defaultdict(list)
    for value, target in ((b"1", 6), (b"2", free), (b"3", 4), (b"4", 5)):
        expected[target].append(value)
    found = {t: v for t, v in values_by_target(out).items() if t >= 4}
    assert found == expected


def test_timestamps_are_milliseconds_rounded_down_and_null_means_the_attempts() -> None:
    times = pa.array([1_999, -1, None], pa.timestamp("us"))
    batch = pa.RecordBatch.from_pydict(
        {"key": pa.nulls(3), "value": pa.array([b"a", b"b", b"c"]), "when": times}
    )
    some = stage(SinkSpec("orders", timestamp_column="when"))
    blob = encode(some, batch)[0]["blob"]
    found = [r.timestamp for r in MemoryRecords(stamp(blob, Identity(1, 1), 0)).next_batch()]
    assert found == [1, -1, 1000]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_timestamp_unit_is_the_same_moment(unit: str) -> None:
    times = pa.array([7_000], pa.int64()).cast(pa.timestamp("ms")).cast(pa.timestamp(unit, "UTC"))
    batch = pa.RecordBatch.from_pydict({"key": pa.nulls(1), "value": [b"a"], "when": times})
    blob = encode(stage(SinkSpec("orders", timestamp_column="when")), batch)[0]["blob"]
    assert int.from_bytes(blob[27:35], "big") == 7000


def test_headers_are_read_where_the_rows_have_them() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[("h", b"1"), ("h", None)]], kind)
    batch = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"v"], "headers": headers})
    for sink, expected in (
        (SinkSpec("orders"), [("h", b"1"), ("h", None)]),
        (SinkSpec("orders", headers_column=None), []),
    ):
        blob = encode(stage(sink), batch)[0]["blob"]
        (record,) = MemoryRecords(stamp(blob, Identity(1, 1), 0)).next_batch()
        assert [tuple(header) for header in record.headers] == expected


def test_a_missing_column_is_named() -> None:
    with raises("row_column_missing") as caught:
        encode(stage(), rows(key=[b"k"], other=[1]))
    assert caught.value.fields == {"column": "value"}
    assert "key, other" in caught.value.message


@pytest.mark.parametrize(("topic_bytes", "request_bytes"), [(2000, 1 << 20), (1 << 20, 2000)])
def test_record_batches_keep_to_the_smaller_limit(topic_bytes: int, request_bytes: int) -> None:
    targets = Targets.of({"orders": (2, topic_bytes)})
    noise = random.Random(3)
    values = [noise.randbytes(noise.randrange(300)) for _ in range(2000)]
    keys = [b"%d" % i for i in range(2000)]
    some = stage(targets=targets, record_batch_bytes_max=request_bytes)
    out = encode(some, rows(key=keys, value=values))
    sizes = [len(row["blob"]) for row in out[:-1]]
    assert max(sizes) <= 2000
    assert sorted(itertools.chain(*values_by_target(out).values())) == sorted(values)
    assert sum(sizes) / len(sizes) > 1700  # and fill it


def test_a_record_larger_than_the_limit_goes_alone_if_it_compresses() -> None:
    targets = Targets.of({"orders": (1, 2000)})
    values = [b"a", b"x" * 50_000, b"b"]
    out = encode(stage(targets=targets), rows(key=[None] * 3, value=values))
    assert [row["records"] for row in out[:-1]] == [1, 1, 1]
    assert values_by_target(out) == {0: values}


NOISE = random.Random(4).randbytes(3000)


def refusal(some: EncodeStage, batch: pa.RecordBatch) -> RecordRefusedError:
    with pytest.raises(RecordRefusedError) as caught:
        encode(some, batch, task=9)
    return pickle.loads(pickle.dumps(caught.value))  # it crosses to the driver


@pytest.mark.parametrize("is_in_rows", [True, False])
def test_a_record_that_fits_nowhere_is_refused_by_its_source(is_in_rows: bool) -> None:
    topic = {"__topic": ["in"] * 3} if is_in_rows else {}
    error = refusal(
        stage(targets=Targets.of({"orders": (1, 2000)}), source_topic="" if is_in_rows else "in"),
        rows(
            key=[b"a", b"b", b"c"],
            value=[b"", NOISE, b""],
            __at=[offset << 16 | 4 for offset in (70, 71, 72)],
            **topic,
        ),
    )
    size = HEADER_BYTES + 3000 + 10
    assert error.fields == {
        "source_topic": "in",
        "source_partition": 4,
        "source_offset": 71,
        "target": "orders",
        "target_partition": 0,
        "task": 9,
        "size_bytes": error.fields["size_bytes"],
        "limit_bytes": 2000,
        "setting": "max.message.bytes of topic orders",
    }
    assert size < error.fields["size_bytes"] < size + 50
    for part in ("in-4 at offset 71", "orders-0", "2000", "max.message.bytes", "encode task 9"):
        assert part in error.message
    assert "max.message.bytes of topic orders" in error.hint


def test_without_coordinates_it_is_refused_by_its_key() -> None:
    key = b"\n" + b"k" * 100
    error = refusal(
        stage(record_batch_bytes_max=2000, source_topic="in"),
        rows(key=[b"ok", key, None], value=[b"", NOISE, b""]),
    )
    assert r"the record with the key '\n" + "k" * 39 + "'..." in error.message
    assert error.fields["setting"] == "max_request_bytes"
    text = pa.array([b"\xff"]).view(pa.string())  # as the JVM may write it
    error = refusal(stage(record_batch_bytes_max=2000), rows(key=text, value=[NOISE]))
    assert r"the record with the key '\xff' is too large" in error.message
    error = refusal(stage(record_batch_bytes_max=2000), rows(key=[None], value=[NOISE]))
    assert "a record without a key is too large" in error.message


def test_the_refused_row_is_the_right_one_after_sorting_by_target() -> None:
    keys = [b"%d" % i for i in range(500)]
    for wrong in (0, 123, 499):
        values = [b"v"] * 500
        values[wrong] = NOISE
        error = refusal(stage(record_batch_bytes_max=2000), rows(key=keys, value=values))
        assert error.fields["key"] == repr(keys[wrong])[1:]


def test_topics_and_partitions_that_are_no_targets_are_refused() -> None:
    to_topic, to_partition = SinkSpec(topic_column="to"), SinkSpec("big", partition_column="to")
    for sink, wrong, message in (
        (to_topic, ["orders", "elsewhere"], "key 'b' has the topic 'elsewhere' in column to"),
        (to_topic, ["orders", None], "key 'b' has a null in the topic column to"),
        (to_partition, [0, 3], "key 'b' has partition 3, but its topic has the partitions 0 to 2"),
        (to_partition, [0, -1], "key 'b' has partition -1"),
    ):
        error = refusal(stage(sink), rows(key=[b"a", b"b"], value=[b"", b""], to=wrong))
        assert message in error.message


def test_the_same_rows_task_and_stage_yield_the_same_bytes() -> None:
    batch = rows(key=[None, b"a", b"b"] * 900, value=[b"%d" % i for i in range(2700)])
    some = stage()
    again = pickle.loads(pickle.dumps(some))
    assert again == some
    assert encode(some, batch, task=3) == encode(again, batch, task=3)


def test_keyless_tasks_and_micro_batches_begin_on_different_partitions() -> None:
    batch = rows(key=[None], value=[b"v"])
    begins = {
        (turn, task): encode(stage(turn=turn), batch, task=task)[0]["target"]
        for turn in range(2)
        for task in range(4)
    }
    assert [begins[0, task] for task in range(4)] == [0, 1, 2, 3]
    assert [begins[1, task] for task in range(4)] == [1, 2, 3, 0]


def test_keyless_rows_move_on_with_each_chunk() -> None:
    batch = rows(key=[None] * 100, value=[b"v"] * 100)
    some = stage(chunk_rows_max=10)
    found = values_by_target(encode(some, batch))
    assert set(found) == {0, 1, 2, 3}
    assert max(map(len, found.values())) <= 2 * min(map(len, found.values()))


def test_round_robin_spreads_one_key() -> None:
    some = stage(SinkSpec("orders", partitioner=Partitioner.ROUND_ROBIN))
    found = values_by_target(encode(some, rows(key=[b"k"] * 8, value=[b"v"] * 8)))
    assert {target: len(values) for target, values in found.items()} == {0: 2, 1: 2, 2: 2, 3: 2}


def test_rows_are_taken_as_they_are_needed_and_given_in_bounded_pieces() -> None:
    taken = given = held_most = 0

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal taken, held_most
        for _ in range(50):
            taken += 1
            held_most = max(held_most, 10 * taken - given)
            yield rows(key=[None] * 10, value=[b"v" * 10_000] * 10)

    some = stage(SinkSpec("orders", codec=Codec.NONE), chunk_bytes_max=250_000)
    for batch in some.encode(source(), 0):
        given += sum(batch["records"].to_pylist())
        assert batch.nbytes < 260_000
    assert given == 500
    assert held_most <= 30  # a chunk of 20 rows, and the 10 that did not fit


def test_one_arrow_batch_larger_than_a_chunk_is_cut_up() -> None:
    values = [b"%6d" % i * 1000 for i in range(300)]
    some = stage(SinkSpec("orders", codec=Codec.NONE), chunk_bytes_max=100_000)
    out = list(some.encode(iter([rows(key=[b"k"] * 300, value=values)]), 0))
    assert max(batch.nbytes for batch in out) < 120_000
    (partition,) = values_by_target(encode(some, rows(key=[b"k"], value=[b""])))
    flat = [row for batch in out for row in batch.to_pylist()]
    assert values_by_target(flat) == {partition: values}


def test_the_executors_side_loads_neither_spark_nor_settings() -> None:
    program = (
        "import sys, eos.encode.stage\n"
        "loaded = {m.split('.')[0] for m in sys.modules} & {'pyspark', 'yaml', 'pydantic', 'kafka',"
        " 'pandas'}\n"
        "assert not loaded, loaded\n"
        "assert not any(m.startswith('eos.config') for m in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_the_spark_schema_says_the_same() -> None:
    words = {"int32": "int", "int64": "bigint", "binary": "binary"}
    fields = ", ".join(f"{f.name} {words[str(f.type)]}" for f in SCHEMA)
    assert fields == SPARK_SCHEMA


def test_targets_are_numbered_topic_by_topic() -> None:
    assert TARGETS.first("big") == 4
    assert TARGETS.count("big") == 3
    assert TARGETS.topics == ("orders", "big")
    assert TARGETS.partitions[5] == TopicPartition("big", 1)
    assert pickle.loads(pickle.dumps(TARGETS)) == TARGETS


@pytest.mark.parametrize(
    "partitions",
    [
        (("a", 1),),
        (("a", 0), ("a", 2)),
        (("a", 0), ("b", 0), ("a", 0)),
        (("a", 0), ("a", 0)),
    ],
)
def test_targets_out_of_order_are_refused(partitions) -> None:
    with pytest.raises(ValueError, match=r"order|twice"):
        Targets(tuple(TopicPartition(*each) for each in partitions), (1,) * len(partitions))


def test_a_sink_has_one_way_to_its_topic() -> None:
    for wrong in ({}, {"topic": "a", "topic_column": "b"}):
        with pytest.raises(ValueError, match="either a topic or a topic column"):
            SinkSpec(**wrong)


def test_a_sink_takes_its_rows_only_in_their_order() -> None:
    big = SinkSpec("big", key_column="id", where_column="chosen")
    some = stage(SinkSpec("orders", where_column="other"), big, chunk_rows_max=40)
    columns = {"key": [None] * 100, "id": [b"same"] * 100, "value": [b"%d" % n for n in range(100)]}
    chosen, other = [n % 3 == 0 for n in range(100)], [40 <= n < 80 for n in range(100)]
    batch = rows(**columns, chosen=chosen, other=other)
    out = encode(some, batch)
    found = values_by_target(out)
    in_orders = sorted(int(v) for target in range(4) for v in found.get(target, []))
    assert in_orders == list(range(40, 80))
    (in_big,) = (values for target, values in found.items() if target >= 4)
    assert [int(v) for v in in_big] == list(range(0, 100, 3))
    assert sum(read_manifest(out[-1]["blob"]).values()) == 40 + 34


def test_the_topic_column_names_topics_of_its_own_sink_only() -> None:
    some = stage(SinkSpec(topic_column="to", topics=("orders",)), SinkSpec("big"))
    error = refusal(some, rows(key=[b"a"], value=[b""], to=["big"]))
    assert (error.code, error.fields["target"]) == ("row_topic_unknown", "big")
