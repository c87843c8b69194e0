"""A real Prometheus scrapes a run that lasts and the push gateway with one that has ended: each
alert and each query of the dashboard is evaluated on that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, suppress
from threading import Event

import pytest
from support.collectors.prometheus import (
    Server,
    alerts,
    dashboard,
    metrics_of,
    queries,
    running,
    scraping,
)
from support.collectors.run_events import STORY
from support.waiting import WAIT_S_MAX, wait_until

from eos.config.monitoring import MetricsProfile
from eos.errors import FencedError
from eos.observe import events
from eos.observe.bus import Bus
from eos.run.observing import observing

# A gauge has to be scraped a few times before a rate, and before a rule is evaluated on it.
SCRAPED = 'min(count_over_time(eos_build_info{pipeline=~"orders|nightly"}[1m])) > 3'


def push_a_fenced_run(gateway: str) -> None:
    profile = MetricsProfile.model_validate({"push": {"url": gateway}})
    bus = Bus()
    with suppress(FencedError), observing("nightly", bus, [], profile):
        for event in STORY:
            bus.emit(event)
        raise FencedError("fenced", "another instance took over")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that has scraped the running pipeline `orders`, and `nightly`, which was fenced."""
    folder = tmp_path_factory.mktemp("prometheus")
    profile = MetricsProfile.model_validate({"prometheus": {"port": 0}})
    urls: list[str] = []
    is_served = Event()

    def listens(event: events.Event) -> None:
        if isinstance(event, events.MetricsServed):
            urls.append(event.url)
            is_served.set()

    with running("prometheus-pushgateway", folder) as gateway, closing(Bus()) as bus:
        push_a_fenced_run(gateway.url)
        bus.subscribe(listens)
        with observing("orders", bus, [], profile):
            for event in (*STORY, events.BrokersAnswer(9.0)):
                bus.emit(event)
            assert is_served.wait(WAIT_S_MAX)
            endpoint = urls[0].removeprefix("http://").removesuffix("/metrics")
            targets = {"eos": endpoint, "pushgateway": gateway.address}
            with scraping(folder, targets) as server:
                wait_until(lambda: len(server.query(f"({SCRAPED}) and count(eos_build_info) == 2")))
                yield server


def test_each_alert_is_evaluated(prometheus: Server) -> None:
    def rules() -> dict[str, str]:
        (group,) = prometheus.get("/api/v1/rules")["groups"]
        return {each["name"]: each["health"] + each.get("lastError", "") for each in group["rules"]}

    wait_until(lambda: "unknown" not in rules().values(), rules)
    assert rules() == {each["alert"]: "ok" for each in alerts()}


def test_alerts_fire_for_what_happened_and_for_nothing_else(prometheus: Server) -> None:
    def firing() -> set[tuple[str, str, str]]:
        """Name, pipeline and job. Pending alerts count, too."""
        found = [each["labels"] for each in prometheus.get("/api/v1/alerts")["alerts"]]
        return {(each["alertname"], each["pipeline"], each.get("job", "")) for each in found}

    expected = {
        ("EosDeadLetters", "nightly", ""),
        ("EosDeadLetters", "orders", ""),
        ("EosFenced", "nightly", "eos"),
    }
    wait_until(lambda: firing() >= expected, firing)
    assert firing() == expected


def test_each_metric_of_an_alert_or_a_panel_exists(prometheus: Server) -> None:
    known = prometheus.get("/api/v1/label/__name__/values", **{"match[]": '{pipeline!=""}'})
    scraped = {re.sub("_bucket$", "", name) for name in known}
    used = [each["expr"] for each in alerts()] + [query for _, query in queries()]
    assert len(used) > 20
    assert set().union(*map(metrics_of, used)) <= scraped


@pytest.mark.parametrize(("title", "query"), list(queries()), ids=lambda text: text[:30])
def test_each_panel_shows_something(prometheus: Server, title: str, query: str) -> None:
    assert "$" not in query
    wait_until(lambda: prometheus.query(query), f"{title}: no series for {query}", wait_s=60)


def test_the_dashboard_lists_the_pipelines(prometheus: Server) -> None:
    (query,) = (
        each["query"]["query"]
        for each in dashboard()["templating"]["list"]
        if each["name"] == "pipeline"
    )
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
    assert found
    values = prometheus.get(f"/api/v1/label/{found[2]}/values", **{"match[]": found[1]})
    assert values == ["nightly", "orders"]
