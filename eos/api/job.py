"""A job: a stream, its targets, and the name under which Kafka knows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from eos.api.declaration import pipeline_of, profile_of
from eos.api.formats import AnyFormat, declared
from eos.api.kafka import SOURCE_CLUSTER, Kafka, as_profile
from eos.api.query import Query, run_to_end, started
from eos.api.stream import Frame, Stream
from eos.errors import UsageError, naming
from eos.observe.events import Event
from eos.run.batch_run import require_run_id
from eos.run.observing import LoadedObserver
from eos.run.prepared import PreparedRun, RunOptions, prepare_with
from eos.spark.adopted_session import jvm_process, require_classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.config.model import PipelineFile

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Observer = Callable[[Event], object]


def exactly_once(stream: Stream | DataFrame, name: str, *, kafka: Kafka | None = None) -> Job:
    """Return a job that writes the stream's rows to topics and tables, each once.

    `name` is the pipeline's name: its ledger, transactional id and consumer group are named after
    it, and the commands (`eos status NAME`) find it by this name. So keep it.

    `kafka` is the cluster of the targets, the ledger and the transaction; without it, the source's.
    `stream` may also be a DataFrame; then `kafka` must be given. If it is streaming,
    only Spark's checkpoint knows its offsets: a lost checkpoint stops the job. If it is not, `run`
    writes it.
    """
    if isinstance(stream, Stream):
        require_classic(stream.spark)
        return Job(stream, name, target=kafka)
    session = getattr(stream, "sparkSession", None)
    if session is None:
        raise UsageError(
            "job_source_unsupported",
            f"eos.exactly_once got a {type(stream).__name__}; expected the result of "
            "eos.read_kafka, or a DataFrame",
            hint="read the topics with `eos.read_kafka(spark, topic, kafka=...)`",
        )
    require_classic(session)
    if kafka is None:
        raise UsageError(
            "job_cluster_missing",
            f"the job {name!r} writes a DataFrame, and has no Kafka cluster to write to",
            hint='pass it: `eos.exactly_once(frame, name, kafka=eos.Kafka("host:9092"))`',
        )
    return Job(Frame(stream, kafka), name)


@dataclass(frozen=True)
class Job:
    """A job that is declared. Each method but `start`, `check` and `declared` returns a new one.

    `exactly_once` makes it. `start` runs it."""

    stream: Stream | Frame
    name: str
    topics: tuple[Mapping[str, Any], ...] = ()
    tables: tuple[Mapping[str, Any], ...] = ()
    rejected: Mapping[str, Any] | None = None
    target: Kafka | None = None  # if it may be another cluster than the source's

    def to_topic(
        self,
        topic: str | Mapping[str, Any],
        *,
        key: AnyFormat | None = None,
        value: AnyFormat | None = None,
        headers: Mapping[str, str] | None = None,
        where: str | None = None,
        create: Mapping[str, Any] | None = None,
        compression: Compression = "lz4",
        partitioner: Literal["key", "round_robin"] = "key",
        partition: str | None = None,
        timestamp: str | None = None,
    ) -> Job:
        """Write rows to a topic. `key` and `headers` are SQL expressions, such as column names.

        Without `key`, `value` and `headers`, the row's columns of that name are written unchanged.
        `where` is a condition: rows for which it is not true are not written. `create` has the
        settings for a missing topic, such as `{"partitions": 4}`. `partition` and `timestamp` name
        columns. The topic may be one of several, which a column names for each row:
        `{"column": "target", "topics": [...]}`.
        """
        found: dict[str, Any] = {"topic": topic if isinstance(topic, str) else dict(topic)}
        given = {
            "key": None if key is None else declared(key),
            "value": None if value is None else declared(value),
            "headers": None if headers is None else dict(headers),
            "where": where,
            "create": None if create is None else dict(create),
            "partition": partition,
            "timestamp": timestamp,
        }
        found |= {key: each for key, each in given.items() if each is not None}
        found |= {"compression": compression, "partitioner": partitioner}
        return replace(self, topics=(*self.topics, found))

    def to_delta(
        self,
        path: str | Path,
        *,
        merge_on: Sequence[str] = (),
        delete_when: str | None = None,
        name: str | None = None,
        columns: Sequence[str] = (),
        where: str | None = None,
        partition_by: Sequence[str] = (),
        evolve: bool = False,
    ) -> Job:
        """Write rows to a Delta table, each once. `merge_on` are the keys by which a row replaces
        an earlier one; without them, rows are appended."""
        found: dict[str, Any] = {"path": str(path), "evolve": evolve}
        found |= {"mode": "merge", "keys": list(merge_on)} if merge_on else {}
        lists = {"columns": list(columns), "partition_by": list(partition_by)}
        texts = {"delete_when": delete_when, "name": name, "where": where}
        found |= {key: each for key, each in lists.items() if each}
        found |= {key: each for key, each in texts.items() if each is not None}
        return replace(self, tables=(*self.tables, found))

    def dead_letters(self, topic: str, *, create: Mapping[str, Any] | None = None) -> Job:
        """Write rejected source records to a topic, with the reason in their headers."""
        found: dict[str, Any] = {"topic": topic} | ({"create": dict(create)} if create else {})
        return replace(self, rejected=found)

    def start(
        self,
        state: str | Path | None = None,
        *,
        every: str = "1 second",
        available_now: bool = False,
        once: bool = False,
        output_mode: Literal["append", "update"] = "append",
        transaction_timeout: str = "10 minutes",
        deployment: str | None = None,
        profile: str | Path | Mapping[str, Any] | None = None,
        observers: Iterable[Observer] = (),
        take_over: bool = False,
        accept_state_loss: bool = False,
    ) -> Query:
        """Start the job, and return once its query runs, or has read all it had to read.

        `state` is the state root, a folder or a URI. `every` is the interval of micro-batches. With
        `available_now`, the job reads the records that exist now, and ends; with `once`, it does so
        in one transaction. `profile` has further settings: the name or path of a profile, or its
        keys. `observers` are called with each event. `take_over` fences an instance that may still
        run, `accept_state_loss` resumes without the state of stateful steps.

        Raise EosError if the job can't start.
        """
        self._require_streaming()
        ends = {"available_now": available_now, "once": once}
        trigger: dict[str, Any] = {key: True for key, is_set in ends.items() if is_set}
        trigger = trigger or {"every": every}
        settings = {"trigger": trigger, "output_mode": output_mode}
        pipeline = self._pipeline({**settings, "transaction": {"timeout": transaction_timeout}})
        options = RunOptions(take_over=take_over, accepts_state_loss=accept_state_loss)
        prepared = self._prepared(pipeline, state, deployment, profile, options)
        prepared = _observed(prepared, observers)
        return started(self.stream.spark, prepared, options, self.declared())

    def run(
        self,
        id: str,  # noqa: A002 - the name that fits
        state: str | Path | None = None,
        *,
        transaction_timeout: str = "10 minutes",
        deployment: str | None = None,
        profile: str | Path | Mapping[str, Any] | None = None,
        observers: Iterable[Observer] = (),
        take_over: bool = False,
    ) -> bool:
        """Write a DataFrame that is not streaming, in one transaction. Return whether it was
        written now: if the ledger already has the `id`, nothing is written.

        The ledger keeps the ids of the last 1,000 runs. The other arguments are those of `start`.
        """
        require_run_id(id)
        self._require_batch()
        pipeline = self._pipeline({"transaction": {"timeout": transaction_timeout}})
        options = RunOptions(take_over=take_over)
        prepared = self._prepared(pipeline, state, deployment, profile, options)
        prepared = _observed(prepared, observers)
        return run_to_end(self.stream.spark, prepared, options, self.declared(), id)

    def check(self) -> None:
        """Raise UsageError if an argument of the job is invalid. Sends no request."""
        self._transforms(self._pipeline({}))

    def declared(self) -> dict[str, Any]:
        """Return the job as the keys of a pipeline file. Functions are named by module and name."""
        sink: dict[str, Any] = {"kafka": [dict(each) for each in self.topics]}
        sink |= {"delta": [dict(each) for each in self.tables]} if self.tables else {}
        sink |= {"dead_letter": dict(self.rejected)} if self.rejected else {}
        sink = {key: each for key, each in sink.items() if each}
        declared = self.stream.declared()
        if self.target not in (None, self.stream.kafka):
            source = declared["source"]
            of_kafka = {**source["kafka"], "cluster": SOURCE_CLUSTER}
            declared = {**declared, "source": {**source, "kafka": of_kafka}}
        return {"version": 1, "name": self.name, **declared, "sink": sink}

    def _require_streaming(self) -> None:
        if not isinstance(self.stream, Frame):
            return
        if not self.stream.frame.isStreaming:
            raise UsageError(
                "job_not_streaming",
                f"the job {self.name!r} writes a DataFrame that is not streaming",
                hint='`job.run(id="2026-11-23")` writes it once, however often it is called',
            )
        self._require_no_tables()

    def _require_batch(self) -> None:
        stream = self.stream
        if not isinstance(stream, Frame) or stream.frame.isStreaming:
            raise UsageError(
                "job_streaming",
                f"the job {self.name!r} reads a stream, which has no end",
                hint="`job.start(available_now=True)` reads what exists now, and ends",
            )
        self._require_no_tables()

    def _require_no_tables(self) -> None:
        if self.tables:
            raise UsageError(
                "job_table_unsupported",
                f"the job {self.name!r} writes the Delta table {self.tables[0]['path']}, but its "
                "source is a DataFrame: after a crash, rows that only the topics have could not be "
                "read again for the table",
                hint="write the table by a second job that reads the target topic; or, if the rows "
                "come from Kafka, read it with eos.read_kafka",
            )

    def _pipeline(self, settings: Mapping[str, Any]) -> PipelineFile:
        return pipeline_of({**self.declared(), **settings})

    def _transforms(self, pipeline: PipelineFile) -> list[Any]:
        pairs = zip(self.stream.steps, pipeline.transform, strict=True)
        return [step.as_transform(number, each) for number, (step, each) in enumerate(pairs, 1)]

    def _prepared(
        self,
        pipeline: PipelineFile,
        state: str | Path | None,
        deployment: str | None,
        profile: str | Path | Mapping[str, Any] | None,
        options: RunOptions,
    ) -> PreparedRun:
        require_classic(self.stream.spark)  # again: it may have been stopped since
        own = as_profile(self.name, self.stream.kafka, self.target)
        own |= {"state": {"root": str(state)}} if state is not None else {}
        own |= {"deployment": deployment} if deployment is not None else {}
        with naming(self.name):
            chosen = profile_of(profile, own)
            steps, jvm = self._transforms(pipeline), jvm_process(self.stream.spark)
            prepared = prepare_with(pipeline, chosen, steps, options, jvm)
        if isinstance(self.stream, Frame):
            return replace(prepared, frame=self.stream.frame)
        return prepared


def _observed(prepared: PreparedRun, observers: Iterable[Observer]) -> PreparedRun:
    extra = [_loaded(each) for each in observers]
    return replace(prepared, observers=[*prepared.observers, *extra])


def _loaded(observer: Observer) -> LoadedObserver:
    name = getattr(observer, "__qualname__", type(observer).__qualname__)
    return LoadedObserver(name, lambda: observer)
