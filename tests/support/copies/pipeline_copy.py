"""A pipeline without Spark: a process that does what a run does, and copies a topic to another.

Whatever decides is the product's own: look, fence, read, decide at the start, then `MicroBatches`,
`Coordinator`, `Ledger`, `Wire` and `Writer`. Played are Spark's parts: planning, reading, and the
checkpoint, which is a folder here. A planned micro-batch is written down before it runs and noted
after, as Spark does, so that another process on the same folder repeats what had no end.

Inside a test:

    with Copy(Job(bootstrap, name, source, target, folder)) as copy:
        copy.start()
        copy.drain()
        copy.stop()

As a program, this is one process of a pipeline: it honours EOS_CRASH_AT, prints what happens as
lines of JSON, and ends with the product's exit codes. With `--go-on` it waits for more records when
it has drained its source. `support.copies.owners.Forked` runs it.

Partition n of the source is copied to partition n of the target, in order. Names in Kafka: the
transactional id and the group are `name`, the ledger is `name.ledger`. Client ids: the driver's is
`name`, the writers' `name.writer`, the source reader's `name.source`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

import pyarrow as pa

from eos.deadline import Deadline
from eos.errors import EosError, FencedError, Recovery
from eos.faults import CrashPlan
from eos.folder import folder_of
from eos.kafka.api import Identity, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.compression_type import Codec
from eos.kafka.records.record_batch import Columns, encode
from eos.kafka.settings import KafkaSettings
from eos.kafka.target_partitions import Targets
from eos.ledger import receipt
from eos.ledger.ranges import PlannedBatch
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends
from eos.observe import events
from eos.plan.names import Names
from eos.plan.plan import Plan
from eos.run.idle_refresh import IdleWatch
from eos.startup.acquire import acquire, still_ours
from eos.startup.ownership import RunLock
from eos.startup.resume_position import resume_position
from eos.startup.source_state import LiveSource
from eos.transaction.attempt_work import AttemptFacts
from eos.transaction.writer import Writer
from support.dedup import CopyDedup
from support.doubles import At, CopyCheckpoint, EventLog, Hurried, Work, plan_of

RECORD_BATCH = 5  # records: more than one record batch a micro-batch, so that writers pipeline
_LOOKS_EVERY_S = 0.05


@dataclass(frozen=True)
class Job:
    """What is copied, and with what patience. `records` is of each partition, a micro-batch."""

    bootstrap: str
    name: str
    source: str
    target: str
    folder: Path
    records: int = 10
    request_timeout_ms: int = 10_000
    transaction_timeout_ms: int = 60_000
    start_timeout_ms: int = 180_000
    deployment: str = "here"
    root: str = ""  # the state root, where `deployment` is empty: its id names the deployment
    lock: str = ""  # a file: who runs on this machine; none: as with a state root elsewhere
    idle_ms: int = 0  # how often the process refreshes while it waits for more; 0: never
    profile: str = "TV2"  # TV1: as on older brokers, and on any
    dedup: str = ""  # a folder for producers' states: see `support.dedup.CopyDedup`
    store: str = ""  # the settings of its bucket, as JSON
    dedup_window: int = 0  # of producers whose numbers are spread over partitions; 0: they are not

    @property
    def ledger(self) -> str:
        return f"{self.name}.ledger"

    def plan(self) -> Plan:
        ids, folder = (self.name, self.name, self.name, self.ledger), str(self.folder)
        names = Names(*ids, folder, self.lock, state_root=self.root)
        bootstrap, timeout_ms = tuple(self.bootstrap.split(",")), self.transaction_timeout_ms
        return plan_of(names, bootstrap, self.source, self.deployment, timeout_ms)

    def client(self, role: str = "") -> KafkaClient:
        settings = KafkaSettings(
            tuple(self.bootstrap.split(",")),
            client_id=self.name + role,
            request_timeout_ms=self.request_timeout_ms,
        )
        return KafkaClient(settings, TransactionProfile[self.profile])


class Copy:
    """One process of a pipeline. `committed` are the micro-batches that it was told are done."""

    def __init__(
        self,
        job: Job,
        crash: CrashPlan | At | Hurried | None = None,
        say: Callable[[events.Event], None] | None = None,
    ) -> None:
        self.job = job
        self.told = EventLog(say)
        self.committed: list[int] = []
        self.crash = crash or CrashPlan()
        self.lock = RunLock(job.plan())
        self.client = job.client()
        self.writers = job.client(".writer")
        self.reader = job.client(".source")

    def __enter__(self) -> Copy:  # noqa: PYI034 - typing.Self begins with 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        for client in (self.client, self.writers, self.reader):
            client.close()
        self.lock.close()

    def start(self, *, take_over: bool = False) -> None:
        """Look, fence, read, decide: `run.pipeline` in the same order."""
        deadline = Deadline.after_ms(self.job.start_timeout_ms)
        planned = self.job.plan()
        self.lock.acquire(is_forced=take_over)
        self.client.agree_on_profile(deadline)
        source = LiveSource(planned, self.client)
        taken = acquire(planned, self.client, self.crash, deadline, is_forced=take_over)
        self.coordinator = taken.coordinator
        with still_ours(taken.coordinator, taken.ledger):
            position = resume_position(planned, source, taken.last, self.told, deadline)
        self.batches = taken.batches(position, source, self.told)
        self.folder = CopyCheckpoint(self.job.folder, position)
        self.dedup = None
        if self.job.dedup:
            states = folder_of(self.job.dedup, json.loads(self.job.store or "{}"))
            assert states is not None
            self.dedup = CopyDedup(states, self.crash, self.job.dedup_window)
            self.dedup.require(position)
        self.batches.note("start")

    def drain(self) -> None:
        """Micro-batch after micro-batch until nothing is left to read."""
        while self.step():
            pass

    def step(self) -> bool:
        """One micro-batch. False: there was nothing to read."""
        deadline = Deadline.after_ms(self.job.start_timeout_ms)
        asked = list(self.batches.position.ends)
        latest = self.reader.list_offsets(asked, "latest", committed=True, deadline=deadline)
        step = self.folder.next(latest, self.job.records)
        if step is None:
            return False
        self.batches.run(
            step, Work(lambda identity, floors: self._execute(identity, step, floors), self._facts)
        )
        self.committed.append(step.batch_id)
        self.folder.commit(step)
        return True

    def stop(self) -> None:
        """A clean end: from here on another deployment may take the pipeline."""
        self.batches.is_stopping = True
        self.batches.note("stop")

    def _facts(self) -> AttemptFacts:
        if self.dedup is None:
            return AttemptFacts()
        version, counts = self.dedup.producers()
        return AttemptFacts(producers=version, dedup=counts)

    def _execute(self, identity: Identity, step: PlannedBatch, floors: Ends) -> Sequence[Receipt]:
        """The Spark job: reads the ranges, encodes, writes, and accounts for it."""
        deadline = Deadline.after_ms(self.job.start_timeout_ms)
        topic = self.client.topics([self.job.target], deadline)[self.job.target]
        targets = Targets.of({self.job.target: (topic.partitions, 1_000_000)})
        writing = Deadline.after_ms(self.job.transaction_timeout_ms * 0.8)  # as `run.jobs` does
        writer = Writer(self.writers, self.job.name, identity, targets, writing, self.crash)
        planned: dict[int, int] = {}
        read = (
            (tp, self.reader.read_records(tp, start, end, committed=True, deadline=deadline))
            for tp, end in sorted(step.ends.items())
            for start in [floors.get(tp, step.starts[tp])]
        )
        if self.dedup is not None:
            self.dedup.begin(self.batches.position)
            read = self.dedup.kept(read)
        for tp, records in read:
            write_pairs(writer, tp.partition, [(each.key, each.value) for each in records])
            planned[tp.partition] = len(records)
        return checked_receipts(writer, planned, targets)


def write_pairs(
    writer: Writer,
    partition: int,
    pairs: Sequence[tuple[bytes | None, bytes | None]],
    codec: Codec = Codec.NONE,
) -> None:
    """Write keys and values to one partition, in record batches of RECORD_BATCH."""
    for at in range(0, len(pairs), RECORD_BATCH):
        keys, values = zip(*pairs[at : at + RECORD_BATCH], strict=True)
        columns = Columns(key=pa.array(keys, pa.binary()), value=pa.array(values, pa.binary()))
        batch = encode(columns, codec, int(time.time() * 1000))
        writer.add(partition, batch.blob, batch.records, batch.digest)
    writer.advance()


def checked_receipts(
    writer: Writer, planned: Mapping[int, int], targets: Targets
) -> Sequence[Receipt]:
    """Wait until everything is acknowledged. Return the receipts of the planned records."""
    rows = receipt.rows(writer.finish(), planned)
    return receipt.check((tuple(row.values()) for row in rows.to_pylist()), targets)


def words(job: Job) -> list[str]:
    """The job as `main` reads it."""
    return [
        text
        for one in fields(job)
        for text in (f"--{one.name.replace('_', '-')}", str(getattr(job, one.name)))
    ]


@contextmanager
def _refreshing(copy: Copy) -> Iterator[list[FencedError]]:
    """The watch that a run has beside its query. It hands over the error that is to end it."""
    fenced: list[FencedError] = []
    watch = IdleWatch(copy.batches, copy.job.idle_ms, copy.lock, copy.told, fenced.append)
    if copy.job.idle_ms:
        watch.start()
    try:
        yield fenced
    finally:
        watch.stop()


def _tell(**told: object) -> None:
    print(json.dumps(told), flush=True)


def _event(event: events.Event) -> None:
    told: dict[str, object] = {"event": type(event).__name__, "text": str(event)}
    if isinstance(event, events.MicroBatchCommitted | events.AttemptFailed):
        told["identity"] = [event.producer_id, event.epoch]
    _tell(**told)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m support.copies.pipeline_copy")
    for one in fields(Job):
        flag, has_default = f"--{one.name.replace('_', '-')}", one.default is not MISSING
        kind = type(one.default) if has_default else Path if one.name == "folder" else str
        parser.add_argument(flag, type=kind, required=not has_default, default=one.default)
    parser.add_argument("--take-over", action="store_true")
    parser.add_argument("--go-on", action="store_true")
    options = vars(parser.parse_args(arguments))
    take_over, goes_on = options.pop("take_over"), options.pop("go_on")
    try:
        with Copy(Job(**options), CrashPlan.from_environment(), _event) as copy:
            copy.start(take_over=take_over)
            _tell(event="started", identity=copy.coordinator.identity)
            with _refreshing(copy) as fenced:
                while True:
                    while copy.step():
                        _tell(event="committed", batch_id=copy.committed[-1])
                    if fenced:
                        raise fenced[0]
                    if not goes_on:
                        break
                    time.sleep(_LOOKS_EVERY_S)
            copy.stop()
    except EosError as error:
        _tell(event="ended", error=error.kind, message=error.message, hint=error.hint)
        return (Recovery.RESTART if error.recovery is Recovery.REDO else error.recovery).value
    _tell(event="ended", error="", message="drained", hint="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
