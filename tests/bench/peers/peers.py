"""Which peers are there, and how is each one started?"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.arms import CHECKOUT, MASTER, command
from bench.peers.fetch import PROGRAMS, java_words, python_of
from bench.peers.program import Program
from bench.peers.programs.eos_peer import written
from bench.peers.programs.turns import Turn

from eos.config.load import load_pipeline
from eos.launch import java_compiler, spark
from eos.local.embedded_kafka import EmbeddedKafka
from eos.local.java import find_java

TESTS = CHECKOUT / "tests"
_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel={}"
_HEAP = ("-Xms1g", "-Xmx2g")
# As Flink's own scripts set for Java 17.
_PACKAGES = (
    *("java.lang", "java.lang.reflect", "java.net", "java.io", "java.nio", "sun.nio.ch"),
    *("java.text", "java.time", "java.util", "java.util.concurrent"),
    *("java.util.concurrent.atomic", "java.util.concurrent.locks"),
)
_OPENED = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _PACKAGES]


@dataclass(frozen=True)
class Place:
    """Where a program runs: Kafka's address, a folder of its own, and the kind of its turns."""

    bootstrap: str
    folder: Path
    kind: str


@dataclass(frozen=True)
class Command:
    words: list[str]  # PORT stands for the port to connect to
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Peer:
    """A system to compare with. `share` is its part of the records if it is much slower."""

    title: str
    command: Callable[[Place], Command]
    kinds: frozenset[str]
    share: float = 1.0

    def start(self, name: str, broker: EmbeddedKafka, place: Place) -> Program:
        """Fetch what is missing, and start the program."""
        place.folder.mkdir(parents=True)
        found = self.command(place)
        pids = [node.pids()["broker_pid"] for node in broker.nodes]
        return Program(name, found.words, found.environment, place.folder, pids)


def _kafka_streams(place: Place) -> Command:
    words = java_words("KafkaStreamsPeer", "kafka-streams", *_HEAP, _LOG.format("warn"))
    return Command([*words, "PORT", place.bootstrap, str(place.folder)], os.environ)


def _flink(place: Place) -> Command:
    # It warns of hundreds of metrics with the same name.
    words = java_words("FlinkPeer", "flink", *_HEAP, _LOG.format("error"), *_OPENED)
    return Command([*words, "PORT", place.bootstrap], os.environ)


def _quix(place: Place) -> Command:
    words = [str(python_of("quix")), str(PROGRAMS / "quix_peer.py")]
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return Command([*words, "PORT", place.bootstrap, str(place.folder)], without)


def _confluent(place: Place) -> Command:
    return Command(
        [sys.executable, str(PROGRAMS / "confluent_peer.py"), "PORT", place.bootstrap],
        {**os.environ, "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{TESTS}"},
    )


def _on_spark(script: str, *more: str) -> Callable[[Place], Command]:
    def submitted(place: Place) -> Command:
        words = [*command(with_delta=place.kind == "delta"), str(PROGRAMS / script)]
        around = spark.environment(
            spark.find_spark(), find_java().home, MASTER, place.folder, CHECKOUT
        )
        path = f"{around['PYTHONPATH']}{os.pathsep}{TESTS}"
        environment = {**around, "PYTHONPATH": path}
        if script == "eos_peer.py":
            environment = spark.with_java_options(environment, *_java_options(place))
        return Command([*words, "PORT", place.bootstrap, str(place.folder), *more], environment)

    return submitted


def _java_options(place: Place) -> Sequence[str]:
    """Return what `eos run` adds to the JVM's options for a pipeline of these turns."""
    turn = Turn(place.kind, "source", "target", 1, 1, io.StringIO())
    pipeline = load_pipeline(written(turn, place.folder / "example"))
    notes = java_compiler.notes_of([pipeline], place.folder)
    if place.kind == "json":  # as after the first run, whose rows Python tasks had processed
        notes[pipeline.name].write_text("python")
    return java_compiler.java_options([pipeline], notes, MASTER)


_ALL = frozenset({"copy", "fan_out", "json"})
_SPARK = _ALL | {"pandas", "delta", "dedup"}
PEERS = {
    "eos": Peer("eos", _on_spark("eos_peer.py"), _SPARK),
    "flink": Peer("Flink SQL", _flink, _ALL),
    "kafka_streams": Peer("Kafka Streams", _kafka_streams, _ALL),
    "spark_tuned": Peer("Spark's sink, tuned", _on_spark("spark_peer.py", "tuned"), _SPARK),
    "spark": Peer("Spark's sink, default", _on_spark("spark_peer.py", "default"), _SPARK),
    "confluent": Peer("confluent-kafka loop", _confluent, _ALL, share=0.2),
    "quix": Peer("Quix Streams", _quix, _ALL, share=0.02),
}
