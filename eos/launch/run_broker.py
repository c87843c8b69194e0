"""How does the embedded broker of a run start in parallel with spark-submit's JVM?

Each takes seconds, and the driver needs the broker last. So the launcher starts the driver first
and passes it a file instead of an address. The file appears once the broker serves and has the
records of the demo.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from eos.launch.demo import Demo, LoadedRecords, find_demo
from eos.local.embedded_kafka import EmbeddedKafka


@dataclass(slots=True)
class LocalKafka:
    """Embedded broker of one run, with its demo. The driver waits for the file `address`."""

    kafka: EmbeddedKafka
    pipeline: Path
    address: Path
    timing: Callable[[str], None]
    demo: Demo | None = field(default=None, init=False)
    loaded: LoadedRecords | None = field(default=None, init=False)

    def serve(self) -> None:
        """Start the broker, load the demo's records, and write the address.

        A second driver of the same run finds the file and needs none of this."""
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
