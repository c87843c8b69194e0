"""A pipeline without Spark whose ledger, group and checkpoint tests damage and recover.

The ledger, the group and every decision are the product's own. Only Spark is a double: it plans
ranges, writes them into a checkpoint in Spark's format, reads nothing, and writes no record.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from eos.checkpoint.files import LocalFiles
from eos.checkpoint.offset_log import Checkpoint
from eos.config.load import load_pipeline, load_profile
from eos.deadline import Deadline
from eos.errors import EosError, report
from eos.faults import Points
from eos.kafka.api import TopicPartition, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from eos.ledger.ranges import PlannedBatch
from eos.ledger.record import Ends, LedgerRecord, flat, nested
from eos.plan.plan import Plan, plan
from eos.startup.acquire import acquire, ledger_of
from eos.startup.deployment import with_known_deployment
from eos.startup.local_checks import choose, require_local
from eos.startup.ownership import RunLock
from eos.startup.resume_position import resume_position, starting_offsets
from eos.startup.source_state import LiveSource
from eos.transaction.micro_batch import MicroBatches
from support.doubles import EventLog, Work
from support.kafka import kafka_io
from support.kafka.brokers import wait_ended
from support.verbs import recover

PIPELINE = """
version: 1
name: {name}
source: {{kafka: {source}}}
transform:
  - {{python: "nowhere:to_be_found"}}
sink: {{kafka: {{topic: {name}.out, create: {{partitions: 1}}}}}}
trigger: {{available_now: true}}
"""
WAIT_S = 600


@dataclass(frozen=True)
class Output:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)

    @property
    def cases(self) -> list[str]:
        return [finding["case"] for finding in self.json["findings"]]


def run_verb(verb: Callable[[Sequence[str]], int], *words: str) -> Output:
    """Run a verb of `eos` in this process, as its command line does."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = verb(words)
        except EosError as error:
            code = report(error)
    return Output(code, out.getvalue(), err.getvalue())


