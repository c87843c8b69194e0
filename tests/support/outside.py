"""What a stranger sees: topics as the public test kit fills and reads them, and logs dumped by
Kafka's own tool. None of it shares code with what writes them.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from eos.testing import outside
from eos.testing.outside import (
    IN_ORDER,
    NOT_COORDINATED,
    NOT_LED,
    READ_S_MAX,
    add_partitions,
    answered,
    create_topics,
    delete_topics,
    read,
    set_topic,
    topics,
)
from support.brokers import Kafka

__all__ = [
    "IN_ORDER",
    "add_partitions",
    "answered",
    "create_topics",
    "delete_topics",
    "read",
    "set_topic",
    "topics",
]

_ASK_S = 180
_POLL_S = 0.02
# Of what is committed, or aborted: its markers are on their way. Whatever else is open stays so.
MARKERS_S_MAX = 120


def fill(bootstrap: str, topic: str, numbers: Iterable[int], keys: int = 97) -> int:
    """One record a number: value is the number, key is number modulo `keys`."""
    return outside.fill(
        bootstrap, topic, ({"key": b"k%d" % (n % keys), "value": b"%d" % n} for n in numbers)
    )


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
    return check_log(batches, is_tv1=getattr(broker.nodes[0], "version", "") == "3.9")


def wait_closed(bootstrap: str, *names: str) -> None:
    """Until no transaction is open on the topics of these names, which may be patterns.

    A commit is answered before its markers are written: what it wrote is hidden for a moment, or
    for as long as the broker is held up.
    """
    give_up_at = time.monotonic() + MARKERS_S_MAX
    while found := _open(bootstrap, names):
        assert time.monotonic() < give_up_at, f"a transaction stays open on {found[:5]}"
        time.sleep(_POLL_S)


def _open(bootstrap: str, names: Sequence[str]) -> list[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    told = answered(lambda: admin.list_topics(timeout=_ASK_S)).topics
    latest = {
        TopicPartition(topic, number): OffsetSpec.latest()
        for topic, known in told.items()
        if any(fnmatchcase(topic, name) for name in names)
        for number in known.partitions
    }

    def ends(isolation: IsolationLevel) -> dict[tuple[str, int], int]:
        asked = admin.list_offsets(latest, isolation_level=isolation)
        return {(tp.topic, tp.partition): done.result(_ASK_S).offset for tp, done in asked.items()}

    if not latest:
        return []
    # In this order: what is written in between does not pass for open.
    written = answered(lambda: ends(IsolationLevel.READ_UNCOMMITTED), NOT_LED)
    stable = answered(lambda: ends(IsolationLevel.READ_COMMITTED), NOT_LED)
    return [
        f"{topic}-{number}"
        for (topic, number), end in written.items()
        if stable[topic, number] < end
    ]


def committed_attempts(bootstrap: str, ledger: str) -> int:
    """The ledger's committed attempt records."""
    return sum(
        json.loads(row.value or b"{}")["kind"] == "attempt" for row in read(bootstrap, ledger)
    )


def group_offsets(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """What any lag tool would show for the group, once what is committed is there: a transaction's
    offsets wait for its marker, and are left out until then if nobody asks for them by name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    told = answered(lambda: admin.list_topics(topic, timeout=_ASK_S)).topics[topic]
    named = [TopicPartition(topic, number) for number in told.partitions]
    give_up_at = time.monotonic() + MARKERS_S_MAX
    while any(map(_is_pending, found := stable_offsets(admin, group, named))):
        assert time.monotonic() < give_up_at, f"a transaction with {group}'s offsets stays open"
        time.sleep(_POLL_S)
    return {tp.partition: tp.offset for tp in found if tp.topic == topic and tp.offset >= 0}


def stable_offsets(
    admin: AdminClient, group: str, wanted: Sequence[TopicPartition]
) -> list[TopicPartition]:
    """What the coordinator says, once there is one: of an answer that says that it is none, or none
    yet, librdkafka 2.16 dies (SIGSEGV). When it describes a group the same answer is an error."""
    asked = [ConsumerGroupTopicPartitions(group, list(wanted) or None)]

    def describe() -> None:
        try:
            admin.describe_consumer_groups([group])[group].result(_ASK_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise

    def ask() -> list[TopicPartition]:
        found = admin.list_consumer_group_offsets(asked, require_stable=True)
        return found[group].result(_ASK_S).topic_partitions

    answered(describe, NOT_COORDINATED)
    return answered(ask, NOT_COORDINATED)


def _is_pending(of: TopicPartition) -> bool:
    return of.error is not None and of.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT


def groups(bootstrap: str) -> set[str]:
    """Asked for, and not for the offsets of one that may not be there: on a cluster that never had
    a group librdkafka 2.16 dies of the answer (SIGSEGV)."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = answered(lambda: admin.list_consumer_groups().result(_ASK_S))
    return {each.group_id for each in found.valid}


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "outside"})
    try:
        found = answered(lambda: consumer.list_topics(topic, timeout=_ASK_S))
        known = found.topics[topic].partitions
        return {number: answered(lambda at=number: _end(consumer, topic, at)) for number in known}
    finally:
        consumer.close()


def _end(consumer: Consumer, topic: str, number: int) -> int:
    return int(consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_ASK_S)[1])


@contextmanager
def consuming(bootstrap: str, group: str, topic: str, **settings: str) -> Iterator[Consumer]:
    """A member that the group has given partitions to, and that has told so. At the end the group
    knows that it left."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
    assigned: list[TopicPartition] = []
    consumer.subscribe([topic], on_assign=lambda _, given: assigned.extend(given))
    give_up_at = time.monotonic() + READ_S_MAX
    try:
        while not (assigned and _is_stable(bootstrap, group)):
            assert time.monotonic() < give_up_at, "nothing was assigned"
            consumer.poll(0.1)
        yield consumer
    finally:
        consumer.close()
    while _is_stable(bootstrap, group):
        assert time.monotonic() < give_up_at + READ_S_MAX, "it did not leave"
        time.sleep(_POLL_S)


def _is_stable(bootstrap: str, group: str) -> bool:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = answered(lambda: admin.list_consumer_groups().result(_ASK_S), NOT_COORDINATED).valid
    states = {each.group_id: each.state for each in found}
    return states.get(group) is ConsumerGroupState.STABLE
