"""The brokers that tests run against, and what they hold: log files and transactions."""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import google_crc32c
import pytest
from kafka.protocol.admin.transactions import DescribeTransactionsRequest

from eos.deadline import Deadline
from eos.kafka.client import KafkaClient
from eos.kafka.cluster import Kind
from eos.local.embedded_kafka import EmbeddedKafka
from support.kafka.kafka_io import wait_closed
from support.waiting import wait_until

# For transactions that timed out: many times a second, not every ten seconds.
LOOKS_OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
TV1_VERSIONS = ("3.9", "3.6")  # versions of the embedded broker without transaction version 2


class Node(Protocol):
    @property
    def data(self) -> Path:
        """The folder of its logs."""


class Kafka(Protocol):
    """What a test with Spark asks of its broker. `EmbeddedKafka` is one."""

    tool: Callable[..., Any]  # runs one of Kafka's own command line classes

    @property
    def bootstrap(self) -> str: ...

    @property
    def nodes(self) -> Sequence[Node]: ...


def abandon(kafka: EmbeddedKafka) -> None:
    """Nobody needs its data any more, and a clean stop flushes the logs of hundreds of topics. But
    where its JVM lists classes (`eos/local/broker_node.py`) only a clean stop leaves an archive."""
    for node in kafka.nodes:
        if not (node.folder / "classes").exists():
            kafka.kill(node.number)


@dataclass(frozen=True)
class Elsewhere:
    """A cluster that somebody else runs."""

    bootstrap: str
    tool: Callable[..., Any]

    @property
    def nodes(self) -> Sequence[Node]:
        pytest.skip(f"all else holds; the logs of {self.bootstrap} are out of reach")


@dataclass(frozen=True)
class LoggedBatch:
    """A record batch as it lies in the log. `control` is COMMIT, ABORT or empty."""

    topic: str
    partition: int
    offset: int
    producer_id: int
    epoch: int
    sequence_first: int
    sequence_last: int
    count: int
    transactional: bool
    control: str


_FIELD = re.compile(r"(\w+): (\S+)")


def dump(broker: Kafka, topic: str, node: int = 1) -> list[LoggedBatch]:
    """DumpLogSegments over every segment of the topic on one node.

    Of many topics at once if `topic` is a pattern: a JVM starts slowly.
    """
    root = broker.nodes[node - 1].data
    files = sorted(path for path in root.glob(f"{topic}-[0-9]*/*.log") if path.stat().st_size)
    assert files, f"no log of {topic} under {root}"
    done = broker.tool(
        "org.apache.kafka.tools.DumpLogSegments",
        "--print-data-log",  # without it a control batch doesn't say what it marks
        "--files",
        ",".join(map(str, files)),
    )
    assert done.returncode == 0, done.stderr
    output = done.stdout
    batches: list[LoggedBatch] = []
    of, partition = "", -1
    for line in output.splitlines():
        if line.startswith("Dumping "):
            of, _, number = Path(line.removeprefix("Dumping ")).parent.name.rpartition("-")
            partition = int(number)
        elif line.startswith("baseOffset:"):
            field = dict(_FIELD.findall(line))
            assert field["isvalid"] == "true", line
            batches.append(
                LoggedBatch(
                    of,
                    partition,
                    int(field["baseOffset"]),
                    int(field["producerId"]),
                    int(field["producerEpoch"]),
                    int(field["baseSequence"]),
                    int(field["lastSequence"]),
                    int(field["count"]),
                    field["isTransactional"] == "true",
                    "?" if field["isControl"] == "true" else "",
                )
            )
        elif "endTxnMarker:" in line:
            marker = line.split("endTxnMarker: ")[1].split()[0]
            last = batches.pop()
            batches.append(LoggedBatch(**{**last.__dict__, "control": marker}))
    return batches


def check_log(batches: Sequence[LoggedBatch], *, is_tv1: bool = False) -> dict[str, int]:
    """Each (partition, producer id, epoch) holds sequences from 0 without a gap, then one marker.

    Under TV2 the marker carries the next epoch (KIP-890), which no owner is given where they run
    out; under TV1 only where the broker ended what its owner had left open. Returns how many
    markers of each kind there are.
    """
    markers: dict[str, int] = defaultdict(int)
    open_epoch: dict[tuple[str, int, int], tuple[int, int]] = {}
    ended: dict[tuple[str, int, int], int] = {}
    for batch in batches:
        key = (batch.topic, batch.partition, batch.producer_id)
        if batch.control:
            # A leader adds its partition to the transaction before it appends: a crash between
            # the two leaves a marker without records.
            epoch, _ = open_epoch.pop(key, (batch.epoch - 1, 0))
            allowed = (epoch, epoch + 1) if is_tv1 else (epoch + 1,)
            assert batch.epoch in allowed, f"marker of another epoch: {batch}, data {epoch}"
            ended[key] = batch.epoch if is_tv1 else epoch
            markers[batch.control] += 1
            continue
        assert batch.transactional, f"not transactional: {batch}"
        epoch, expected = open_epoch.get(key, (batch.epoch, 0))
        assert batch.epoch == epoch, f"epoch {epoch} has no marker before {batch}"
        assert batch.epoch > ended.get(key, -1), f"after its epoch's marker: {batch}"
        assert batch.sequence_first == expected, f"expected sequence {expected}: {batch}"
        assert batch.sequence_last == expected + batch.count - 1, batch
        open_epoch[key] = (epoch, batch.sequence_last + 1)
    assert not open_epoch, f"transactions without an end: {open_epoch}"
    return dict(markers)