@dataclass
class Pipeline:
    """What outlives its processes. `topics` with their partitions; the first is the source, unless
    a pattern is given."""

    folder: Path
    bootstrap: str
    name: str
    partitions: int = 2
    pattern: str = ""
    state: str = "state"
    wires: list[KafkaClient] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        # Kept: one that is collected never answers.
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        self.asks = self.client()
        self.declare()
        if not self.pattern:
            self.create(self.source, self.partitions)

    @property
    def source(self) -> str:
        return f"{self.name}.in"

    @property
    def words(self) -> list[str]:
        """The pipeline and its profile, as a command names them."""
        place = self.folder / "pipelines" / "its-folder"
        return [str(place), "--profile", str(self.folder / "conf" / f"{self.state}.yaml")]

    def declare(self, **limits: int | str) -> None:
        place = self.folder / "pipelines" / "its-folder"
        place.mkdir(parents=True, exist_ok=True)
        which = {"pattern": self.pattern} if self.pattern else {"topic": self.source}
        source = json.dumps({**which, **limits})
        (place / "pipeline.yaml").write_text(PIPELINE.format(name=self.name, source=source))
        (self.folder / "conf").mkdir(exist_ok=True)
        profile = {"kafka": {"bootstrap": self.bootstrap}, "state": {"root": self.state}}
        (self.folder / "conf" / f"{self.state}.yaml").write_text(json.dumps(profile))

    def elsewhere(self) -> Pipeline:
        """The same pipeline in another deployment."""
        other = Pipeline.__new__(Pipeline)
        other.__dict__ |= self.__dict__ | {"state": "elsewhere"}
        other.declare()
        return other

    def planned(self) -> Plan:
        pipeline = load_pipeline(Path(self.words[0]))
        profile = load_profile(self.words[2], self.folder)
        return with_known_deployment(plan(pipeline, profile, (self.bootstrap,), ()))

    def client(self) -> KafkaClient:
        self.wires.append(KafkaClient(KafkaSettings((self.bootstrap,)), TransactionProfile.TV2))
        return self.wires[-1]

    def close(self) -> None:
        for client in self.wires:
            client.close()

    # --- its processes -------------------------------------------------------------------------

    @contextlib.contextmanager
    def running(self, *, take_over: bool = False) -> Iterator[PipelineRun]:
        """A start, up to the record of it. Ends without a clean stop, as if it had died."""
        planned = self.planned()
        with contextlib.closing(RunLock(planned)) as lock:
            lock.acquire(is_forced=take_over)
            yield PipelineRun(self, planned, take_over)

    def ran(self, *records: int) -> Pipeline:
        """A run with micro-batches of so many records of each partition, and a clean stop."""
        with self.running() as run:
            for count in records:
                self.fill(count)
                run.step()
            run.stop()
        return self

    def recover(self, *words: str, with_words: bool = True) -> Output:
        """`eos recover`, in this process. What it committed is there for all when it returns."""
        done = run_verb(recover, *(self.words if with_words else ()), *words)
        if done.code == 0 and "--yes" in words:
            wait_ended(self.asks, self.planned().names.transactional_id)
        return done

    def explained(self) -> Output:
        return self.recover("--json")

    def did(self, *words: str) -> dict[str, Any]:
        """A verb that says what it would do, and then does just that. What it did."""
        ends = self.ledger_ends()
        would = self.recover(*words, "--json")
        assert would.code == 1, would
        assert self.ledger_ends() == ends, "said only, and written"
        told = would.json
        assert not told.pop("done")
        assert told.pop("command").endswith(" --yes")
        did = self.recover(*words, "--yes", "--json", "--why", "a test")
        assert did.code == 0, did
        done = did.json
        assert done.pop("done")
        offset, told_offset = done.pop("ledger_offset"), told.pop("ledger_offset")
        assert told_offset is None
        assert done.pop("command") is None
        renames = [dict(each.pop("renames")) for each in (told, done)]
        assert renames[0].keys() == renames[1].keys()  # the new names have the time in them
        assert done == told
        if offset is not None:
            note = self.last().note or {}
            assert (self.last().offset, self.last().kind) == (offset, "recovery")
            assert (note["why"], "@" in note["by"], "T" in note["at"]) == ("a test", True, True)
            assert {key: note[key] for key in ("verb", "ends", "lost")} == {
                key: done[key] for key in ("verb", "ends", "lost")
            }
        return {**done, "renames": renames[1]}

    # --- what is there -------------------------------------------------------------------------

    def last(self) -> LedgerRecord:
        found = ledger_of(self.planned(), self.asks).peek(soon())
        assert found is not None
        return found

    def ledger_ends(self) -> Mapping[TopicPartition, int]:
        """How long the ledger topic is: whoever writes to it moves this."""
        client, topic = self.asks, self.planned().names.ledger
        if client.topics([topic], soon())[topic].error:
            return {}
        at = TopicPartition(topic, 0)
        return client.list_offsets([at], "latest", committed=False, deadline=soon())

    def ends(self) -> dict[str, dict[str, int]]:
        return nested(self.last().position.ends)

    def group(self) -> dict[int, int]:
        return kafka_io.group_offsets(self.bootstrap, self.planned().names.group, self.source)

    @property
    def checkpoints(self) -> Path:
        return Path(self.planned().names.checkpoints)

    def checkpoint(self, number: int = 1) -> CheckpointFolder:
        return CheckpointFolder(self.checkpoints / f"{number:04d}")

    # --- what people do to it ------------------------------------------------------------------

    def create(self, topic: str, partitions: int) -> None:
        kafka_io.create_topics(self.bootstrap, partitions, topic)

    def fill(self, count: int, topic: str = "", *partitions: int) -> None:
        topic = topic or self.source
        producer = kafka_io.producer(self.bootstrap)
        for partition in partitions or range(self.asks.topics([topic], soon())[topic].partitions):
            for number in range(count):
                producer.produce(topic, b"%d" % number, partition=partition)
        assert producer.flush(WAIT_S) == 0

    def delete(self, topic: str) -> None:
        kafka_io.delete_topics(self.bootstrap, topic)

    def truncate(self, partition: int, before: int, topic: str = "") -> None:
        kafka_io.delete_records(self.admin, topic or self.source, partition, before)

    def add_partitions(self, total: int) -> None:
        kafka_io.add_partitions(self.bootstrap, self.source, total)

    def move_group(self, offsets: Mapping[int, int], topic: str = "") -> None:
        kafka_io.move_group(self.admin, self.planned().names.group, topic or self.source, offsets)

    def set_ledger(self, **config: str) -> None:
        kafka_io.set_topic(self.bootstrap, self.planned().names.ledger, **config)

    def delete_group(self) -> None:
        kafka_io.delete_group(self.admin, self.planned().names.group)


