"""The metrics that a run's events make: names, helps and labels as Prometheus wants them, values as
the events say, and a bounded number of time series."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.collectors.run_events import STORY, committed
from support.docs import ROOT
from support.errors import raises

from eos.config.load import load_profile
from eos.config.model import ProfileFile
from eos.config.monitoring import MetricsProfile, PrometheusEndpoint
from eos.errors import FencedError, UsageError
from eos.observe import events
from eos.observe.bus import Bus
from eos.observe.exposition import Endpoint, push
from eos.observe.metric_registry import OTHER, VALUES_MAX
from eos.observe.metrics import SEVERAL, RunMetrics
from eos.run.observing import LoadedObserver, observing

VERSIONS = {"version": "0.1.0", "python": "3.11.7", "pyspark": "4.2.0"}
Samples = dict[tuple[str, str], float]


NOW = 1_795_000_000.0


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> RunMetrics:
    return RunMetrics("orders", VERSIONS, clock)


def text_of(metrics: RunMetrics) -> str:
    return generate_latest(metrics.registry.collected).decode()


def samples(text: str) -> Samples:
    """The values by name and labels, without `pipeline`, which each of them has."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            labels = dict(each.labels)
            assert labels.pop("pipeline") == "orders", each
            named = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
            found[each.name, named] = each.value
    return found


ENDED = ("eos_run_exit_code", "eos_run_end_timestamp_seconds")


def test_the_values_are_those_of_the_events(metrics: RunMetrics, clock: Clock) -> None:
    for event in STORY:
        metrics(event)
    clock.now += 4
    found = samples(text_of(metrics))
    expected: Mapping[tuple[str, str], float] = {
        ("eos_attempts_total", "outcome=committed"): 1,
        ("eos_attempts_total", "outcome=failed"): 1,
        ("eos_attempts_total", "outcome=retried"): 1,
        ("eos_attempts_total", "outcome=stopped"): 1,
        ("eos_redo_ratio", ""): 0.75,
        ("eos_micro_batches_skipped_total", ""): 1,
        ("eos_kafka_errors_total", "api=Produce,error=CORRUPT_MESSAGE"): 1,
        ("eos_kafka_errors_total", "api=TxnOffsetCommit,error=CONCURRENT_TRANSACTIONS"): 1,
        ("eos_kafka_errors_total", "api=EndTxn,error=NO_RESPONSE"): 1,
        ("eos_source_offsets_total", "topic=in"): 12,
        ("eos_source_records_total", "topic=in"): 10,
        ("eos_source_bytes_total", "topic=in"): 1_000,
        ("eos_target_records_total", "topic=out"): 8,
        ("eos_target_records_total", "topic=large"): 1,
        ("eos_target_bytes_total", "topic=out"): 800,
        ("eos_target_bytes_total", "topic=large"): 100,
        ("eos_rejected_records_total", "answer=dead_letter,rule=paid"): 2,
        ("eos_rejected_records_total", "answer=drop,rule=malformed"): 1,
        ("eos_last_rejected_record_timestamp_seconds", "answer=drop,rule=malformed"): NOW,
        ("eos_deduplicated_records_total", "answer=dropped,verdict=duplicate"): 4,
        ("eos_deduplicated_records_total", "answer=accepted,verdict=gap"): 1,
        ("eos_micro_batch_step_seconds_sum", "step=run"): 0.2,
        ("eos_micro_batch_step_seconds_count", "step=end"): 1,
        ("eos_micro_batch_step_seconds_bucket", "le=0.01,step=end"): 0,
        ("eos_micro_batch_step_seconds_bucket", "le=0.025,step=end"): 1,
        ("eos_micro_batch_step_seconds_sum", "step=table"): 1.5,
        ("eos_micro_batch_step_seconds_count", "step=table"): 1,
        ("eos_last_commit_timestamp_seconds", ""): NOW,
        ("eos_transaction_age_seconds", ""): 4,
        ("eos_transaction_timeout_seconds", ""): 600,
        ("eos_ledger_end_offset", ""): 7,
        ("eos_audit_backlog_attempts", ""): 3,
        ("eos_audit_backlog_max_attempts", ""): 1000,
        ("eos_source_lag_offsets", "topic=in"): 8,
        ("eos_source_lag_seconds", "topic=in"): 2.5,
        ("eos_source_committed_offsets", "topic=in"): 12,
        ("eos_source_end_offsets", "topic=in"): 20,
        ("eos_brokers_silent", ""): 1,
        ("eos_warnings_total", ""): 1,
        ("eos_run_failures_total", "kind=fenced"): 0,
        ("eos_build_info", "pyspark=4.2.0,python=3.11.7,version=0.1.0"): 1,
    }
    assert {key: found.get(key) for key in expected} == expected
    assert not [name for name, _ in found if name in ENDED], "the run lasts"
    metrics(events.BrokersAnswer(9.0))
    metrics(events.RunFailed("orders", "fenced", "fenced", "taken", "", 3))
    found = samples(text_of(metrics))
    assert found["eos_run_failures_total", "kind=fenced"] == 1
    assert found["eos_transaction_age_seconds", ""] == 0
    assert found["eos_brokers_silent", ""] == 0
    assert [found[name, ""] for name in ENDED] == [3, NOW + 4]


