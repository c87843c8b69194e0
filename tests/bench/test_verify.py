"""How fast `eos verify` reads a finished run, source and targets, and what memory it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bench.conftest import Figures
from confluent_kafka import Producer
from support.copies.audit import CopyingPipeline, CopyingRun

from eos.deadline import Deadline
from eos.faults import CrashPlan
from eos.kafka.api import Identity
from eos.kafka.compression_type import Codec
from eos.kafka.records.record_batch import BatchSpan, Columns, encode_spans
from eos.kafka.records.sizes import layout
from eos.kafka.target_partitions import Targets
from eos.ledger import receipt
from eos.ledger.ranges import PlannedBatch
from eos.ledger.receipt import Receipt
from eos.local.embedded_kafka import EmbeddedKafka
from eos.transaction.writer import Writer

RECORDS = int(os.environ.get("EOS_BENCH_RECORDS", "4000000"))
PARTITIONS, STEPS, BATCH = 4, 8, 5000
VALUE = b'{"order_id": %09d, "customer": "%05d", "amount": %7.2f, "note": "%s"}'
NOTE = b"abcdefghijklmnopqrstuvwxyz0123456789" * 3  # 180 bytes in all

# What `getrusage` says of a process includes its parent's memory from before exec.
VERB = """
import sys
from support.verbs import verify
code = verify(sys.argv[1:])
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0], file=sys.stderr)
sys.exit(code)
"""


def values(start: int, count: int) -> list[bytes]:
    return [VALUE % (n, n % 99_991, n % 1000 * 1.19, NOTE) for n in range(start, start + count)]


class Fast(CopyingRun):
    """Writes as many records as it should have read, without reading them one by one."""

    def _copied(self, identity: Identity, step: PlannedBatch, _floors: Any) -> Sequence[Receipt]:
        targets = Targets.of({self.of.target: (PARTITIONS, 1_000_000)})
        names = self.of.planned().names
        late = Deadline.after_ms(600_000)
        writer = Writer(self.client, names.transactional_id, identity, targets, late, CrashPlan())
        planned = {}
        for tp, end in sorted(step.ends.items()):
            start = step.starts.get(tp, 0)
            count = end - start
            columns = Columns(
                pa.array([b"%d" % (n % 1000) for n in range(count)], pa.binary()),
                pa.array(values(start, count), pa.binary()),
            )
            spans = [BatchSpan(at, min(count, at + BATCH)) for at in range(0, count, BATCH)]
            for batch in encode_spans(
                layout(columns, int(time.time() * 1000)), spans, self.of.codec
            ):
                writer.add(tp.partition, batch.blob, batch.records, batch.digest)
                writer.advance()
            planned[tp.partition] = count
        rows = receipt.rows(writer.finish(), planned)
        return receipt.check((tuple(row.values()) for row in rows.to_pylist()), targets)


@pytest.mark.timeout(1800)
def test_records_a_second(broker: EmbeddedKafka, figures: Figures, tmp_path: Path) -> None:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    one = CopyingPipeline(
        tmp_path, broker.bootstrap, name, partitions=PARTITIONS, codec=Codec.LZ4, process=Fast
    )
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "compression.type": "lz4"}
    )
    for at in range(0, RECORDS, 50_000):
        for number, value in enumerate(values(at, 50_000)):
            producer.produce(one.source, value, partition=number % PARTITIONS)
        producer.flush(60)
    with one.running() as run:
        for _ in range(STEPS):
            run.step(RECORDS // PARTITIONS // STEPS)
        run.stop()
    one.audited()
    words = [sys.executable, "-c", VERB, *one.words, "--json"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    verified = sum(each["records"] for each in told["targets"].values())
    assert verified == RECORDS
    memory = int(done.stderr.split()[-1]) / 1024
    figures.keep("verify", {"records": verified, "seconds": told["seconds"], "memory_mb": memory})
    rate = verified / told["seconds"]
    figures.add("eos verify: target records", f"{rate:,.0f} records/s", "300,000")
    figures.add("eos verify: its largest memory", f"{memory:.0f} MB")
    one.close()
