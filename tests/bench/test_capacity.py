"""CPU seconds of runs with micro-batches of several sizes and numbers of partitions.

`capacity.py` fits its model to them, and writes docs/capacity.md.
"""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from bench.capacity import Shape, fit
from bench.conftest import Figures
from bench.contents import rows_of
from bench.peers.compare import start_peers
from support.kafka.kafka_io import fill_topic, wait_closed

from eos.local.embedded_kafka import EmbeddedKafka
from eos.testing.outside import create_topics, delete_topics

ROUNDS = int(os.environ.get("EOS_BENCH_ROUNDS", "3"))
SHAPES = (
    Shape(40_000, 40, 4),
    Shape(40_000, 10, 4),
    Shape(1_000_000, 10, 4),
    Shape(1_000_000, 2, 4),
    Shape(4_000_000, 4, 4),
    Shape(4_000_000, 4, 50),
    Shape(1_000_000, 2, 200),
    Shape(1_000_000, 10, 200),
    Shape(4_000_000, 4, 200),
    Shape(1_000_000, 10, 4, 1_000),
    Shape(1_000_000, 2, 1_000, 1_000),
    Shape(1_000_000, 10, 1_000, 1_000),
)


@pytest.mark.timeout(3600)
def test_capacity(broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    rows = rows_of(100_000, 180)
    for records, sources in {(shape.records, shape.sources) for shape in SHAPES}:
        fill_topic(broker.bootstrap, f"capacity.{records}.{sources}", rows, records, sources)
    runs: list[dict[str, Any]] = []
    with ExitStack() as stack:
        programs, failed = start_peers(("eos",), broker, tmp_path, stack, {})
        assert not failed, failed
        for number in range(ROUNDS + 1):  # round 0 warms up
            for shape in SHAPES:
                target = f"capacity-{uuid.uuid4().hex[:8]}"
                create_topics(broker.bootstrap, shape.targets, target)
                source = f"capacity.{shape.records}.{shape.sources}"
                size = shape.records // shape.micro_batches
                took = programs["eos"].turn("copy", source, target, shape.records, size)
                wait_closed(broker.bootstrap, target)
                delete_topics(broker.bootstrap, target)
                if number:
                    runs.append({**asdict(shape), **asdict(took)})
    figures.keep("capacity", runs)
    for name in ("cpu_seconds", "broker_cpu_seconds"):
        model = fit(runs, name)
        figures.add(f"{name}: {model}", f"error {model.error(runs, name):.0%}")
