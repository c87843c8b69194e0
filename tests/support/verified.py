"""Finished runs for `eos verify`: a pipeline without Spark that writes its targets, with a real
ledger, group, checkpoint and audit table, and hands that change what lies in a log afterwards."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa

from eos.audit.projection import Projection
from eos.audit.table import TransactionsTable
from eos.audit.updater import location_of
from eos.config.load import load_profile
from eos.deadline import Backoff
from eos.errors import AttemptFailedError, EosError, report
from eos.faults import CrashPlan
from eos.kafka.api import Identity
from eos.kafka.compression_type import Codec
from eos.kafka.records.record_batch import Columns, encode
from eos.kafka.target_partitions import Targets
from eos.ledger import receipt
from eos.ledger.ranges import PlannedBatch
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends
from eos.startup.ownership import RunLock
from eos.transaction.writer import Writer
from support import outside
from support.recovered import Folder, Pipeline, Running, Said, soon
from support.verbs import verify
from support.work import Work

RECORD_BATCH = 5
PARTITIONS = 2


@dataclass
class Finished(Pipeline):
    """Partition n of the source is copied to partition n of `{name}.out`."""

    codec: Codec = Codec.NONE
    process: type[Copying] = field(default_factory=lambda: Copying, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.create(self.target, self.partitions)

    @property
    def target(self) -> str:
        return f"{self.name}.out"

    @property
    def ledger(self) -> str:
        return self.planned().names.ledger

    @contextlib.contextmanager
    def running(self, *, take_over: bool = False) -> Iterator[Copying]:
        planned = self.planned()
        with contextlib.closing(RunLock(planned)) as lock:
            lock.take(is_forced=take_over)
            yield self.process(self, planned, take_over)

    def ran(self, *records: int) -> Finished:
        """With its audit table, as a run leaves it."""
        super().ran(*records)
        self.audited()
        return self

    @property
    def table(self) -> Path:
        location = location_of(load_profile(self.words[2], self.folder))
        assert location is not None
        return location

    def audited(self) -> None:
        names = self.planned().names
        made = Projection(TransactionsTable(self.table), self.asks, names.pipeline, names.ledger)
        deadline, backoff = soon(), Backoff()
        while not made.catch_up(deadline).is_settled:
            assert not deadline.has_passed
            backoff.sleep(deadline)

    def verify(self, *words: str) -> Said:
        """`eos verify`, in this process."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = verify([*self.words, *words])
            except EosError as error:
                code = report(error)
        return Said(code, out.getvalue(), err.getvalue())

    def found(self, *words: str) -> dict[str, Any]:
        """What a verification says, which ended with 1."""
        said = self.verify("--json", *words)
        assert said.code == 1, said
        return said.json

    def set_topic(self, topic: str, **values: str) -> None:
        outside.set_topic(self.bootstrap, topic, **values)

    def attempts(self) -> list[Mapping[str, Any]]:
        """The ledger's, as a stranger reads them: with `offset`, and receipts by partition."""
        rows = outside.read(self.bootstrap, self.ledger)
        found = [{**json.loads(row.value or b"{}"), "offset": row.offset} for row in rows]
        return [
            {**each, "receipts": {r["partition"]: r for r in each["attempt"]["receipts"]}}
            for each in found
            if each["kind"] == "attempt"
        ]


class Copying(Running):
    def step(self, records: int = 1_000_000, *, is_noted: bool = True) -> None:
        step = self.plan(records)
        work = Work(lambda identity, floors: self._copied(identity, step, floors))
        self.batches.run(step, work)
        self.settled()
        if is_noted:
            self.spark.commit(step.batch_id)

    def __init__(self, pipeline: Finished, planned: Any, take_over: bool) -> None:
        super().__init__(pipeline, planned, take_over)
        self.of = pipeline
        self.spark = Whole(self.spark.path)
        self.fails = 0  # so many attempts die once they have written

    def _copied(self, identity: Identity, step: PlannedBatch, floors: Ends) -> Sequence[Receipt]:
        topic = self.wire.topics([self.of.target], soon())[self.of.target]
        targets = Targets.of({self.of.target: (topic.partitions, 1_000_000)})
        names = self.of.planned().names
        writer = Writer(self.wire, names.transactional_id, identity, targets, soon(), CrashPlan())
        planned: dict[int, int] = {}
        for tp, end in sorted(step.ends.items()):
            start = floors.get(tp, step.starts.get(tp, 0))
            records = self.wire.read_records(tp, start, end, committed=True, deadline=soon())
            for at in range(0, len(records), RECORD_BATCH):
                part = records[at : at + RECORD_BATCH]
                values = [b"%06d" % int(each.value or b"") for each in part]  # all as long
                columns = Columns(
                    key=pa.array([b"key"] * len(part), pa.binary()),
                    value=pa.array(values, pa.binary()),
                )
                batch = encode(columns, self.of.codec, int(time.time() * 1000))
                writer.add(tp.partition, batch.blob, batch.records, batch.digest)
            writer.advance()
            planned[tp.partition] = len(records)
        rows = receipt.rows(writer.finish(), planned)
        if self.fails:
            self.fails -= 1
            raise AttemptFailedError("example", "the test wants it so")
        return receipt.check((tuple(row.values()) for row in rows.to_pylist()), targets)


class Whole(Folder):
    """Its files are there as a whole or not at all, as Spark writes them: somebody may look."""

    def plan(self, number: int, ends: Ends) -> None:
        aside = Folder(self.path / "aside")
        (aside.path / "offsets").mkdir(parents=True, exist_ok=True)
        aside.plan(number, ends)
        made = aside.path / "offsets" / str(number)
        made.replace(self.path / "offsets" / str(number))


# --- a log, as bytes: shares no code with what reads it ------------------------------------------

_AT = {"base": (0, ">q"), "size": (8, ">i"), "crc": (17, ">I"), "attributes": (21, ">h")}
_AT |= {"delta": (23, ">i"), "producer": (43, ">q"), "epoch": (51, ">h"), "sequence": (53, ">i")}
_AT |= {"count": (57, ">i")}


class Logged(bytearray):
    """One record batch."""

    def get(self, name: str) -> int:
        at, form = _AT[name]
        return struct.unpack_from(form, self, at)[0]

    def set(self, **values: int) -> Logged:
        """And makes it whole again."""
        for name, value in values.items():
            at, form = _AT[name]
            struct.pack_into(form, self, at, value)
        if "crc" not in values:
            struct.pack_into(">I", self, 17, google_crc32c.value(bytes(self[21:])))
        return self

    @property
    def is_control(self) -> bool:
        return bool(self.get("attributes") & 0x20)


def edit(data: Path, topic: str, partition: int, change: Callable[[list[Logged]], Any]) -> None:
    """The log's only segment, while the broker is down. `change` has all of its record batches."""
    (path,) = data.glob(f"{topic}-{partition}/*.log")
    blob, found, at = path.read_bytes(), [], 0
    while at < len(blob):
        size = struct.unpack_from(">i", blob, at + 8)[0]
        if size <= 0:
            break  # preallocated
        found.append(Logged(blob[at : at + 12 + size]))
        at += 12 + size
    change(found)
    path.write_bytes(b"".join(found))


def of_attempt(found: Sequence[Logged], offset: int) -> int:
    """The place of the record batch that begins there."""
    (place,) = (place for place, each in enumerate(found) if each.get("base") == offset)
    return place