def test_a_run_that_stops_after_an_error_has_the_code_of_the_error(metrics: RunMetrics) -> None:
    metrics(events.Stopped("orders", "drained"))
    assert samples(text_of(metrics))["eos_run_exit_code", ""] == 0
    metrics(events.RunFailed("orders", "fenced", "fenced", "taken", "", 3))
    assert samples(text_of(metrics))["eos_run_exit_code", ""] == 3


def test_records_of_several_topics_are_not_counted_for_one_of_them(metrics: RunMetrics) -> None:
    several = {"offsets_in_by_topic": {"a": 5, "b": 7}}
    metrics(committed(**several, records_in_by_topic={}))
    metrics(committed(records_in=None, records_in_by_topic={}))
    metrics(committed(**several, records_in_by_topic={"a": 4, "b": 6}))
    found = samples(text_of(metrics))
    counts = {labels: n for (name, labels), n in found.items() if "source_records" in name}
    assert counts == {f"topic={SEVERAL}": 10, "topic=a": 4, "topic=b": 6}


def test_names_helps_and_labels_follow_the_conventions(metrics: RunMetrics) -> None:
    for event in STORY:
        metrics(event)
    metrics.registry.watch([])
    families = list(metrics.registry.collected.collect())
    assert len(families) > 20
    for each in families:
        name = f"{each.name}_total" if each.type == "counter" else each.name
        assert re.fullmatch(r"eos_[a-z_]+", name), name
        assert each.documentation.endswith("."), name
        # A base unit is the suffix; `_total` ends counters, and nothing else.
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mb|percent)\b", name), name
        assert not name.removesuffix("_total").endswith(("_count", "_sum", "_bucket", "_total"))
        times = re.search(r"^(Duration|Time|Unix time)", each.documentation)
        assert bool(times) == name.endswith("_seconds"), name
        assert each.documentation.startswith("Bytes") == name.endswith("_bytes_total"), name
        labels = {label for sample in each.samples for label in sample.labels}
        allowed = {"topic", "outcome", "step", "api", "error", "rule", "answer", "verdict", "kind"}
        assert labels <= {"pipeline", "observer", "le", *allowed, *VERSIONS}, name


def test_the_number_of_time_series_is_bounded(metrics: RunMetrics) -> None:
    names = [f"t{number}" for number in range(3 * VALUES_MAX)]
    metrics(committed(records_out_by_topic=dict.fromkeys(names, 1)))
    metrics(events.SourceLag(dict.fromkeys(names, 1), dict.fromkeys(names, 3), {"x": 9.0}))
    found = samples(text_of(metrics))
    for name in ("eos_target_records_total", "eos_source_lag_offsets"):
        values = {labels: n for (of, labels), n in found.items() if of == name}
        assert len(values) <= VALUES_MAX + 1
        others = values[f"topic={OTHER}"]
        assert sum(values.values()) == 3 * VALUES_MAX * (1 if "total" in name else 2)
        assert others >= 2 * VALUES_MAX
    assert found["eos_source_lag_seconds", f"topic={OTHER}"] == 9


