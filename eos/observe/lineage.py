"""OpenLineage's run events: the datasets that a run reads and writes, and how it ended.

    START      the query started, or the run ended before that
    RUNNING    micro-batches committed since the last event; at most one in `interval_s` seconds
    COMPLETE   the run ended without an error
    ABORT      another instance fenced the run, or it ended without an event
    FAIL       another error ended the run

Each event has all datasets and the amounts since the run's start. So a lost event is no loss once a
later one arrives.

The packages are those of the extra `openlineage`. The client's own settings hold, too, such as the
variables OPENLINEAGE_DISABLED and OPENLINEAGE__TAGS__JOB.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
)
from openlineage.client.generated.base import OutputDatasetFacet, RunFacet
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.output_statistics_output_dataset import (
    OutputStatisticsOutputDatasetFacet,
)
from openlineage.client.generated.processing_engine_run import ProcessingEngineRunFacet
from openlineage.client.transport.http import HttpConfig, HttpTransport
from openlineage.client.uuid import generate_new_uuid

import eos
from eos.observe import events

PRODUCER = f"urn:spark-eos:{eos.__version__}"
_TIMEOUT_S = 2.0  # for the connection, and for the response
_RETRY_AFTER_S = (0.2, 0.8)  # the last event only: a run's end waits a few seconds for observers

Name = tuple[str, str]  # of a dataset: namespace and name


@dataclass(frozen=True, slots=True)
class LineageOfPlan:
    """The lineage of a plan. `kafka_in` and `kafka` are the namespaces of topics that are
    read, and of those that are written.

    The topics of a pattern, or of a column, are added when a micro-batch has read or written them.
    """

    namespace: str
    pipeline: str
    is_bounded: bool  # the run ends once it has read the existing records
    kafka_in: str
    kafka: str
    topics_in: Sequence[str] = ()
    topics_out: Sequence[str] = ()
    tables_in: Sequence[Name] = ()
    tables_out: Sequence[Name] = ()


@dataclass(slots=True)
class _Amounts:
    """The topics that the run has read, and what it wrote to each target topic."""

    read: dict[str, None] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)
    size: Counter[str] = field(default_factory=Counter)

    def add(self, event: events.MicroBatchCommitted) -> None:
        self.read |= dict.fromkeys(event.offsets_in_by_topic)
        self.rows.update(event.records_out_by_topic)
        self.size.update(event.bytes_out_by_topic)


def client_of(url: str, endpoint: str, headers: Mapping[str, str]) -> OpenLineageClient:
    """Return a client that sends each event once. It opens no connection before the first one."""
    config = HttpConfig(
        url=f"{url.rstrip('/')}/",
        endpoint=endpoint.lstrip("/"),
        timeout=_TIMEOUT_S,
        # A kept connection would often be closed by the time of the next event.
        custom_headers={"Connection": "close", **headers},
        retry={"total": 0},  # urllib3 would log each retry on stderr
    )
    return OpenLineageClient(transport=HttpTransport(config))


class RunLineage:
    """The lineage of one run. It is called with each event, and raises if an event can't be sent.

    A START event that can't be sent is sent again before the next event.
    """

    def __init__(
        self,
        lineage: LineageOfPlan,
        client: OpenLineageClient,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lineage, self._client = lineage, client
        self._interval_s, self._clock = interval_s, clock
        self._run_id = str(generate_new_uuid())
        self._began_at = _now()
        self._is_begun = self._has_news = False
        self._next_s = 0.0
        self._amounts = _Amounts()
        self._outcome: tuple[RunState, Mapping[str, RunFacet]] = (RunState.ABORT, {})

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.PipelineStarted():
                self._next_s = self._clock() + self._interval_s
                self._begin()
            case events.MicroBatchCommitted():
                self._amounts.add(event)
                self._has_news = True
            case events.Stopped():
                self._outcome = RunState.COMPLETE, {}
            case events.RunFailed():  # perhaps after `Stopped`
                state = RunState.ABORT if event.kind == "fenced" else RunState.FAIL
                self._outcome = state, {"errorMessage": _error(event)}
        if self._has_news and self._clock() >= self._next_s:
            self._next_s, self._has_news = self._clock() + self._interval_s, False
            self._begin()
            self._send(RunState.RUNNING, _now(), {})

    def close(self) -> None:
        """Send the outcome of the run. Retry that twice."""
        ended_at, (state, facets) = _now(), self._outcome
        for retry_after_s in (*_RETRY_AFTER_S, None):
            try:
                self._begin()
                self._send(state, ended_at, facets)
                return
            except OSError:  # the base class of the HTTP library's errors
                if retry_after_s is None:
                    raise
                time.sleep(retry_after_s)

    def _begin(self) -> None:
        if not self._is_begun:
            self._send(RunState.START, self._began_at, {})
            self._is_begun = True

    def _send(self, state: RunState, at: str, facets: Mapping[str, RunFacet]) -> None:
        of, amounts = self._lineage, self._amounts
        engine = ProcessingEngineRunFacet(
            version("pyspark"), "spark", eos.__version__, producer=PRODUCER
        )
        kind = JobTypeJobFacet(
            "BATCH" if of.is_bounded else "STREAMING", "EOS", "PIPELINE", producer=PRODUCER
        )
        read = [(of.kafka_in, topic) for topic in {**dict.fromkeys(of.topics_in), **amounts.read}]
        written = dict.fromkeys((*of.topics_out, *amounts.rows))
        counts = {} if state is RunState.START else {each: self._counts(each) for each in written}
        self._client.emit(
            RunEvent(
                eventTime=at,
                producer=PRODUCER,
                eventType=state,
                run=Run(self._run_id, {"processing_engine": engine, **facets}),
                job=Job(of.namespace, of.pipeline, {"jobType": kind}),
                inputs=[InputDataset(*each) for each in (*read, *of.tables_in)],
                outputs=[
                    *(OutputDataset(of.kafka, each, counts.get(each, {})) for each in written),
                    *(OutputDataset(*each) for each in of.tables_out),
                ],
            )
        )

    def _counts(self, topic: str) -> dict[str, OutputDatasetFacet]:
        rows, size = self._amounts.rows[topic], self._amounts.size[topic]
        facet = OutputStatisticsOutputDatasetFacet(rowCount=rows, size=size, producer=PRODUCER)
        return {"outputStatistics": facet}


def _error(event: events.RunFailed) -> ErrorMessageRunFacet:
    text = f"[{event.code}] {event.message}" + (f"\nhint: {event.hint}" if event.hint else "")
    return ErrorMessageRunFacet(text, "PYTHON", producer=PRODUCER)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
