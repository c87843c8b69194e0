"""The state of an embedded Kafka cluster, read from its files and locks without starting it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eos.local import cluster_file
from eos.local.broker_node import addresses_of, nodes_of
from eos.local.jars import BROKER_VERSION


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The nodes of a cluster, and which of them run."""

    root: Path
    nodes: int
    down: tuple[int, ...]  # numbers of the nodes that don't run
    bootstrap: str  # addresses of the nodes that run
    is_kept: bool
    version: str

    @property
    def is_running(self) -> bool:
        """Return whether all nodes run."""
        return bool(self.nodes) and not self.down


def status_of(root: Path) -> ClusterStatus:
    root = root.resolve()
    known = cluster_file.read(root)
    nodes = nodes_of(root, known)
    up = [node for node in nodes if node.is_running]
    return ClusterStatus(
        root,
        len(nodes),
        tuple(node.number for node in nodes if node not in up),
        addresses_of(up),
        (root / "keep").exists(),
        known.get("version", BROKER_VERSION),
    )
