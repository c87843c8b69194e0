"""A run is watched from outside: its endpoint is scraped, its metrics are pushed, and observers
that fail or hang change nothing about it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.collectors import lineage, otlp
from support.docs import blocks, require_shown
from support.kafka import kafka_io
from support.spark.project import PIPELINE, RUN_S_MAX, Project, WarmRun
from support.waiting import WAIT_S_MAX, wait_until

OBSERVERS = '''
import json
import threading

class Writes:
    """Keeps each event as a line of JSON."""
    def __init__(self, path):
        self.file = open(path, "w")
    def __call__(self, event):
        fields = {name: getattr(event, name) for name in event.__dataclass_fields__}
        self.file.write(json.dumps({"event": type(event).__name__, **fields}, default=str) + "\\n")
        self.file.flush()
    def close(self):
        self.file.write(json.dumps({"event": "closed"}) + "\\n")
        self.file.close()

class Jobs:
    """Writes the descriptions of the jobs in Spark's UI when the run ends."""
    def __init__(self, path):
        self.path = path
    def __call__(self, event):
        if type(event).__name__ == "Stopped":
            from pyspark import SparkContext
            jobs = SparkContext._active_spark_context._jsc.sc().statusStore().jobsList(None)
            found = [jobs.apply(n).description().get() for n in range(jobs.size())]
            with open(self.path, "w") as file:
                json.dump(found, file)

class LogsInSpark:
    """Writes a line with an exception into Spark's own log."""
    def __init__(self):
        pass
    def __call__(self, event):
        if type(event).__name__ == "PipelineStarted":
            from pyspark import SparkContext
            jvm = SparkContext._active_spark_context._jvm
            error = jvm.java.lang.RuntimeException("bo\\nom")
            jvm.org.slf4j.LoggerFactory.getLogger("own").error('a "quoted"\\nline', error)

def hangs():
    return lambda event: threading.Event().wait()

def hangs_at_once():
    threading.Event().wait()

def fails():
    def observer(event):
        raise SystemExit(1)
    return observer
