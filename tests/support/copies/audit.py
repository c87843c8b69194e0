"""Pipelines without Spark with an audit table, for `eos verify`, the report and the projection.

As a program, this brings a table up to the ledger, one ledger record at a time, and prints each
step, so that a test can kill it anywhere in between. With a POINT it kills itself there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eos.audit import projection as projections
from eos.audit.producer_states import EntryKey, ProducerStates
from eos.audit.projection import Projection, ProjectionResult
from eos.audit.reader import read_producers
from eos.audit.table import ProducersTable, TransactionsTable
from eos.audit.updater import location_of
from eos.config.load import load_profile
from eos.errors import AttemptFailedError
from eos.faults import CrashPlan
from eos.folder import Folder, as_folder, folder_of
from eos.inspect.cluster_view import ClusterView
from eos.inspect.producers_live import RowStatus, compare_live
from eos.kafka.api import Identity
from eos.kafka.client import KafkaClient
from eos.kafka.compression_type import Codec
from eos.kafka.settings import KafkaSettings
from eos.kafka.target_partitions import Targets
from eos.ledger.ranges import PlannedBatch
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends
from eos.startup.ownership import RunLock
from eos.transaction.writer import Writer
from support.copies.pipeline_copy import Copy, checked_receipts, write_pairs
from support.copies.recovery import CheckpointFolder, Output, Pipeline, PipelineRun, run_verb, soon
from support.copies.scenes import Scene, Scenes
from support.doubles import Work
from support.kafka import kafka_io
from support.verbs import verify
from support.waiting import wait_until

_ORDER = "ledger_offset, epoch, target_partition"


Place = Path | Folder


def projection(scene: Scene, client: KafkaClient, location: Place) -> Projection:
    return Projection(TransactionsTable(location), client, scene.job.name, scene.job.ledger)


def projection_of(pipeline: Pipeline) -> Projection:
    """Return a projection into the table where its runs would have it."""
    names, table = pipeline.planned().names, TransactionsTable(table_of(pipeline))
    return Projection(table, pipeline.asks, names.pipeline, names.ledger)


def table_of(pipeline: Pipeline) -> Path:
    location = location_of(load_profile(pipeline.words[2], pipeline.folder))
    assert location is not None
    assert location.local is not None
    return location.local


def catch_up(made: Projection) -> ProjectionResult:
    """Bring the table up to the ledger, whose last marker may be on its way."""

    def settled() -> ProjectionResult | None:
        found = made.catch_up(soon())
        return found if found.is_settled else None

    return wait_until(settled)


def ran(scenes: Scenes, records: int = 40) -> Scene:
    """Return a pipeline with micro-batches behind it, and a clean end."""
    scene = scenes.new(records)
    with Copy(scene.job) as copy:
        copy.start()
        copy.drain()
        copy.stop()
    return scene


def table_rows(location: Place, pipeline: str) -> Sequence[Mapping[str, Any]]:
    return TransactionsTable(location).query(
        f"SELECT * FROM transactions WHERE pipeline = '{pipeline}' ORDER BY {_ORDER}"
    )


def check_table(scene: Scene, location: Place) -> Sequence[Mapping[str, Any]]:
    """Each committed record of the ledger, as a stranger reads it, is there once, with all of its
    receipts, and nothing else is. Returns the rows of aborted attempts."""
    found = table_rows(location, scene.job.name)
    committed = [row for row in found if row["outcome"] == "CompleteCommit"]
    expected = []
    for offset, body in scene.ledger_with_offsets():
        receipts = (body.get("attempt") or {}).get("receipts") or [None]
        for each in receipts:
            values = each or {}
            told = (values.get("partition"), values.get("records"), values.get("offset_last"))
            expected.append((offset, body["kind"], body["batch_id"], *told))
    assert expected == [
        (
            row["ledger_offset"],
            row["kind"],
            row["batch_id"],
            row["target_partition"],
            row["records"],
            row["offset_last"],
        )
        for row in committed
    ]
    return [row for row in found if row["outcome"] == "CompleteAbort"]


def producer_states(location: Place, pipeline: str, ledger: str) -> ProducerStates:
    """Return the table `producers` next to `transactions`."""
    return read_producers(
        ProducersTable(as_folder(location).sibling("producers")), pipeline, ledger
    )


def check_producers(
    client: KafkaClient, location: Place, pipeline: str, ledger: str, transactional_id: str
) -> Mapping[EntryKey, RowStatus]:
    """Assert that each row is what its leader has, as far as the ledger can know it. Return how
    rows and leaders relate."""
    states = producer_states(location, pipeline, ledger)
    view = ClusterView(client, transactional_id, "", ledger)
    found = compare_live(view, states)
    assert not found.findings
    assert not states.findings
    assert found.entries
    return {each.key: each.status for each in found.entries}


def spawn_projection(
    scene: Scene, location: Place, point: str = "", conf: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """`conf` has the settings of the location's store."""
    words = (scene.job.bootstrap, scene.job.name, scene.job.ledger, str(location), point)
    return subprocess.Popen(
        [sys.executable, "-m", "support.copies.audit", *words, json.dumps(conf or {})],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        text=True,
    )


