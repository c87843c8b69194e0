"""What promtool says of the alerts, the example's configuration and the names of the metrics."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import generate_latest
from support.collectors.prometheus import ALERTS, CONFIG, alerts, promtool
from support.collectors.run_events import STORY

from eos.observe import events
from eos.observe.metrics import RunMetrics

CASES = Path(__file__).with_name("alerts_test.yaml")


def test_the_rules_and_the_configuration_are_valid() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", "--lint-fatal", str(ALERTS))
    promtool("check", "config", "--lint-fatal", str(CONFIG))


def test_each_alert_fires_when_it_should() -> None:
    promtool("test", "rules", str(CASES))


def test_names_and_helps_follow_promtools_conventions() -> None:
    metrics = RunMetrics("orders", {"version": "0.1.0"})
    metrics.registry.watch([])
    for event in (*STORY, events.Stopped("orders", "drained")):
        metrics(event)
    text = generate_latest(metrics.registry.collected).decode()
    assert promtool("check", "metrics", text=text) == ""