def check_topic(broker: Kafka, topic: str) -> dict[str, int]:
    """`check_log` of what lies on the first node's disk, once the last markers are there."""
    wait_closed(broker.bootstrap, topic)
    batches = dump(broker, topic)
    return check_log(batches, is_tv1=getattr(broker.nodes[0], "version", "") in TV1_VERSIONS)


EXPIRED = 105  # TRANSACTIONAL_ID_NOT_FOUND
PATIENCE_S = 300


class Transaction(NamedTuple):
    """`state` is empty if the coordinator knows no such id."""

    state: str
    producer_id: int
    epoch: int


def transaction_state(client: KafkaClient, transactional_id: str) -> Transaction:
    deadline, cluster = Deadline.after_ms(PATIENCE_S * 1000), client._cluster
    response = cluster.send_repeatable(
        lambda: cluster.coordinator(Kind.TRANSACTION, transactional_id, deadline),
        lambda: DescribeTransactionsRequest(version=0, transactional_ids=[transactional_id]),
        deadline,
    )
    (found,) = response.transaction_states
    assert found.error_code in (0, EXPIRED), found
    return Transaction(found.transaction_state, found.producer_id, found.producer_epoch)


def wait_ended(client: KafkaClient, transactional_id: str) -> Transaction:
    """Until what was decided is carried out, with all of its markers. What is open stays open."""
    return _wait_for(client, transactional_id, lambda state: not state.startswith("Prepare"))


def wait_for_state(client: KafkaClient, transactional_id: str, *states: str) -> Transaction:
    """Until the coordinator says one of these. "": it has forgotten the id."""
    return _wait_for(client, transactional_id, states.__contains__)


def _wait_for(
    client: KafkaClient, transactional_id: str, is_met: Callable[[str], bool]
) -> Transaction:
    def met() -> Transaction | None:
        found = transaction_state(client, transactional_id)
        return found if is_met(found.state) else None

    return wait_until(met, lambda: f"still {transaction_state(client, transactional_id)}")


# --- a log, as bytes: shares no code with what reads it ------------------------------------------

_AT = {"base": (0, ">q"), "size": (8, ">i"), "crc": (17, ">I"), "attributes": (21, ">h")}
_AT |= {"delta": (23, ">i"), "producer": (43, ">q"), "epoch": (51, ">h"), "sequence": (53, ">i")}
_AT |= {"count": (57, ">i")}


class SegmentBatch(bytearray):
    """One record batch."""

    def get(self, name: str) -> int:
        at, form = _AT[name]
        return struct.unpack_from(form, self, at)[0]

    def set(self, **values: int) -> SegmentBatch:
        """And makes it whole again."""
        for name, value in values.items():
            at, form = _AT[name]
            struct.pack_into(form, self, at, value)
        if "crc" not in values:
            struct.pack_into(">I", self, 17, google_crc32c.value(bytes(self[21:])))
        return self

    @property
    def is_control(self) -> bool:
        return bool(self.get("attributes") & 0x20)


def edit_log(
    data: Path, topic: str, partition: int, change: Callable[[list[SegmentBatch]], Any]
) -> None:
    """The log's only segment, while the broker is down. `change` has all of its record batches."""
    (path,) = data.glob(f"{topic}-{partition}/*.log")
    blob, found, at = path.read_bytes(), [], 0
    while at < len(blob):
        size = struct.unpack_from(">i", blob, at + 8)[0]
        if size <= 0:
            break  # preallocated
        found.append(SegmentBatch(blob[at : at + 12 + size]))
        at += 12 + size
    change(found)
    path.write_bytes(b"".join(found))


def batch_at(found: Sequence[SegmentBatch], offset: int) -> int:
    """The place of the record batch that begins there."""
    (place,) = (place for place, each in enumerate(found) if each.get("base") == offset)
    return place
