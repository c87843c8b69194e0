"""A collector of OpenLineage's run events, in this process, and what the specification requires."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Event = dict[str, Any]

_SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_HANG_S = 60  # a bound that a passing test never reaches
_FACETS = "https://openlineage.io/spec/facets/"


class Collector:
    """Keeps the events that it accepts. `answers` are the next responses; 200 after them.

    While `is_hanging` is set, it reads a request and sends no response.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.answers: list[int] = []
        self.asked = 0
        self.paths: set[str] = set()
        self.headers: list[Mapping[str, str]] = []
        self.is_hanging = False
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> int:
        self.asked += 1
        self.paths.add(path)
        self.headers.append(headers)
        if self.is_hanging:
            self._released.wait(_HANG_S)
        status = self.answers.pop(0) if self.answers else 200
        if status == 200:
            self.events.append(json.loads(body))
        return status

    def states(self) -> list[str]:
        return [each["eventType"] for each in self.events]


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, collector: Collector, *arguments: Any) -> None:
        self.collector = collector
        super().__init__(*arguments)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.collector.answer(self.path, dict(self.headers), body)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def require_valid(event: Event) -> None:
    """Fail unless the event has what the specification requires of a run event."""
    assert event["eventType"] in ("START", "RUNNING", "COMPLETE", "ABORT", "FAIL")
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert event["producer"].startswith("urn:spark-eos:")
    assert event["schemaURL"] == _SPEC
    assert str(uuid.UUID(event["run"]["runId"])) == event["run"]["runId"]
    assert event["job"]["namespace"]
    assert event["job"]["name"]
    datasets = [*event["inputs"], *event["outputs"]]
    names = [(each["namespace"], each["name"]) for each in datasets]
    assert all(namespace and name for namespace, name in names), names
    for part in (event["run"], event["job"], *datasets):
        for kind in ("facets", "inputFacets", "outputFacets"):
            for facet in part.get(kind, {}).values():
                assert facet["_schemaURL"].startswith(_FACETS)
                assert facet["_producer"]


def names_of(datasets: list[Event]) -> list[tuple[str, str]]:
    return [(each["namespace"], each["name"]) for each in datasets]


def amounts_of(event: Event) -> dict[str, tuple[int, int]]:
    """Rows and bytes of each output that has statistics, by name."""
    found = {
        each["name"]: each.get("outputFacets", {}).get("outputStatistics")
        for each in event["outputs"]
    }
    return {name: (each["rowCount"], each["size"]) for name, each in found.items() if each}
