"""A collector of OpenTelemetry, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """An OTLP collector in this process. It keeps what it gets."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.points: dict[str, list[Any]] = {}  # of counters and gauges, the newest last
        self.resources: list[dict[str, str]] = []
        self.logins: set[str | None] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(values(each.resource.attributes))
                self.spans += [span for scope in each.scope_spans for span in scope.spans]
            return
        assert path == "/v1/metrics", path
        for found in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            self.resources.append(values(found.resource.attributes))
            sent = {m.name: m for scope in found.scope_metrics for m in scope.metrics}
            self.metrics |= sent
            for name, each in sent.items():
                kind = each.WhichOneof("data")
                if kind in ("sum", "gauge"):
                    points = getattr(each, kind).data_points
                    self.points.setdefault(name, []).extend(points)


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, collector: Collector, *arguments: Any) -> None:
        self.collector = collector
        super().__init__(*arguments)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.collector.logins.add(self.headers["Authorization"])
        if self.collector.status == 200:
            self.collector.take(self.path, body)
        self.send_response(self.collector.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def values(attributes: Iterable[Any]) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
