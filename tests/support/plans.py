"""A plan without a pipeline file, for tests of what needs no more than its names."""

from __future__ import annotations

from pathlib import Path

from eos.config.source import KafkaSource
from eos.plan.names import Names
from eos.plan.plan import Plan


def plan(lock: Path | str = "", deployment: str = "here", root: Path | str = "") -> Plan:
    return Plan(
        names=Names(
            "orders",
            "eos.orders",
            "eos.orders",
            "eos.ledger.orders",
            "",
            str(lock),
            state_root=str(root),
        ),
        bootstrap=("none:1",),
        source=KafkaSource(topic="in"),
        transforms=(),
        sinks=(),
        created_topics={},
        trigger_every_ms=None,
        transaction_timeout_ms=60_000,
        deployment=deployment,
    )
