"""Protobuf records that become far more as columns than they are as bytes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor import FieldDescriptor as Of
from support.kafka.schemas import add, descriptor_file, file_of, message

from eos.launch import spark as launch
from eos.local.java import AVRO_LIMITS
from eos.protobuf import arrays, limits, spark_functions
from eos.protobuf.arrays import TooLargeError, binaries
from eos.protobuf.decoder import read
from eos.protobuf.message import Message, message_in
from eos.seal import CrossingError
from eos.spark.session import executor_options

TESTS = Path(__file__).parents[1]
ORDER = message("shop.Order")
_GROWTH = """
import resource, sys
from support.kafka.schemas import message
from eos.protobuf.arrays import binaries
from eos.protobuf.decoder import read
ORDER = message("shop.Order")
raw = sys.stdin.buffer.read()
read(ORDER, binaries([b""]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert read(ORDER, binaries([raw, b""])).is_valid().to_pylist() == [False, True]
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) // (1 if sys.platform == "darwin" else 1 << 10))
"""


def tag(name: str, kind: int) -> bytes:
    number = ORDER.type.DESCRIPTOR.fields_by_name[name].number
    key = number << 3 | kind
    return bytes([key]) if key < 0x80 else bytes([key & 0x7F | 0x80, key >> 7])


def is_read(of: Message, raw: bytes) -> bool:
    (valid,) = read(of, binaries([raw])).is_valid().to_pylist()
    return bool(valid)


@pytest.mark.parametrize(
    "raw",
    [
        (tag("lines", 2) + b"\0") * 500_000,
        (tag("by", 2) + b"\0") * 300_000,
        (tag("kinds", 0) + b"\x07") * 500_000,
        tag("kinds", 2) + b"\xc0\x84\x3d" + b"\x07" * 1_000_000,  # packed
    ],
    ids=["messages", "entries", "enums", "packed enums"],
)
def test_a_megabyte_of_next_to_nothing_is_malformed_and_costs_nothing(raw: bytes) -> None:
    assert len(raw) < 1_100_000
    done = subprocess.run(
        [sys.executable, "-c", _GROWTH],
        input=raw,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) < 20  # MiB


def test_records_of_the_same_size_that_hold_something_are_read() -> None:
    line = ORDER.type.DESCRIPTOR.fields_by_name["lines"].message_type
    assert [each.type for each in line.fields] == [Of.TYPE_STRING, Of.TYPE_SINT32]
    for many in (
        ORDER.type(lines=[{"sku": f"sku {n}", "n": n} for n in range(70_000)]),
        ORDER.type(name="x" * 1_000_000),
        ORDER.type(raw=bytes(4_000_000)),
        ORDER.type(lines=[{"n": 1}] * 10_000),
    ):
        assert is_read(ORDER, many.SerializeToString())


def test_the_scan_depends_on_the_record_alone() -> None:
    """Beside any others, and again, it is as it was: an attempt that is redone gives the same."""
    bomb, good = (tag("lines", 2) + b"\0") * 500_000, ORDER.type(id=7).SerializeToString()
    assert read(ORDER, binaries([good, bomb, good])).is_valid().to_pylist() == [True, False, True]


def groups() -> Message:
    """`odd.Order` of proto2, with a group, an extension and wide messages."""
    file = file_of("odd", "proto2")
    order = file.message_type.add(name="Order")
    wide = file.message_type.add(name="Wide")
    for number in range(1, 200):
        add(wide, number, "int32", f"n{number}")
    add(order, 1, "repeated odd.Wide", "wide")
    add(order, 2, "repeated odd.Wide", "group")
    order.field[-1].type = Of.TYPE_GROUP
    order.extension_range.add(start=100, end=200)
    extension = file.extension.add(name="more", number=100, extendee=".odd.Order")
    extension.label, extension.type, extension.type_name = 3, Of.TYPE_MESSAGE, ".odd.Wide"
    return message_in(descriptor_file(file), "odd.Order")


@pytest.mark.parametrize(
    ("one", "is_whole"),
    [(b"\x0a\x00", True), (b"\x13\x14", True), (b"\xa2\x06\x00", True), (b"\x13", False)],
    ids=["message", "group", "extension", "open group"],
)
def test_wide_messages_of_every_kind_are_counted(one: bytes, is_whole: bool) -> None:
    of = groups()
    assert is_read(of, one) is is_whole
    assert is_read(of, one * 10) is is_whole
    assert not is_read(of, one * 200_000)


@pytest.mark.parametrize(
    "raw",
    [b"\xff" * 11, b"\x0a\x05", b"\x0c", b"\x0e\x00", b"\x09\x00", b"\x0d\x00", b"\x80"],
)
def test_what_is_no_message_is_null_where_it_is_scanned(
    raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BYTES_MAX", 0)
    monkeypatch.setattr(limits, "FACTOR_MAX", 0)
    assert not limits.fits(ORDER, raw)
    assert not is_read(ORDER, raw)


def test_offsets_that_arrow_does_not_reach_are_refused_before_there_are_as_many_bytes() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TooLargeError, match="2148532224 bytes or elements"):
        binaries([bytes(1 << 20)] * 2049)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < (1 << 30 if sys.platform == "darwin" else 1 << 20)


def test_an_arrow_batch_that_is_too_large_names_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[Any] = []
    monkeypatch.setattr(spark_functions, "_called", lambda function, *_: called.append(function))
    spark_functions.record(ORDER, "value")
    monkeypatch.setattr(arrays, "_OFFSET_MAX", 3)
    raw = ORDER.type(name="four").SerializeToString()
    column = pa.array([raw], pa.binary())
    with pytest.raises(CrossingError, match="maxRecordsPerBatch"):
        called[0](column)


def test_a_runs_jvm_has_avros_limits(tmp_path: Path) -> None:
    home = launch.find_spark()
    found = launch.environment(home, tmp_path, "local[2]", tmp_path, tmp_path)
    assert set(AVRO_LIMITS) < set(found["SPARK_SUBMIT_OPTS"].split())


def test_executors_have_avros_limits_before_the_users_options() -> None:
    assert executor_options("local[4]", "-Xmx1g") == ""
    for master in ("yarn", "spark://a:7077", "k8s://https://a", "local-cluster[1,1,1024]"):
        assert executor_options(master, "-Xmx1g").split() == [*AVRO_LIMITS, "-Xmx1g"]
        assert executor_options(master, "").split() == [*AVRO_LIMITS]
