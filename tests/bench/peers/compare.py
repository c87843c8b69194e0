"""What does each peer take for a workload? Their turns, in rounds, and what came out of each."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.peers.fetch import LeftOutError
from bench.peers.peers import PEERS, Place
from bench.peers.program import FailedError, Program
from bench.peers.workloads import Rows, Workload
from deltalake import DeltaTable
from support.kafka.kafka_io import wait_closed

from eos.local.embedded_kafka import EmbeddedKafka
from eos.testing.outside import create_topics, delete_topics

Run = dict[str, Any]


class Comparison:
    """One workload on one broker. `left_out` has the peers that could not be fetched, and why."""

    def __init__(self, workload: Workload, broker: EmbeddedKafka, folder: Path) -> None:
        self.workload, self.broker, self.folder = workload, broker, folder
        self.left_out: dict[str, str] = {}
        self._rows: Rows = workload.rows()
        self._sources: dict[int, str] = {}

    def runs(self, rounds: int) -> list[Run]:
        """Return the turns of all rounds but 0, which warms up. Each begins with another peer."""
        with ExitStack() as stack:
            stack.callback(self._delete_sources)
            programs, found = start_peers(
                self.workload.peers,
                self.broker,
                self.folder,
                stack,
                self.left_out,
                self.workload.kind,
            )
            for number in range(rounds + 1):
                for name in rotated(list(programs), number):
                    share = PEERS[name].share * (1 if number else self.workload.warm_share)
                    try:
                        run = self._turn(programs[name], self.workload.part(share))
                    except FailedError as error:
                        run = {"failed": str(error)}
                        del programs[name]
                    if number or "failed" in run:
                        found.append({"peer": name, "round": number, **run})
        return found

    def _turn(self, program: Program, records: int) -> Run:
        """Run one turn, into topics of its own, and read what came out."""
        workload, bootstrap = self.workload, self.broker.bootstrap
        target = f"{program.name.replace('_', '-')}-{uuid.uuid4().hex[:8]}"
        topics = workload.targets(target)
        source = self._source(records)
        create_topics(bootstrap, workload.partitions, *topics)
        batch = workload.batch
        took = program.turn(workload.kind, source, target, records, batch)
        wait_closed(bootstrap, *topics)
        found = [workload.found(bootstrap, topic) for topic in topics]
        total = sum(found[1:], found[0])
        expected = workload.expected(self._rows, records)
        wrong = "" if total == expected else f"{total}, expected {expected}"
        if workload.kind == "delta":
            rows = DeltaTable(self.folder / program.name / "lake" / target).count()
            wrong = wrong or ("" if rows == expected.records else f"{rows} rows in the table")
        delete_topics(bootstrap, *topics)
        return {
            "records": records,
            "seconds": took.seconds,
            "cpu_seconds": took.cpu_seconds,
            "broker_cpu_seconds": took.broker_cpu_seconds,
            "wrong": wrong,
        }

    def _source(self, records: int) -> str:
        """Return the topic with so many records, which is filled when it is first needed."""
        if records not in self._sources:
            topic = f"peers.{self.workload.name}.{records}"
            self.workload.fill(self.broker.bootstrap, topic, self._rows, records)
            self._sources[records] = topic
        return self._sources[records]

    def _delete_sources(self) -> None:
        delete_topics(self.broker.bootstrap, *self._sources.values())


def start_peers(
    names: Sequence[str],
    broker: EmbeddedKafka,
    folder: Path,
    stack: ExitStack,
    left_out: dict[str, str],
    kind: str = "copy",
) -> tuple[dict[str, Program], list[Run]]:
    """Return the programs that started, which `stack` ends, and a failed run of each other one."""
    programs: dict[str, Program] = {}
    failed: list[Run] = []
    for name in names:
        try:
            place = Place(broker.bootstrap, folder / name, kind)
            program = PEERS[name].start(name, broker, place)
        except LeftOutError as error:
            left_out[name] = str(error)
        except FailedError as error:
            failed.append({"peer": name, "round": 0, "failed": str(error)})
        else:
            programs[name] = stack.enter_context(program)
    return programs, failed


def rotated(names: Sequence[str], by: int) -> list[str]:
    """Return the names, beginning with another one each time."""
    at = by % len(names) if names else 0
    return [*names[at:], *names[:at]]