def main(bootstrap: str, pipeline: str, ledger: str, location: str, point: str, conf: str) -> None:
    place = folder_of(location, json.loads(conf))
    assert place is not None
    projections.RECORDS_MAX = 1
    made = Projection(
        TransactionsTable(place),
        KafkaClient(KafkaSettings((bootstrap,))),
        pipeline,
        ledger,
    )

    def reached(where: str) -> None:
        if where == point:
            os.kill(os.getpid(), signal.SIGKILL)
        print(json.dumps({"reached": where}), flush=True)

    made.reached = reached
    made.catch_up(soon())


@dataclass
class CopyingPipeline(Pipeline):
    """Partition n of the source is copied to partition n of `{name}.out`."""

    codec: Codec = Codec.NONE
    process: type[CopyingRun] = field(default_factory=lambda: CopyingRun, repr=False)

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
    def running(self, *, take_over: bool = False) -> Iterator[CopyingRun]:
        planned = self.planned()
        with contextlib.closing(RunLock(planned)) as lock:
            lock.acquire(is_forced=take_over)
            yield self.process(self, planned, take_over)

    def ran(self, *records: int) -> CopyingPipeline:
        """With its audit table, as a run leaves it."""
        super().ran(*records)
        self.audited()
        return self

    @property
    def table(self) -> Path:
        return table_of(self)

    def audited(self) -> None:
        catch_up(projection_of(self))

    def verify(self, *words: str) -> Output:
        """`eos verify`, in this process."""
        return run_verb(verify, *self.words, *words)

    def found(self, *words: str) -> dict[str, Any]:
        """What a verification says, which ended with 1."""
        said = self.verify("--json", *words)
        assert said.code == 1, said
        return said.json

    def set_topic(self, topic: str, **values: str) -> None:
        kafka_io.set_topic(self.bootstrap, topic, **values)

    def attempts(self) -> list[Mapping[str, Any]]:
        """The ledger's, as a stranger reads them: with `offset`, and receipts by partition."""
        rows = kafka_io.read(self.bootstrap, self.ledger)
        found = [{**json.loads(row.value or b"{}"), "offset": row.offset} for row in rows]
        return [
            {**each, "receipts": {r["partition"]: r for r in each["attempt"]["receipts"]}}
            for each in found
            if each["kind"] == "attempt"
        ]


class CopyingRun(PipelineRun):
    def step(self, records: int = 1_000_000, *, is_noted: bool = True) -> None:
        step = self.plan(records)
        work = Work(lambda identity, floors: self._copied(identity, step, floors))
        self.batches.run(step, work)
        self.settled()
        if is_noted:
            self.spark.commit(step.batch_id)

    def __init__(self, pipeline: CopyingPipeline, planned: Any, take_over: bool) -> None:
        super().__init__(pipeline, planned, take_over)
        self.of = pipeline
        self.spark = AtomicFolder(self.spark.path)
        self.fails = 0  # so many attempts die once they have written
        self.falsify: Callable[[Receipt], Receipt] = lambda receipt: receipt

    def _copied(self, identity: Identity, step: PlannedBatch, floors: Ends) -> Sequence[Receipt]:
        topic = self.client.topics([self.of.target], soon())[self.of.target]
        targets = Targets.of({self.of.target: (topic.partitions, 1_000_000)})
        names = self.of.planned().names
        writer = Writer(self.client, names.transactional_id, identity, targets, soon(), CrashPlan())
        planned: dict[int, int] = {}
        for tp, end in sorted(step.ends.items()):
            start = floors.get(tp, step.starts.get(tp, 0))
            records = self.client.read_records(tp, start, end, committed=True, deadline=soon())
            pairs = [(b"key", b"%06d" % int(each.value or b"")) for each in records]  # all as long
            write_pairs(writer, tp.partition, pairs, self.of.codec)
            planned[tp.partition] = len(records)
        receipts = checked_receipts(writer, planned, targets)
        if self.fails:
            self.fails -= 1
            raise AttemptFailedError("example", "the test wants it so")
        return [self.falsify(each) for each in receipts]


class AtomicFolder(CheckpointFolder):
    """Its files are there as a whole or not at all, as Spark writes them: somebody may look."""

    def plan(self, number: int, ends: Ends) -> None:
        aside = CheckpointFolder(self.path / "aside")
        (aside.path / "offsets").mkdir(parents=True, exist_ok=True)
        aside.plan(number, ends)
        made = aside.path / "offsets" / str(number)
        made.replace(self.path / "offsets" / str(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
