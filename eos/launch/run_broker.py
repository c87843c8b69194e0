"""The start of a run's embedded broker, in parallel with spark-submit's JVM.

Broker and JVM each take seconds to start. So the launcher starts the JVM and its driver first, and
passes the driver a file's path instead of the broker's address. The launcher writes the address
into the file once the broker serves and has the records of the demo.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from eos.launch.demo import Demo, LoadedRecords, find_demo
from eos.local.embedded_kafka import EmbeddedKafka


@dataclass(slots=True)
class LocalKafka:
    """The embedded broker of one run, and the demo of its pipeline.

    `pipeline` is None if the run has several: their demos are not loaded. `address` is the file for
    which the driver waits."""

    kafka: EmbeddedKafka
    pipeline: Path | None
    address: Path
    demo: Demo | None = field(default=None, init=False)
    loaded: LoadedRecords | None = field(default=None, init=False)

    def serve(self) -> None:
        """Start the broker, load the demo's records, and write the address file.

        Do nothing if the file exists: a run with --demo-crash starts a second driver."""
        if self.address.exists():
            return
        self.kafka.start()
        if self.pipeline is not None:
            self.demo = find_demo(self.pipeline, self.kafka.bootstrap)
        self.loaded = self.demo.load() if self.demo else None
        unfinished = self.address.with_suffix(".new")
        unfinished.write_text(self.kafka.bootstrap, encoding="ascii")
        unfinished.replace(self.address)
