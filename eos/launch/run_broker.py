"""The embedded broker of one run, which starts while the JVM of spark-submit does.

Each takes seconds, and the driver needs the broker last of all. So the launcher starts the driver
first, and hands it a file instead of an address; the file is there once the broker serves, and the
demo's records are in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from eos.launch.demo import Demo, LoadedRecords, find_demo
from eos.local.embedded_kafka import EmbeddedKafka


@dataclass(slots=True)
class LocalKafka:
    """`address` is the file that the driver waits for."""

    kafka: EmbeddedKafka
    pipeline: Path
    address: Path
    timing: Callable[[str], None]
    demo: Demo | None = field(default=None, init=False)
    loaded: LoadedRecords | None = field(default=None, init=False)

    def serve(self) -> None:
        """Starts what does not run yet. A second driver of the same run finds it all there."""
        if self.address.exists():
            return
        self.timing("starting the broker")
        self.kafka.start()
        self.timing("the broker serves")
        self.demo = find_demo(self.pipeline, self.kafka.bootstrap)
        self.loaded = self.demo.load() if self.demo else None
        unfinished = self.address.with_suffix(".new")
        unfinished.write_text(self.kafka.bootstrap, encoding="ascii")
        unfinished.replace(self.address)
        self.timing("the driver may begin")
