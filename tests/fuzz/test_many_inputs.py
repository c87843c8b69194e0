"""A hundred thousand damaged inputs for each parser: a result, or the project's own error.

The inputs follow from a seed and from sound ones, of which bytes and words are changed: no search
and no shrinking as with Hypothesis, so that many fit into a night. Memory is bounded, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.protocol.consumer.fetch import FetchResponse
from kafka.record.default_records import DefaultRecordBatchBuilder
from support.inputs import damaged_inputs
from support.kafka.brokers import SegmentBatch
from support.kafka.schemas import message
from support.simulated_broker.wire import stored_at

from eos.checkpoint.offset_log import parse_ends, parse_query_id, parse_starts
from eos.config import avro
from eos.config.load import load_parts
from eos.config.registry import Registry
from eos.deadline import Backoff, Deadline
from eos.errors import EosError
from eos.formats.registry_client import RegistryClient
from eos.kafka import fetch_wire
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.fetch_wire import BrokenResponseError
from eos.kafka.records.batch_headers import Batch, batches
from eos.kafka.records.column_reader import ColumnReader
from eos.kafka.records.decompression import BrokenPayloadError, unpack
from eos.kafka.records.record_batch import stamp
from eos.ledger.decoder import decoded
from eos.ledger.record import Position, encoded
from eos.protobuf.arrays import binaries
from eos.protobuf.decoder import read

GROWTH_BYTES_MAX = 512 << 20
_LOOKS_EVERY = 1_000
_PAGE = os.sysconf("SC_PAGE_SIZE")

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

# --- what is parsed -------------------------------------------------------------------------------

PIPELINE = """\
version: 1
name: orders
source:
  kafka: {topic: orders, start: earliest, max_records: 20000}
  value: {json: "id BIGINT NOT NULL, amount DECIMAL(12,2), ts TIMESTAMP"}
  on_error: dead_letter
expect:
  - {name: not_negative, rule: amount >= 0, on_error: dead_letter}
transform:
  - sql: SELECT * FROM input WHERE amount > ${LEAST:-0}
  - python: pipelines.orders.transform:masked
    with: {visible: 2}
sink:
  kafka: {topic: out, key: id, value: json, create: {partitions: 4}}
  dead_letter: {topic: dead, create: {partitions: 2}}
trigger: {every: 1 second}
transaction: {timeout: 2 minutes}
tests:
  - {name: free, input: [{value: {id: 7, amount: 0}}], output: []}
