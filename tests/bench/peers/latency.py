"""How long does a record take from a producer to a `read_committed` consumer, through each peer?"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.encoding import records
from bench.peers import latency_clients
from bench.peers.compare import rotated, start_peers
from bench.peers.program import FailedError, Program
from support.kafka.kafka_io import fill_topic
from support.waiting import wait_until

from eos.local.embedded_kafka import EmbeddedKafka
from eos.testing.outside import create_topics, delete_topics, fill, read

SYSTEMS = ("eos", "kafka_streams", "flink")
PARTITIONS = 4
WARM_RECORDS, WARM_DISTINCT = 200_000, 50_000  # copied before the first round
WARM_S = 10  # of each round, not counted
_MORE_S_MAX = 300  # for what a slow machine takes longer
_BATCH_MAX = 1_000_000
Run = dict[str, Any]


class LatencyComparison:
    """One rate on one broker. `left_out` has the peers that could not be fetched, and why."""

    def __init__(self, rate: int, seconds: int, broker: EmbeddedKafka, folder: Path) -> None:
        self.rate, self.seconds = rate, seconds
        self.broker, self.folder = broker, folder
        self.left_out: dict[str, str] = {}

    def runs(self, rounds: int) -> list[Run]:
        """Return what each peer took in each round. Each round begins with another peer."""
        with ExitStack() as stack:
            programs, found = start_peers(SYSTEMS, self.broker, self.folder, stack, self.left_out)
            for number in range(rounds + 1):
                for name in rotated(list(programs), number):
                    try:
                        run = self._turn(programs[name]) if number else self._warm(programs[name])
                    except FailedError as error:
                        run = {"failed": str(error)}
                        del programs[name]
                    if run:
                        found.append({"peer": name, "round": number, **run})
        return found

    def _warm(self, program: Program) -> Run:
        """Copy some records, so that the code is compiled."""
        source, target = _names(program.name)
        fill_topic(self.broker.bootstrap, source, records(WARM_DISTINCT), WARM_RECORDS, PARTITIONS)
        create_topics(self.broker.bootstrap, PARTITIONS, target)
        program.turn("copy", source, target, WARM_RECORDS, _BATCH_MAX)
        delete_topics(self.broker.bootstrap, source, target)
        return {}

    def _turn(self, program: Program) -> Run:
        bootstrap = self.broker.bootstrap
        source, target = _names(program.name)
        create_topics(bootstrap, PARTITIONS, source, target)
        count, skipped = self.rate * self.seconds, self.rate * min(WARM_S, self.seconds // 2)
        program.begin("copy", source, target, batch=_BATCH_MAX)
        self._wait_running(source, target)
        used = program.cpu_seconds()
        reader = _client("read", bootstrap, target, count, skipped)
        writer = _client("write", bootstrap, source, self.rate, self.seconds)
        try:
            written, arrived = (
                _answer(each, self.seconds + _MORE_S_MAX) for each in (writer, reader)
            )
        finally:
            for each in (writer, reader):
                each.kill()
        cpu_seconds = program.cpu_seconds() - used
        program.end_turn()
        delete_topics(bootstrap, source, target)
        assert not written["unsent"], written
        wrong = "" if arrived["once"] else f"{arrived['records']:,} records arrived, of {count:,}"
        return {
            "median_ms": arrived["median_ms"],
            "p99_ms": arrived["p99_ms"],
            "cpu_seconds": round(cpu_seconds, 2),
            "sent_in_seconds": written["seconds"],
            "wrong": wrong,
        }

    def _wait_running(self, source: str, target: str) -> None:
        """Wait until a first record arrives, so that a slow startup is no latency."""
        bootstrap = self.broker.bootstrap
        fill(bootstrap, source, [{"value": latency_clients.PROBE}])
        wait_until(
            lambda: read(bootstrap, target), "the first record did not arrive", wait_s=_MORE_S_MAX
        )


def _names(name: str) -> tuple[str, str]:
    """Return names for a source and a target of one turn."""
    target = f"{name.replace('_', '-')}-{uuid.uuid4().hex[:8]}"
    return f"{target}.source", target


def _client(which: str, bootstrap: str, topic: str, *numbers: int) -> subprocess.Popen[str]:
    words = [sys.executable, latency_clients.__file__, which, bootstrap, topic]
    return subprocess.Popen(
        [*words, *map(str, numbers)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _answer(client: subprocess.Popen[str], wait_s: float) -> dict[str, Any]:
    output, errors = client.communicate(timeout=wait_s)
    assert client.returncode == 0, errors
    found: dict[str, Any] = json.loads(output)
    return found
