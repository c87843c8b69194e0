"""Prometheus and its push gateway as processes, and the alerts and the dashboard that they load."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from eos.local.broker_node import HOST, free_ports
from eos.local.processes import end_with_parent
from support.docs import ROOT
from support.waiting import WAIT_S_MAX, wait_until

ALERTS = ROOT / "conf" / "deploy" / "prometheus" / "alerts.yaml"
CONFIG = ALERTS.parent / "prometheus.yaml"
DASHBOARD = ROOT / "conf" / "deploy" / "grafana" / "eos.json"
PROGRAMS = ("prometheus", "promtool", "prometheus-pushgateway")
_UNPACKED = ROOT / ".eos" / "monitoring" / "usr" / "bin"  # by tests/monitoring/install.sh


def find(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path=str(_UNPACKED))


def missing() -> list[str]:
    return [each for each in PROGRAMS if find(each) is None]


def promtool(*arguments: str, text: str | None = None) -> str:
    """Return what promtool prints. Fail if it finds anything."""
    command = [find("promtool") or "promtool", *arguments]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def alerts() -> list[Mapping[str, Any]]:
    """The alerts as the file has them."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Each query of the dashboard with its panel's title, as Grafana sends it."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("$pipeline", "nightly|orders")
            yield panel["title"], query.replace("$__rate_interval", "1m")


def metrics_of(query: str) -> set[str]:
    """The metrics that a query names; of a histogram its own name."""
    return {re.sub(r"_bucket$", "", name) for name in re.findall(r"\beos_\w+", query)}


class Server:
    """A process that answers HTTP at a free port of this machine."""

    def __init__(self, port: int) -> None:
        self.url = f"http://{HOST}:{port}"
        self.address = f"{HOST}:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer. Fail on an error or a warning of the server."""
        url = f"{self.url}{path}?{urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=WAIT_S_MAX) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        assert not answer.get("warnings"), answer
        return answer["data"]

    def query(self, query: str) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = self.get("/api/v1/query", query=query)["result"]
        return found

    def is_ready(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/-/ready", timeout=WAIT_S_MAX):
            return True
        return False


@contextmanager
def running(program: str, folder: Path, *arguments: str) -> Iterator[Server]:
    """Run Prometheus or a push gateway in the folder until the context ends."""
    server = Server(free_ports(1)[0])
    log = folder / f"{program}.log"
    command = [find(program) or program, f"--web.listen-address={server.address}", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=output,
            stderr=output,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - no thread of ours holds a lock here
        )
    try:
        wait_until(server.is_ready, log.read_text, process)
        yield server
    finally:
        process.kill()
        process.wait()


@contextmanager
def scraping(folder: Path, targets: Mapping[str, str]) -> Iterator[Server]:
    """Run Prometheus with the example's configuration, and with its rules.

    `targets` has the address of each job's target.
    """
    config = yaml.safe_load(CONFIG.read_text())
    config["global"] = {"scrape_interval": "200ms", "evaluation_interval": "200ms"}
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
    for name in config["rule_files"]:
        shutil.copy(CONFIG.parent / name, folder)
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    options = ("--config.file=prometheus.yaml", "--storage.tsdb.path=data")
    with running("prometheus", folder, *options) as server:
        yield server