"""
LEDGER_IDENTITY = Identity(77, 3)
METADATA = '{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"200"}}'
OFFSETS = '{"orders":{"1":9,"0":12},"pay-ments.v1":{"0":0}}'
ORDER = message("shop.Order")
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "lines", "type": {"type": "array", "items": "string"}, "default": []},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        ],
    }
)


def pipeline_file(raw: bytes) -> None:
    problems, _ = load_parts(Path("pipeline.yaml"), {}, text=raw.decode("utf-8", "replace"))
    assert all(problem.message for problem in problems)


def _ledger_record() -> bytes:
    ends = {TopicPartition("events", 0): 5, TopicPartition("events", 11): 9}
    owner = {"deployment": "/srv/a", "host": "h", "process": 17, "version": "0.1.0"}
    blob = encoded("p", owner, "start", Position(ends, {"events": "s5gk0nGTRPOMdg5sCf2vKg"}))
    return stored_at(stamp(blob, LEDGER_IDENTITY, 0), 0)[0].value or b""


def _stored() -> Callable[[bytes], None]:
    blob = stamp(encoded("p", {}, "start", Position({}, {})), LEDGER_IDENTITY, 0)
    (stored,) = stored_at(blob, 31)
    return lambda raw: decoded("p", "ledger", stored._replace(value=raw)) and None


def offset_log(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")
    for parse in (parse_ends, parse_starts, parse_query_id):
        with suppress(EosError):
            parse(text, "p/offsets/3")


def _record_batch() -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 1, 5, 3, 7, 1 << 20)
    for at in range(20):
        builder.append(at, 1_700_000_000_000, b"key", b"value" * at, [("h", b"1"), ("n", None)])
    return bytes(builder.build())


def record_batch(raw: bytes) -> None:
    """Once as it is, and once with a checksum that is right again."""
    for blob in (raw, bytes(SegmentBatch(raw).set()) if len(raw) > 61 else raw):
        with suppress(BrokenPayloadError):
            for batch in batches(blob):
                if isinstance(batch, Batch) and batch.is_sound:
                    reader = ColumnReader("orders", 3)
                    plain = unpack(batch.codec, batch.payload)
                    for each in reader.add(batch, plain, 0, 1 << 40):
                        each.validate(full=True)


def _fetch_response() -> bytes:
    topic = FetchResponse.FetchableTopicResponse
    part = topic.PartitionData(
        partition_index=1,
        error_code=0,
        high_watermark=9,
        last_stable_offset=9,
        log_start_offset=0,
        aborted_transactions=[
            topic.PartitionData.AbortedTransaction(producer_id=1, first_offset=2)
        ],
        preferred_read_replica=-1,
        records=_record_batch(),
    )
    response = FetchResponse(
        version=12,
        throttle_time_ms=0,
        error_code=0,
        session_id=0,
        responses=[topic(topic="orders", partitions=[part])],
    )
    response.with_header(correlation_id=77)
    return bytes(response.encode(header=True))


def fetch_response(raw: bytes) -> None:
    with suppress(BrokenResponseError):
        found = fetch_wire.fetch_response(memoryview(raw), 77)
        assert sum(len(each.records) for each in found.partitions.values()) <= len(raw)


def registry_response(raw: bytes) -> None:
    """Its status is what the first byte says."""
    status = (200, 200, 200, 404, 409, 500)[raw[0] % 6 if raw else 0]

    class Played:
        is_open = False

        @staticmethod
        def request(*_words: object) -> tuple[int, bytes]:
            return status, raw

    client = RegistryClient(Registry(url="http://r"))
    object.__setattr__(client, "_connection", Played())
    for call in (
        lambda: client.schema(7, Deadline.after_ms(50)),
        lambda: client.latest("s", Deadline.after_ms(50)),
        lambda: client.versions("s", Deadline.after_ms(50)),
    ):
        with suppress(EosError):
            call()


def _protobuf() -> bytes:
    order = {"id": 7, "name": "a", "lines": [{"sku": "x", "n": 3}], "by": {"k": {"sku": "y"}}}
    return bytes(ORDER.type(**order).SerializeToString())


def protobuf_message(raw: bytes) -> None:
    read(ORDER, binaries([raw])).validate(full=True)


def avro_schema(raw: bytes) -> None:
    with suppress(ValueError):  # what `eos.config` turns into a problem of the file
        avro.field_names(raw.decode("utf-8", "replace"))


@dataclass(frozen=True)
class Parser:
    name: str
    sound: Callable[[], bytes]
    parse: Callable[[bytes], None]


PARSERS = [
    Parser("pipeline files", PIPELINE.encode, pipeline_file),
    Parser("ledger records", _ledger_record, _stored()),
    Parser("offset logs", f"v1\n{METADATA}\n{OFFSETS}".encode, offset_log),
    Parser("record batches", _record_batch, record_batch),
    Parser("fetch responses", _fetch_response, fetch_response),
    Parser(
        "registry responses",
        lambda: json.dumps({"id": 3, "version": 1, "subject": "s", "schema": AVRO}).encode(),
        registry_response,
    ),
    Parser("Protobuf messages", _protobuf, protobuf_message),
    Parser("Avro schemas", AVRO.encode, avro_schema),
]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_each_input_is_parsed_or_refused_and_costs_nothing_that_stays(
    parser: Parser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "sleep", lambda *_: None)
    parser.parse(parser.sound())  # it is sound
    before = resident_bytes()
    for number, raw in enumerate(damaged_inputs(parser.name, parser.sound())):
        try:
            with suppress(EosError):
                parser.parse(raw)
        except Exception as error:
            raise AssertionError(f"input {number}: {raw[:500]!r}") from error
        if number % _LOOKS_EVERY == 0:
            assert resident_bytes() - before < GROWTH_BYTES_MAX, f"input {number}"
