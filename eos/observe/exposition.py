"""The endpoint and the push of a run's metrics.

Prometheus scrapes an HTTP endpoint of the driver while it runs. A run that ends, such as one that
drains its source, pushes its last values to a push gateway. Neither can stop or delay a
micro-batch: if one fails, the run has a warning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from prometheus_client import CollectorRegistry, push_to_gateway

from eos.bounded_server import CONNECTION_S_MAX
from eos.observe.metrics_server import MetricsServer

_PUSH_TIMEOUT_S = 10.0
_CLOSE_S = 5.0


class Endpoint:
    """The HTTP endpoint. It answers scrapes in threads of its own."""

    def __init__(
        self,
        registry: CollectorRegistry,
        address: str,
        port: int,
        *,
        connection_s_max: float = CONNECTION_S_MAX,
    ) -> None:
        """Open the endpoint. Raise OSError if the address can't be used."""
        self._server = MetricsServer(registry, address, port, connection_s_max=connection_s_max)
        serve = self._server.serve_forever
        threading.Thread(target=serve, name="eos-metrics", daemon=True).start()
        self.port: int = self._server.server_port
        host = f"[{address}]" if ":" in address else address
        self.url = f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Close the port and its connections."""
        closing = threading.Thread(target=self._close, name="eos-metrics-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)

    def _close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def push(
    registry: CollectorRegistry, url: str, job: str, pipeline: str, warn: Callable[[str], None]
) -> None:
    """Replace the pipeline's metrics at a push gateway. Warn if it does not accept them in time."""
    problems = ["no response in time"]

    def send() -> None:
        key = {"pipeline": pipeline}
        try:
            push_to_gateway(url, job, registry, grouping_key=key, timeout=_PUSH_TIMEOUT_S)
            problems.clear()
        except Exception as error:  # noqa: BLE001 - it does not change the result of the run
            problems[0] = f"{type(error).__name__}: {error}"

    # In a thread: the timeout is one of each socket operation, and a slow gateway may need many.
    thread = threading.Thread(target=send, name="eos-metrics-push", daemon=True)
    thread.start()
    thread.join(_PUSH_TIMEOUT_S)
    for problem in problems[:1]:
        warn(f"the metrics could not be pushed to {url}: {problem}")