'''
RECORDS = 1_000


def observed(
    project: Project,
    profile: str,
    trigger: str = "available_now: true",
    headers: Sequence[Sequence[tuple[str, bytes]]] = ((),),
) -> None:
    """Declare a pipeline whose source has records, and add lines to its profile.

    Equal parts of the records have these headers."""
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    for part, each in enumerate(headers):
        numbers = range(RECORDS)[part :: len(headers)]
        kafka_io.fill(project.broker.bootstrap, project.source, numbers, headers=each)
    project.declare(RECORDS // 2, 1, text=PIPELINE.replace("available_now: true", trigger))
    (project.folder / "watch.py").write_text(OBSERVERS)
    project.profile.write_text(project.profile.read_text() + profile)


def scraped(run: WarmRun) -> str:
    url = re.search(r"metrics are served at (\S+)", run.said())
    assert url, run.said()
    with urllib.request.urlopen(url[1], timeout=WAIT_S_MAX) as response:
        return response.read().decode()


def values(text: str) -> dict[tuple[str, str], float]:
    """The samples by name and the value of the last label."""
    return {
        (each.name, next(reversed([v for k, v in each.labels.items() if k != "pipeline"]), "")): (
            each.value
        )
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


@pytest.mark.long
def test_prometheus_scrapes_a_run(project: Project) -> None:
    observed(project, "metrics: {prometheus: {port: 0}}\n", "every: 100 ms")
    run = project.start_warm()
    try:
        wait_until(lambda: "metrics are served at" in run.said(), run.said, run)

        def is_drained() -> bool:
            now = values(scraped(run))
            is_all = now.get(("eos_source_records_total", project.source)) == RECORDS
            return is_all and now.get(("eos_source_lag_offsets", project.source)) == 0

        wait_until(is_drained, run.said, run)
        text = scraped(run)
        kafka_io.fill(project.broker.bootstrap, project.source, range(RECORDS, RECORDS + 1))
        read = "eos_source_records_total", project.source
        wait_until(lambda: values(scraped(run))[read] == RECORDS + 1, run.said, run)
    finally:
        run.send_signal(signal.SIGTERM)
        assert run.wait() == 0, run.said()
    found = values(text)
    assert found["eos_attempts_total", "committed"] == 2
    assert found["eos_target_records_total", project.target] == RECORDS
    assert found["eos_source_committed_offsets", project.source] == RECORDS
    assert found["eos_target_bytes_total", project.target] > RECORDS
    assert found["eos_source_bytes_total", project.source] > RECORDS
    assert found["eos_ledger_end_offset", ""] > 2
    assert found["eos_transaction_timeout_seconds", ""] == 600
    assert found["eos_audit_backlog_max_attempts", ""] == 1000
    assert ("eos_run_exit_code", "") not in found, "the run lasts"
    assert found["eos_micro_batch_step_seconds_count", "end"] == 2
    rows = kafka_io.read(project.broker.bootstrap, project.ledger)
    bodies = [json.loads(row.value or b"") for row in rows]
    first, *_, last = (each["attempt"] for each in bodies if each["kind"] == "attempt")
    assert "previous_ms" not in first
    assert set(last["previous_ms"]) == {"ledger", "offsets", "end"}
    assert last["lag_ms"] >= 0, "the run knew its lag, as its metrics had it"
    require_on_page(2, project, [line for line in text.splitlines() if not line.startswith("#")])


def require_on_page(number: int, project: Project, printed: list[str]) -> None:
    """Fail unless the page's block shows these lines, with other names."""
    names = {project.target: "orders.enriched", project.source: "orders", project.name: "orders"}
    for own, shown in names.items():
        printed = [line.replace(own, shown) for line in printed]
    require_shown(dict(blocks(""))[f"monitoring.md-{number}"], printed)


@pytest.mark.nightly
def test_the_whole_log_is_json(project: Project) -> None:
    """By spark-submit, whose launcher has lines of its own."""
    observed(project, "observers: [{python: watch:LogsInSpark}]\n")
    command = [*project.command(), "--log-format", "json", "--log-level", "debug"]
    how: dict[str, Any] = {
        "env": project.environment(),
        "cwd": project.folder,
        "capture_output": True,
        "text": True,
        "timeout": RUN_S_MAX,
    }
    done = subprocess.run(command, **how, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["pipeline"] for line in lines} == {project.name}
    begun, committed = (
        [line for line in lines if line.get("event") == kind]
        for kind in ("AttemptStarted", "MicroBatchCommitted")
    )
    assert [line["level"] for line in begun] == ["debug"] * 2
    identities = [
        [(line["producer_id"], line["epoch"]) for line in of] for of in (begun, committed)
    ]
    assert identities[0] == identities[1]
    assert [(line["batch_id"], line["attempt"]) for line in committed] == [(0, 1), (1, 1)]
    of_spark = project.folder / "state" / "logs" / project.name / "spark.log"
    lines = [json.loads(line) for line in of_spark.read_text().splitlines()]
    assert {line["level"] for line in lines} >= {"info", "warning"}
    assert {line["pipeline"] for line in lines} == {project.name}
    assert all(line["time"] and line["message"] and line["logger"] for line in lines)
    (failed,) = (line for line in lines if line["logger"] == "own")
    assert (failed["level"], failed["message"]) == ("error", 'a "quoted"\nline')
    assert failed["error"].startswith("java.lang.RuntimeException: bo\nom\n\tat "), failed
    size = of_spark.stat().st_size
    command[-1] = "error"
    subprocess.run(command, **how, check=True)
    more = [json.loads(line) for line in of_spark.read_bytes()[size:].splitlines()]
    assert [line["level"] for line in more] == ["error"] * len(more) != []
    shown = [line for line in done.stderr.splitlines() if '"level": "debug"' not in line]
    require_on_page(4, project, shown)


class Gateway(BaseHTTPRequestHandler):
    pushed: dict[str, str] = {}  # noqa: RUF012 - of the class, which the server creates

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        self.pushed[self.path] = self.rfile.read(size).decode()
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_observers_see_a_run_and_can_not_disturb_it(project: Project) -> None:
    path = project.folder / "events.jsonl"
    others = "".join(f"  - python: watch:{name}\n" for name in ("hangs", "hangs_at_once", "fails"))
    span, *traces = "b7ad6b7169203331", "a" * 32, "b" * 32  # a trace for each micro-batch
    with (
        closing(lineage.Collector()) as lineages,
        closing(otlp.Collector()) as collector,
        ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        observed(
            project,
            f'metrics: {{push: {{url: "http://127.0.0.1:{server.server_port}"}}}}\n'
            f'openlineage: {{url: "{lineages.url}", interval_s: 3600}}\n'
            f'opentelemetry: {{endpoint: "{collector.endpoint}", metrics: false}}\n'
            f'observers:\n  - {{python: "watch:Writes", with: {{path: "{path}"}}}}\n'
            f'  - {{python: "watch:Jobs", with: {{path: "{path}.jobs"}}}}\n{others}',
            headers=[[("traceparent", f"00-{each}-{span}-01".encode())] for each in traces],
        )
        done = project.run_warm()
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert kafka_io.committed_attempts(project.broker.bootstrap, project.ledger) == 2
    assert len(kafka_io.read(project.broker.bootstrap, project.target)) == RECORDS
    assert done.stderr.count("observer watch:fails failed, and gets the next event") == 1

    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = [line["event"] for line in lines if line["event"] not in ("Warned", "AuditFollowed")]
    assert kinds[-3:] == ["SourceLag", "Stopped", "closed"]
    attempts = [kind for kind in kinds if kind in ("AttemptStarted", "MicroBatchCommitted")]
    assert attempts == ["AttemptStarted", "MicroBatchCommitted"] * 2
    started, committed = (
        [line for line in lines if line["event"] == kind]
        for kind in ("AttemptStarted", "MicroBatchCommitted")
    )
    for begun, ended in zip(started, committed, strict=True):
        assert begun["offsets_in"] == {project.source: RECORDS // 2}
        assert (begun["producer_id"], begun["epoch"]) == (ended["producer_id"], ended["epoch"])
        assert ended["records_out_by_topic"] == {project.target: RECORDS // 2}
        assert ended["records_in_by_topic"] == {project.source: RECORDS // 2}
        assert ended["bytes_in_by_topic"].keys() == {project.source}
    assert committed[0]["epoch"] != committed[1]["epoch"]

    described = json.loads(Path(f"{path}.jobs").read_text())
    for number, begun in enumerate(started):
        text = f"{project.name}: micro-batch {number}, epoch {begun['epoch']}: read, transform, "
        assert [each for each in described if each.startswith(text)], described

    body = Gateway.pushed[f"/metrics/job/eos/pipeline/{project.name}"]
    assert values(body)["eos_source_records_total", project.source] == RECORDS
    assert values(body)["eos_source_lag_offsets", project.source] == 0
    assert values(body)["eos_run_exit_code", ""] == 0

    roots = [each for each in collector.spans if not each.parent_span_id]
    assert [each.name for each in roots] == ["micro-batch 0", "micro-batch 1"]
    links = [[(each.trace_id.hex(), each.span_id.hex()) for each in root.links] for root in roots]
    assert links == [[(trace, span)] for trace in traces]

    assert lineages.states() == ["START", "COMPLETE"]
    for event in lineages.events:
        lineage.require_valid(event)
        kafka = f"kafka://{project.broker.bootstrap}"
        assert lineage.names_of(event["inputs"]) == [(kafka, project.source)]
        assert lineage.names_of(event["outputs"]) == [(kafka, project.target)]
    records, size = lineage.amounts_of(lineages.events[1])[project.target]
    assert (records, size > RECORDS) == (RECORDS, True)


def test_a_wrong_observer_ends_a_run_before_it_begins(project: Project) -> None:
    observed(project, "observers: [{python: watch:Wrtes}]\n")
    done = project.run_warm("--log-format", "json")
    assert done.returncode == 2, done.stderr
    (line,) = map(json.loads, done.stderr.splitlines())
    assert line["message"].startswith("observer `watch:Wrtes`")
    assert {name: line[name] for name in ("level", "pipeline", "code", "exit_code")} == {
        "level": "error",
        "pipeline": project.name,
        "code": "observer_missing",
        "exit_code": 2,
    }
    assert kafka_io.committed_attempts(project.broker.bootstrap, project.ledger) == 0