def test_the_page_lists_each_metric(metrics: RunMetrics) -> None:
    metrics.registry.watch([])
    made = {
        f"{each.name}_total" if each.type == "counter" else each.name: each.type
        for each in metrics.registry.collected.collect()
    }
    page = (ROOT / "docs" / "monitoring.md").read_text()
    assert dict(re.findall(r"^\| `(eos_\w+)` \| (\w+) \|", page, re.MULTILINE)) == made


# --- the endpoint and the push gateway ------------------------------------------------------------


def test_a_run_serves_its_metrics_until_it_ends() -> None:
    profile = MetricsProfile.model_validate({"prometheus": {"port": 0}})
    seen: list[events.Event] = []
    counted = threading.Event()

    def fails(event: events.Event) -> None:
        if isinstance(event, events.MicroBatchCommitted):
            counted.set()
        raise RuntimeError("no")

    with closing(Bus()) as bus:
        served, arrived = [], threading.Event()

        def listens(event: events.Event) -> None:
            seen.append(event)
            if isinstance(event, events.MetricsServed):
                served.append(event.url)
                arrived.set()

        bus.subscribe(listens)
        with observing("orders", bus, [LoadedObserver("m:O", lambda: fails)], profile):
            assert arrived.wait(300)
            bus.emit(committed())
            assert counted.wait(300)
            found: Samples = {}
            while ("eos_ledger_end_offset", "") not in found:
                found = samples(read(served[0]))
            assert found["eos_ledger_end_offset", ""] == 7
            assert found["eos_observer_failures_total", "observer=m:O"] >= 1
            assert found["eos_observer_dropped_events_total", "observer=m:O"] == 0
            assert found["eos_observer_dropped_events_total", "observer=metrics"] == 0
        with pytest.raises(OSError, match="refused"):
            read(served[0])


def test_a_port_in_use_is_a_warning() -> None:
    seen: list[events.Event] = []
    with closing(Endpoint(RunMetrics("p", VERSIONS).registry.collected, "127.0.0.1", 0)) as other:
        profile = MetricsProfile.model_validate({"prometheus": {"port": other.port}})
        bus = Bus()
        bus.subscribe(seen.append)
        with observing("orders", bus, [], profile):
            pass
    text = f"metrics are not served at 127.0.0.1, port {other.port}: Address already in use"
    assert seen == [events.Warned(text)]


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=300) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        return response.read().decode()


class Gateway(ThreadingHTTPServer):
    """What a push gateway accepts: the body of each path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pushed: dict[str, str] = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Gateway

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        self.server.pushed[self.path] = self.rfile.read(size).decode()
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as server:
        yield server
        server.shutdown()


def test_a_run_that_ends_pushes_its_last_values(gateway: Gateway) -> None:
    given = {"metrics": {"push": {"url": gateway.url, "job": "nightly"}}}
    profile = ProfileFile.model_validate(given)
    assert profile.is_observed
    with suppress(FencedError), observing("orders", Bus(), [], profile.metrics):
        raise FencedError("fenced", "another instance took over")
    (body,) = (text for path, text in gateway.pushed.items())
    assert list(gateway.pushed) == ["/metrics/job/nightly/pipeline/orders"]
    assert samples(body)["eos_run_failures_total", "kind=fenced"] == 1


def test_a_gateway_that_does_not_answer_is_a_warning() -> None:
    warned: list[str] = []
    metrics = RunMetrics("orders", VERSIONS)
    push(metrics.registry.collected, "http://127.0.0.1:1", "eos", "orders", warned.append)
    assert len(warned) == 1
    assert "could not be pushed to http://127.0.0.1:1: URLError" in warned[0]


def test_a_port_may_be_a_variable(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text("metrics: {prometheus: {port: '${METRICS_PORT}'}}")
    found = load_profile(str(path), tmp_path, {"METRICS_PORT": "9465"}).metrics.prometheus
    assert found == PrometheusEndpoint(port=9465)
    with raises("config_invalid", UsageError) as caught:
        load_profile(str(path), tmp_path, {"METRICS_PORT": "99465"})
    assert "expected a number of at most 65535" in caught.value.message


def test_without_the_part_there_are_no_metrics() -> None:
    assert not ProfileFile.model_validate({}).is_observed
    assert ProfileFile.model_validate({}).metrics == MetricsProfile()
