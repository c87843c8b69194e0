"""Encoding on one core: records of 180 bytes with keys, lz4, against kafka-python's builder.

Both sides are timed in CPU seconds, in turns within one run, so that a busy machine slows both.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable

import pyarrow as pa
from kafka.record.memory_records import MemoryRecordsBuilder

from eos.encode.sink_spec import SinkSpec
from eos.encode.stage import EncodeStage
from eos.kafka.api import Identity
from eos.kafka.compression_type import Codec
from eos.kafka.records.record_batch import Columns, encode, stamp
from eos.kafka.target_partitions import Targets

BASE_MS = 1_700_000_000_000
IDENTITY = Identity(1, 1)
RECORDS_A_BATCH = 5_000  # about what fits into max.message.bytes
OUR_BATCHES = 40  # a round of ours is this much longer, so that both can be timed well
ARROW_ROWS = 10_000  # Spark's default


def records(count: int) -> tuple[list[bytes], list[bytes]]:
    """Keys, and values of 180 bytes that compress as JSON does: about three to one."""
    rng = random.Random(1)
    keys, values = [], []
    for number in range(count):
        customer = rng.randrange(100_000)
        value = (
            f'{{"order_id":{number},"customer":"c{customer:06d}","amount":{rng.random() * 900:.2f},'
            f'"currency":"EUR","status":"{rng.choice(["paid", "open", "sent"])}",'
            f'"ts":{BASE_MS + number * 7},"session":"{rng.getrandbits(64):016x}","note":"'
        )
        keys.append(b"c%06d" % customer)
        values.append((value + "standard delivery, leave at door "[: 178 - len(value)]).encode())
        values[-1] = values[-1].ljust(178, b".") + b'"}'
    return keys, values


def figures(rounds: int = 7) -> dict[str, float]:
    """Records a second, and how many times as fast as kafka-python: median, least and most."""
    keys, values = records(RECORDS_A_BATCH * OUR_BATCHES)
    key, value = pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    rows = pa.RecordBatch.from_arrays([key, value], names=["key", "value"])
    targets = Targets.of({"orders": (4, 1_048_588)})
    stage = EncodeStage((SinkSpec("orders"),), targets, n_writers=4, base_timestamp_ms=BASE_MS)

    def theirs() -> int:
        builder = MemoryRecordsBuilder(2, Codec.LZ4.value, 1 << 30)
        for each_key, each_value in zip(
            keys[:RECORDS_A_BATCH], values[:RECORDS_A_BATCH], strict=True
        ):
            builder.append(BASE_MS, each_key, each_value)
        builder.close()
        return RECORDS_A_BATCH

    def ours() -> int:
        for start in range(0, len(keys), RECORDS_A_BATCH):
            end = start + RECORDS_A_BATCH
            columns = Columns(key[start:end], value[start:end])
            stamp(encode(columns, Codec.LZ4, BASE_MS).blob, IDENTITY, start)
        return len(keys)

    def our_stage() -> int:
        batches = (rows.slice(at, ARROW_ROWS) for at in range(0, len(keys), ARROW_ROWS))
        return sum(sum(batch["records"].to_pylist()) for batch in stage.encode(batches, 0))

    for warm in (theirs, ours, our_stage):
        warm()
    rates = [(rate(theirs), rate(ours), rate(our_stage)) for _ in range(rounds)]
    ratios = [own / their for their, own, _ in rates]
    return {
        "kafka_python_records_per_s": round(statistics.median(r[0] for r in rates)),
        "encode_records_per_s": round(statistics.median(r[1] for r in rates)),
        "stage_records_per_s": round(statistics.median(r[2] for r in rates)),
        "encode_ratio": round(statistics.median(ratios), 1),
        "encode_ratio_least": round(min(ratios), 1),
        "encode_ratio_most": round(max(ratios), 1),
        "stage_ratio": round(statistics.median(s / t for t, _, s in rates), 1),
    }


def rate(work: Callable[[], int]) -> float:
    start = time.process_time()
    return work() / (time.process_time() - start)


if __name__ == "__main__":
    print(json.dumps(figures(), indent=2))