class PipelineRun:
    """One process of it: in the order of `run.pipeline`."""

    def __init__(self, pipeline: Pipeline, planned: Plan, take_over: bool) -> None:
        self.told = EventLog()
        self.transactional_id = planned.names.transactional_id
        self.client = client = pipeline.client()
        source = LiveSource(planned, pipeline.client())
        files = LocalFiles()

        def examine(last: LedgerRecord | None) -> None:
            require_local(with_state(planned, last), files, None, last, accepts=False)

        taken = acquire(planned, client, Points(self), soon(), is_forced=take_over, examine=examine)
        position = resume_position(planned, source, taken.last, self.told, soon())
        self.batches: MicroBatches = taken.batches(position, source, self.told)
        planned, last = with_state(taken.planned, taken.last), taken.last
        chosen = choose(planned, files, position, last, bus=self.told, accepts=False)
        self.location = chosen.location
        self.batches.note("start")
        self.settled()
        self.starts = starting_offsets(planned, client, position, soon())
        self.spark = CheckpointFolder(Path(self.location))
        self.read: list[PlannedBatch] = []

    def reached(self, _point: str) -> None:
        """No crash is planned."""

    def step(self, records: int = 1_000_000, *, is_noted: bool = True) -> None:
        """One micro-batch: the one that had no end, or the next."""
        step = self.plan(records)
        self.batches.run(step, Work(lambda _identity, floors: self._ran(step, floors)))
        self.settled()
        if is_noted:
            self.spark.commit(step.batch_id)

    def plan(self, records: int = 1_000_000) -> PlannedBatch:
        spark = self.spark
        if not spark.path.exists():
            first = self.batches.source.earliest(self.starts)
            spark.begin({tp: at if at >= 0 else first[tp] for tp, at in self.starts.items()})
        files = Checkpoint(LocalFiles(), str(spark.path))
        number, committed = files.planned(), files.committed()
        if number is None or number == committed:
            number = 0 if number is None else number + 1
            before = spark.starts() if number == 0 else files.ends(number - 1)
            latest = self.client.list_offsets(
                self.starts, "latest", committed=True, deadline=soon()
            )
            first = self.batches.source.earliest(self.starts)
            starts = {tp: before.get(tp, first[tp]) for tp in self.starts}
            ends = {tp: min(start + records, latest[tp]) for tp, start in starts.items()}
            spark.plan(number, ends)
        ranges = files.ranges(number)
        return PlannedBatch(files.query_id(), number, ranges.starts, ranges.ends)

    def stop(self) -> None:
        self.batches.is_stopping = True
        self.batches.note("stop")
        self.settled()

    def settled(self) -> None:
        """Waits for the commit's markers: the broker answers before it writes them."""
        self.batches.ledger.read_last(soon())
        wait_ended(self.client, self.transactional_id)

    def _ran(self, step: PlannedBatch, floors: Ends) -> list[Any]:
        starts = {tp: floors.get(tp, step.starts.get(tp, 0)) for tp in step.ends}
        self.read.append(PlannedBatch(step.query_id, step.batch_id, starts, step.ends))
        return []


def with_state(planned: Plan, last: LedgerRecord | None) -> Plan:
    """Spark says whether the transforms keep state. Here the ledger does."""
    return replace(planned, is_stateful=last is not None and last.position.keeps_state)


@dataclass(frozen=True)
class CheckpointFolder:
    """A checkpoint as Spark writes it."""

    path: Path

    def begin(self, starts: Ends) -> None:
        for name in ("offsets", "commits", "sources/0"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        (self.path / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        (self.path / "sources/0/0").write_text("\0v1\n" + json.dumps(nested(starts)))

    def starts(self) -> Ends:
        text = (self.path / "sources/0/0").read_text().rpartition("\n")[2]
        return flat(json.loads(text))

    def plan(self, number: int, ends: Ends) -> None:
        lines = ["v1", json.dumps({"batchWatermarkMs": 0, "conf": {}}), json.dumps(nested(ends))]
        (self.path / "offsets" / str(number)).write_text("\n".join(lines))

    def commit(self, number: int) -> None:
        (self.path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def forget(self, *names: str) -> None:
        for name in names:
            (self.path / name).unlink()

    def copied(self, to: Path) -> CheckpointFolder:
        shutil.copytree(self.path, to)
        return CheckpointFolder(to)


def soon() -> Deadline:
    return Deadline.after_ms(300_000)
