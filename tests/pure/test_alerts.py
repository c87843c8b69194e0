"""The alerts lead to the runbook, and the dashboard can be imported anywhere."""

from __future__ import annotations

import json
import re
from collections import defaultdict

import yaml
from support.collectors.prometheus import alerts, dashboard, metrics_of, queries
from support.docs import ROOT

from eos.observe.metrics import RunMetrics

RUNBOOK = (ROOT / "docs" / "alerts.md").read_text()
ROW = re.compile(r"^\| \[`(\w+)`\]\(#(\w+)\) \| (\w+) \| (\w*) ?\|", re.MULTILINE)


def test_each_alert_links_to_its_section_of_the_runbook() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == [each["alert"] for each in alerts()]
    for each in alerts():
        assert set(each["annotations"]) == {"summary", "description", "runbook_url"}
        assert each["annotations"]["runbook_url"] == f"docs/alerts.md#{each['alert'].lower()}"


def test_the_table_of_the_runbook_is_what_the_file_says() -> None:
    assert ROW.findall(RUNBOOK) == [
        (each["alert"], each["alert"].lower(), each["labels"]["severity"], each.get("for", ""))
        for each in alerts()
    ]


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    text = (ROOT / "tests" / "monitoring" / "alerts_test.yaml").read_text()
    cases: dict[str, set[bool]] = defaultdict(set)
    for test in yaml.safe_load(text)["tests"]:
        for case in test["alert_rule_test"]:
            cases[case["alertname"]].add(bool(case.get("exp_alerts")))
    assert cases == {each["alert"]: {True, False} for each in alerts()}


def test_alerts_and_panels_name_metrics_of_a_run() -> None:
    collected = RunMetrics("p", {}).registry.collected.collect()
    made = {f"{each.name}_total" if each.type == "counter" else each.name for each in collected}
    for query in [*(each["expr"] for each in alerts()), *(query for _, query in queries())]:
        assert metrics_of(query), query
        assert metrics_of(query) <= made, query


def test_the_dashboard_names_no_data_source_and_no_pipeline() -> None:
    board = dashboard()
    assert not {"uid", "id"} & set(board)
    assert set(re.findall(r'"uid": ("[^"]*")', json.dumps(board))) == {'"${datasource}"'}
    panels = board["panels"]
    assert [each["id"] for each in panels] == list(range(1, len(panels) + 1))
    for each in panels:
        assert each["datasource"]["uid"] == "${datasource}", each["title"]
        assert each["description"].endswith("."), each["title"]
        assert each["fieldConfig"]["defaults"]["unit"], each["title"]
        for target in each["targets"]:
            assert 'pipeline=~"$pipeline"' in target["expr"], each["title"]
    covered = {
        (x, y)
        for each in panels
        for place in [each["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    }
    area = sum(each["gridPos"]["w"] * each["gridPos"]["h"] for each in panels)
    assert len(covered) == area, "panels overlap"
    assert area == 24 * (max(y for _, y in covered) + 1), "there is a hole"
