"""Errors of a failed start of the embedded broker, with the last error lines of its nodes' logs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from eos.errors import UnavailableError, reword
from eos.local.broker_node import Node


def ports_taken(root: Path, nodes: Iterable[Node]) -> UnavailableError:
    error = UnavailableError(
        "broker_ports_taken",
        "the embedded broker did not start: another process uses its ports",
        hint="end that process, or start a new cluster in another state root; --port chooses the "
        "first node's port",
    )
    return _with_logs(error, root, nodes)


def node_ended(root: Path, nodes: Iterable[Node], number: int) -> UnavailableError:
    error = UnavailableError(
        "broker_node_ended",
        f"the embedded broker did not start: node {number} ended",
        hint=f"find the cause in broker.log and console.log of `{root}`/node-{number}",
    )
    return _with_logs(error, root, nodes)


def timed_out(root: Path, nodes: Iterable[Node]) -> UnavailableError:
    error = UnavailableError(
        "broker_start_timeout",
        "the embedded broker did not start in time",
        hint="start it again if this machine was overloaded; the logs are broker.log and "
        f"console.log in `{root}`/node-*",
    )
    return _with_logs(error, root, nodes)


def _with_logs(error: UnavailableError, root: Path, nodes: Iterable[Node]) -> UnavailableError:
    lines = filter(None, (error.message, *(node.complaint() for node in nodes)))
    return reword(error, message="\n".join(lines), root=str(root))
