"""Read a micro-batch's source records, with the Arrow reader or with Spark's Kafka source."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from eos.checkpoint.offset_log import Ranges
from eos.errors import EosError
from eos.kafka.client import KafkaClient
from eos.kafka.read_amounts import ReadAmounts
from eos.ledger.record import Ends
from eos.observe import events
from eos.observe.bus import Bus
from eos.plan.plan import Plan
from eos.plan.reader import ARROW_NAME, SPARK_NAME, ReaderChoice, require_tokens
from eos.read.ranges import divide
from eos.spark.arrow_plan import arrow_steps
from eos.spark.arrow_source import SPARK_SCHEMA, ArrowSource
from eos.spark.columns_read import columns_read
from eos.spark.fused_step import parsed
from eos.spark.header_validation import HeaderValidation
from eos.spark.json_parsers import JsonParsing, json_parsing
from eos.spark.python_plan import python_plan
from eos.spark.python_rows import ArrowPlan, PythonRows, TaskPlan
from eos.spark.read_report import ReadReport
from eos.spark.session import arrow_limits, slots
from eos.startup.source_state import above, below, source_client, source_of
from eos.transform.arrow_steps import ArrowSteps
from eos.transform.functions import builds_dataframes
from eos.transform.nondeterminism import is_unstable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# After Python tasks could not run the steps on some records, Spark runs them in so many further
# attempts. The number doubles each time, and falls by one after each attempt that Python tasks ran.
_SPARK_ATTEMPTS_MAX = 1024
# The Arrow reader's error for old record batch formats, which only Spark's source can read.
_ONLY_SPARKS = "record_batch_format_old"
# The error of a Python task if only Spark's JVM can run the steps on some of its records.
_NEEDS_SPARK = "steps_need_spark"


class SourceReader:
    """Reads micro-batches with the Arrow reader or with Spark's Kafka source.

    If the Arrow reader meets a record batch that it can't read, the run uses Spark's source from
    the next attempt on.
    """

    def __init__(
        self,
        plan: Plan,
        choice: ReaderChoice,
        client: KafkaClient,
        spark: SparkSession,
        bus: Bus,
        *,
        is_bounded: bool = False,
        is_observed: bool = False,
        links_traces: bool = False,
        shares_spark: bool = False,
    ) -> None:
        self._plan = plan
        self._is_bounded = is_bounded  # the ranges may be a part of what Spark planned
        self._is_arrow = choice.kind == "arrow"
        self.reason = choice.reason
        self._client = client
        self._spark = spark
        self._bus = bus
        # How many tasks Spark runs at the same time on this machine; 0 if it uses several machines.
        self.slots = slots(spark)
        self._report = ReadReport(spark, with_traces=links_traces) if is_observed else None
        # How many tasks a barrier stage may have. Its tasks start together, so it waits until
        # enough slots are free. Other pipelines in the same Spark could take each slot before.
        self.barrier_tasks_max = 0 if shares_spark else self.slots
        self._steps: ArrowSteps | None = None  # None if Spark runs the attempt's steps
        self._is_translatable = True
        self._next_spark_attempts = 1
        self._spark_attempts = 0  # how many further attempts Spark runs
        self.rows_went_to: set[Literal["jvm", "python"]] = set()  # in this run

    @property
    def name(self) -> str:
        return ARROW_NAME if self._is_arrow else SPARK_NAME

    def frame(
        self,
        frame: DataFrame,
        ranges: Ranges,
        floors: Ends,
        *,
        in_one_task: bool,
        validation: HeaderValidation | None = None,
        columns: frozenset[str] | None = None,
    ) -> DataFrame:
        """Return the rows of the ranges, without those below `floors`, which are committed already.

        `frame` is the micro-batch as Spark's own source reads it. The Arrow reader yields only
        records that `validation` accepts, if it is given; ask `validates` before. And it sends only
        `columns` to the JVM, if they are given; the others are null.
        """
        self.rows_went_to.add("jvm")
        if not self._is_arrow and self._plan.bytes_max is not None:
            # `frame` has all that Spark planned. With filters, each part would read all of it.
            wanted = ranges.remaining(floors)
            starts = {tp: start for tp, (start, _) in wanted.items()}
            ends = {tp: end for tp, (_, end) in wanted.items()}
            return source_of(self._plan, starts).records(frame.sparkSession, ends)
        if not self._is_arrow:
            assert validation is None, "asked by `validates`"
            frame = above(frame, floors)
            return below(frame, ranges.ends) if self._is_bounded else frame
        source = self._source(ranges, floors, in_one_task=in_one_task)
        parsers = self._json.parsers
        found = replace(source, validation=validation, parsers=parsers, columns=columns)
        return found.frame(frame.sparkSession)

    @property
    def validates(self) -> bool:
        """Return whether the tasks that read the source can run dedup, without SQL."""
        dedup = self._plan.dedup
        return self._is_arrow and dedup is not None and not dedup.needs_sql

    def columns_needed(self, out: DataFrame) -> frozenset[str] | None:
        """Return the names of the source's columns that the rows `out` are computed from. Return
        None if all may be needed, or if Spark's source reads them, which knows that itself.

        The steps are applied a second time to these columns, and Spark optimizes that query on its
        own. So they must be the same steps then: a function that returns another DataFrame, or a
        condition on the present time, could read a column that was not needed before."""
        if not self._is_arrow or builds_dataframes(self._plan.transforms) or is_unstable(out):
            return None
        return columns_read(out)

    def begin_attempt(self) -> None:
        """Forget what earlier jobs have read, and choose whether Spark or Python tasks run the
        steps."""
        if self._report is not None:
            self._report.clear()
        if not self._is_arrow or self._python_plan is not None or not self._is_translatable:
            return
        if self._spark_attempts:
            self._spark_attempts -= 1
            return
        if self._steps is not None:  # the attempt before ran in Python
            self._next_spark_attempts = max(1, self._next_spark_attempts - 1)
        found = arrow_steps(self._plan, self._spark, self._json)
        self._is_translatable = isinstance(found, ArrowSteps)
        self._steps = found if isinstance(found, ArrowSteps) else None

    def report_traces(self, batch_id: int) -> None:
        """Emit the trace contexts that the attempt's jobs have read."""
        if self._report is not None and self._report.contexts:
            self._bus.emit(events.TraceContextsRead(batch_id, self._report.contexts))

    @property
    def amounts(self) -> ReadAmounts:
        """Return the amounts that the attempt's jobs have read. They are empty if the run has no
        observers and metrics, or reads with Spark's source."""
        return ReadAmounts() if self._report is None else self._report.amounts

    @property
    def is_in_python(self) -> bool:
        """Return whether Python tasks process the records alone, without the JVM."""
        return self._is_arrow and self._task_plan is not None

    @property
    def _task_plan(self) -> TaskPlan | None:
        return self._python_plan if self._steps is None else ArrowPlan(self._steps)

    def python_rows(
        self,
        frame: DataFrame,
        ranges: Ranges,
        floors: Ends,
        targets: int,
        validation: HeaderValidation | None,
    ) -> PythonRows:
        """Return the micro-batch's rows for tasks that run without the JVM.

        `targets` is the number of target partitions. `validation` is dedup's check of record
        headers, or None.
        """
        plan = self._task_plan
        assert plan is not None, "asked by `is_in_python`"
        self.rows_went_to.add("python")
        source = self._source(ranges, floors, targets=targets)
        return PythonRows(frame.sparkSession, source, plan.with_validation(validation))

    def leaves_to_spark(self, error: EosError, batch_id: int) -> bool:
        """Return whether Spark can run the steps in the same attempt, after an error of the Python
        tasks. That is so if some records need Spark, and nothing was sent yet.

        Spark then also runs the steps of the next attempts."""
        if error.code != _NEEDS_SPARK:
            return False
        self._steps = None
        self._spark_attempts = self._next_spark_attempts
        self._next_spark_attempts = min(2 * self._spark_attempts, _SPARK_ATTEMPTS_MAX)
        if not error.fields["is_nothing_sent"]:
            return False
        self._bus.emit(events.StepsLeftToSpark(batch_id, error.message, self._spark_attempts))
        if self._report is not None:
            self._report.clear()
        return True

    def falls_back(self, error: EosError) -> bool:
        """Return whether a failed attempt may be retried with Spark's source, because of an old
        record batch format. If so, use Spark's source from now on."""
        if error.code != _ONLY_SPARKS or not self._is_arrow:
            return False
        spark = ReaderChoice("spark", error.message)
        require_tokens(self._plan, spark, is_one_machine=self.slots > 0)
        self._is_arrow = False
        name, message = self._plan.names.pipeline, error.message
        self._bus.emit(events.Warned(f"{name}: {message}. {SPARK_NAME} reads the records now"))
        return True

    @cached_property
    def _json(self) -> JsonParsing:
        return json_parsing(self._plan, self._spark)

    @cached_property
    def _python_plan(self) -> TaskPlan | None:
        return python_plan(self._plan, self._spark, parsed(SPARK_SCHEMA))

    def _source(
        self, ranges: Ranges, floors: Ends, *, in_one_task: bool = False, targets: int = 0
    ) -> ArrowSource:
        plan = self._plan
        rows_max, bytes_max = arrow_limits(self._spark)
        wanted = ranges.remaining(floors)
        many = plan.source.min_partitions or 0
        if in_one_task:
            tasks = 1
        elif plan.dedup is not None and not targets:
            tasks = len(wanted)  # dedup validates a partition in one task
        else:
            tasks = min(plan.parallelism, max(len(wanted), many, targets))
        divided = divide(wanted, max(1, tasks), splits=bool(many))
        # Tasks without a range read nothing. They write record batches that other tasks have
        # encoded.
        divided += [[] for _ in range(max(1, min(tasks, targets)) - len(divided))]
        return ArrowSource(
            source_client(plan, self._client).settings,
            self._client.profile,
            divided,
            rows_max=rows_max,
            bytes_max=bytes_max,
            report=self._report,
        )
