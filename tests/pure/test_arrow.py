"""Arrow columns without pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from eos.arrow import array_of, binaries

CHECKOUT = Path(__file__).parents[2]

# Every kind of column that a sink reads, and the receipts: what a worker does in its whole life.
WORK = """
import sys
import pyarrow as pa

from eos.encode.stage import EncodeStage
from eos.encode.sink_spec import SinkSpec
from eos.kafka.target_partitions import Targets
from eos.spark import tasks
from eos.ledger import receipt

rows = pa.ipc.open_stream(sys.stdin.buffer).read_next_batch()
named = dict(partition_column="where", timestamp_column="when")
sinks = SinkSpec("one"), SinkSpec(topic_column="to", **named)
stage = EncodeStage(sinks, Targets.of({"one": (3, 1 << 20), "two": (2, 1 << 20)}), 2, 1)
encoded = list(stage.encode(iter([rows]), 0))
assert sum(sum(batch["records"].to_pylist()) for batch in encoded) == 2 * rows.num_rows
one = receipt.Receipt("one", 0, 7, 0, 6, 100, 1)
assert receipt.rows({0: one}, {0: 7}).num_rows == 2
sys.exit("pandas" in sys.modules)
"""


def rows() -> pa.RecordBatch:
    when = pa.array([1_000_000, None, 3], pa.timestamp("us"))
    headers = pa.array([[("a", b"1")], None, []], _HEADERS)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"a", None, b"c"], pa.binary()),
            pa.array(["x", "y", None]),
            headers,
            pa.array([1, None, 0], pa.int32()),
            when,
            pa.array(["one", "two", "two"]),
        ],
        ["key", "value", "headers", "where", "when", "to"],
    )


_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_a_worker_never_loads_pandas() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows().schema) as stream:
        stream.write_batch(rows())
    done = subprocess.run(
        [sys.executable, "-c", WORK],
        input=sink.getvalue().to_pybytes(),
        cwd=CHECKOUT,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode() or "pandas was loaded"


@pytest.mark.parametrize("count", [0, 1, 9, 64])
def test_the_same_as_pyarrow_makes(count: int) -> None:
    flags = [each % 3 == 0 for each in range(count)]
    cases = [
        (flags, pa.bool_()),
        (range(count), pa.int32()),
        ([-1] * count, pa.int64()),
        (np.arange(count, dtype=np.int64), pa.int64()),
        (np.arange(2 * count, dtype=np.int64)[::2], pa.int32()),
    ]
    for values, kind in cases:
        made = array_of(values, kind)
        made.validate(full=True)
        assert made == pa.array(list(values), kind)
    made = binaries([b"x" * each for each in range(count)])
    made.validate(full=True)
    assert made == pa.array([b"x" * each for each in range(count)], pa.binary())
