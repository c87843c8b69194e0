"""A project folder like a user's, and pipelines started in it as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from eos.config.load import load_profile
from eos.errors import EosError
from eos.local.embedded_kafka import EmbeddedKafka
from support.brokers import Kafka
from support.warm import Run, Warm

CHECKOUT = Path(__file__).parents[2]
RUN_S_MAX = 900  # a bound, not a measure: a hanging driver must not hang the suite

PROFILE = """
kafka: {{bootstrap: {bootstrap}}}
state: {{root: "{root}"}}
spark:
  master: local[2]
  conf:
    spark.driver.memory: 1g
    spark.driver.host: 127.0.0.1
    spark.driver.bindAddress: 127.0.0.1
    spark.ui.enabled: false
    spark.sql.shuffle.partitions: 2 # each is a task of every micro-batch that has a shuffle
    # A short life: half of it would go into optimising code that runs once.
    spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""

PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
transform:
  - {{python: "pipelines.{module}.transform:passed_on"}}
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""

TRANSFORM = '''
def passed_on(frame):
    """A function in between that changes nothing a reader could miss."""
    return frame.filter("value IS NOT NULL")
'''


@dataclass(frozen=True)
class Project:
    """One pipeline on the session's broker, with topics of its own."""

    folder: Path
    broker: Kafka
    name: str
    warm: Warm | None = None

    @classmethod
    def made(cls, folder: Path, broker: Kafka, warm: Warm | None = None) -> Project:
        made = cls(folder, broker, f"p{uuid.uuid4().hex[:8]}", warm)
        made._write_profile(broker.bootstrap)
        return made

    @classmethod
    def without_broker(cls, folder: Path) -> Project:
        """Its launcher starts one of its own, in `state/broker`."""
        made = cls(folder, EmbeddedKafka(folder / "state" / "broker"), f"p{uuid.uuid4().hex[:8]}")
        made._write_profile("null")
        return made

    def _write_profile(self, bootstrap: str) -> None:
        self.profile.parent.mkdir()
        root = self.folder / "state"
        self.profile.write_text(PROFILE.format(bootstrap=bootstrap, root=root))

    @property
    def source(self) -> str:
        return f"{self.name}.in"

    @property
    def target(self) -> str:
        return f"{self.name}.out"

    @property
    def ledger(self) -> str:
        return f"eos.ledger.{self.name}"

    @property
    def group(self) -> str:
        return f"eos.{self.name}"

    def declare(self, records: int, partitions: int = 4, text: str = PIPELINE) -> None:
        place = self.folder / "pipelines" / self.name
        place.mkdir(parents=True, exist_ok=True)
        (place / "transform.py").write_text(TRANSFORM)
        (place / "pipeline.yaml").write_text(
            text.format(
                name=self.name,
                module=self.name,
                source=self.source,
                target=self.target,
                records=records,
                partitions=partitions,
            )
        )

    @property
    def profile(self) -> Path:
        return self.folder / "conf" / "test.yaml"

    def words(self) -> list[str]:
        pipeline = self.folder / "pipelines" / self.name / "pipeline.yaml"
        return [str(pipeline), "--profile", str(self.profile)]

    def command(self) -> list[str]:
        return [sys.executable, "-m", "eos.cli.run", *self.words()]

    def environment(self, **extra: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("EOS_")}
        return {**inherited, "PYTHONPATH": str(CHECKOUT), **extra}

    def run(self, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(),
            env=self.environment(**extra),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )

    def start_warm(self, *options: str, **extra: str) -> Run:
        """Begins a run in the session's warm driver: see `support.warm`."""
        assert self.warm is not None
        try:
            settings = load_profile(str(self.profile), self.folder).spark.conf
        except EosError:  # the run will say so itself
            settings = {}
        log = self.folder / f"warm-{len(list(self.folder.glob('warm-*.log'))) + 1}.log"
        return self.warm.start([*self.words(), *options], self.folder, log, extra, settings)

    def run_warm(self, *options: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """As `run`, in a second or two. Not for what ends a process or belongs to spark-submit."""
        run = self.start_warm(*options, **extra)
        return subprocess.CompletedProcess(self.words(), run.wait(), "", run.said())
