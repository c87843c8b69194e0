"""Three brokers that clients reach through proxies, and pipelines on them that are watched.

Replication factor 3 and min.insync.replicas=2, as `eos broker start --nodes 3` sets them up. The
brokers talk to one another directly: a rule of the proxy is for clients only.

    with three_nodes(folder) as three:
        flow = three.flow(three.scenes("prefix").new(60), At("offsets:before", ...))
        ...
        three.kill(three.leader(flow.job.target))
        three.finish([flow])
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kafka.protocol.admin import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest
from kafka.protocol.metadata import MetadataRequest

from eos.deadline import Backoff, Deadline
from eos.kafka.api import TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.cluster import Kind
from eos.kafka.settings import KafkaSettings
from eos.local.broker_node import HOST, Node, free_ports
from eos.local.embedded_kafka import EmbeddedKafka
from eos.transaction import micro_batch
from support.copies.pipeline_copy import Job
from support.copies.scenes import PATIENCE_S, Flow, Scene, Scenes
from support.doubles import At
from support.kafka import brokers, kafka_io
from support.kafka.proxy import Proxy
from support.kafka.proxy_rules import Rule
from support.spark.processes import pause
from support.waiting import wait_until

T, U = TypeVar("T"), TypeVar("U")
STEP_MS, TRANSACTION_MS = 300_000, 600_000
NODES = (1, 2, 3)
# So that a dead node is missed sooner than by default: a second, where a cluster takes nine.
_ALERT = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
}
INTERNAL = ("__transaction_state", "__consumer_offsets")


class ThreeBrokers:
    def __init__(self, kafka: EmbeddedKafka, proxy: Proxy, ports: Mapping[int, int]) -> None:
        self.kafka, self.proxy = kafka, proxy
        self.bootstrap = ",".join(f"{HOST}:{ports[number]}" for number in NODES)
        self.client = KafkaClient(
            KafkaSettings(tuple(kafka.bootstrap.split(","))), TransactionProfile.TV2
        )
        self._pool = ThreadPoolExecutor(32)
        self._folder = kafka.root / "jobs"
        self._flows: list[Flow] = []

    def close(self) -> None:
        for flow in self._flows:
            flow.goes_on = False
        self.proxy.clear()
        self._pool.shutdown(cancel_futures=True)
        self.client.close()

    def mend(self) -> None:
        """After a test, which may have failed anywhere."""
        self.proxy.clear()
        for node in self.kafka.nodes:
            node.signal("broker_pid", signal.SIGCONT)
        down = [node.number for node in self.kafka.nodes if not node.is_running]
        if down:
            self.restart(*down)
        self.proxy.check_struck()

    # -- pipelines -------------------------------------------------------------------------------

    def scenes(self, prefix: str, profile: str = "TV2", **options: Any) -> Scenes:
        return Scenes(
            self.kafka,
            self._folder,
            f"{prefix}-{profile}",
            bootstrap=self.bootstrap,
            replication=-1,
            profile=profile,
            **{"transaction_timeout_ms": TRANSACTION_MS, **options},
        )

    def flow(self, scene: Scene, crash: At | None = None, *, goes_on: bool = False) -> Flow:
        """Begins it."""
        made = Flow(scene, crash, goes_on)
        self._flows.append(made)
        made.end = self._pool.submit(made.run)
        return made

    def finish(self, flows: Iterable[Flow]) -> None:
        """All of them drain their sources, in their first attempts; what they copied is right."""

        def one(flow: Flow) -> None:
            assert flow.finish() is None, flow.job
            assert flow.failed == [], flow.job
            flow.scene.check()

        self.all(one, flows)

    def all(self, do: Callable[[T], U], each: Iterable[T]) -> list[U]:
        """Side by side: most of it is waiting."""
        return list(self._pool.map(do, each))

    @contextmanager
    def feeding(self, scenes: Sequence[Scene]) -> Iterator[None]:
        """Without end, as long as it lasts."""
        is_over = threading.Event()

        def feed() -> None:
            while not is_over.wait(0.3):
                for scene in scenes:
                    scene.feed(10)

        fed = self._pool.submit(feed)
        try:
            yield
        finally:
            is_over.set()
        fed.result()

    # -- who does what ---------------------------------------------------------------------------

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.leaders(topic)[topic, partition]

    def leaders(self, *topics: str) -> dict[tuple[str, int], int]:
        return {
            (topic.name, one.partition_index): one.leader_id
            for topic in self.client._cluster.metadata(topics, _soon()).topics
            for one in topic.partitions
        }

    def coordinator(self, job: Job) -> int:
        """Of its transactions."""
        return self._coordinator(Kind.TRANSACTION, job.name)

    def group_coordinator(self, job: Job) -> int:
        return self._coordinator(Kind.GROUP, job.name)

    def _coordinator(self, kind: Kind, name: str) -> int:
        self.client.forget_coordinators()
        return int(self.client._cluster.coordinator(kind, name, _soon()))

    # -- faults ----------------------------------------------------------------------------------

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self.kafka.kill(number)

    def pause(self, number: int) -> None:
        """As a machine whose network is gone: connections stay, nothing is ever answered."""
        pause(self.kafka.nodes[number - 1].pids()["broker_pid"])

    def wake(self, number: int) -> None:
        """Returns at once: for a moment the node leads what it led, in its own eyes, and tells
        whoever asks it what was then."""
        self.kafka.nodes[number - 1].signal("broker_pid", signal.SIGCONT)

    def wait_heard(self, number: int) -> None:
        """Until a node that woke knows of every leader that was elected meanwhile."""
        other = next(node for node in NODES if node != number)

        def has_heard() -> bool:
            now, told = self._epochs_told_by(other), self._epochs_told_by(number)
            return bool(now) and all(told.get(at, -1) >= epoch for at, epoch in now.items())

        wait_until(has_heard, f"node {number} knows old leaders only")

    def _epochs_told_by(self, number: int) -> Mapping[tuple[str, int], int]:
        request = MetadataRequest(version=12, topics=None, allow_auto_topic_creation=False)
        answer = self.client._cluster.try_once(number, request, _soon())
        topics = [] if answer is None else answer.topics
        return {
            (topic.name, one.partition_index): one.leader_epoch
            for topic in topics
            for one in topic.partitions
        }

    def black_hole(self, job: Job, number: int) -> Rule:
        """Swallows all that this pipeline sends to the node. Everybody else reaches it."""
        clients = tuple(job.name + role for role in ("", ".writer", ".source"))
        port = self.kafka.nodes[number - 1].ports.client
        return self.proxy.black_hole(client=clients, port=port)

    def limit(self, client: str, bytes_per_second: int) -> None:
        """On each broker, for this client id."""
        entry = AlterClientQuotasRequest.EntryData
        entity = entry.EntityData(entity_type="client-id", entity_name=client)
        change = entry.OpData(key="producer_byte_rate", value=bytes_per_second, remove=False)
        self.client._cluster.query_any(
            lambda: AlterClientQuotasRequest(
                version=1, entries=[entry(entity=[entity], ops=[change])], validate_only=False
            ),
            _soon(),
        )

    def configure(self, topic: str, **config: str) -> None:
        kafka_io.set_topic(self.kafka.bootstrap, topic, **config)

    def restart(self, *numbers: int) -> None:
        """A clean stop of each that runs, then a start of all of them, which is waited for."""
        self.kafka.restart(*numbers)
        self.wait_whole()

    def wait_whole(self) -> None:
        """Until every partition has all its replicas in sync again."""
        wait_until(lambda: not self._behind(), lambda: f"not in sync: {self._behind()[:5]}")

    def wait_missed(self, topic: str) -> None:
        """Until the cluster knows that replicas of it are gone."""
        wait_until(lambda: self._behind([topic]), f"all of {topic} is in sync")

    def _behind(self, topics: Sequence[str] | None = None) -> list[str]:
        found = self.client._cluster.metadata(topics, _soon())
        return [
            f"{topic.name}-{partition.partition_index}"
            for topic in found.topics
            for partition in topic.partitions
            if len(partition.isr_nodes) < len(partition.replica_nodes) or partition.error_code
        ]

    def move_leaders(self, *topics: str) -> Mapping[tuple[str, int], int]:
        """Every partition of theirs gets another leader, and no broker stops for it. The leaders
        as they were once all had moved."""
        turned = {}
        for at, leader in self.leaders(*topics).items():
            others = [node for node in NODES if node != leader]
            turned[at] = [*others, leader]
        return self._turn(turned)

    def lead(self, number: int, *topics: str) -> None:
        """Makes the node leader of all their partitions."""
        others = [node for node in NODES if node != number]
        self._turn({at: [number, *others] for at in self.leaders(*topics)})

    def coordinate(self, number: int) -> None:
        """Makes the node coordinator of all transactions and of all groups."""
        for kind in Kind:  # whoever asks for the first one has the topic made
            self._coordinator(kind, "any")
        self.lead(number, *INTERNAL)

    def _turn(
        self, turned: Mapping[tuple[str, int], Sequence[int]]
    ) -> Mapping[tuple[str, int], int]:
        """The same replicas in another order: the first is the one to lead. Elected again and
        again: who is held up for a second and a half is out of sync, and not elected then."""
        _reassign(self.client, turned)
        deadline, backoff = _soon(), Backoff(first_ms=50)
        topics = {topic for topic, _ in turned}
        while True:
            _elect(self.client, turned)
            found = self.leaders(*topics)
            if all(turned[at][0] == leader for at, leader in found.items()):
                return found
            assert not deadline.has_passed, "a leader did not move"
            backoff.sleep(deadline)

    # -- what must hold --------------------------------------------------------------------------

    def check_logs(self, prefix: str) -> None:
        """Of all pipelines' ledgers and targets, on every node: well-formed, and the same on all.
        Those of TV1 have it in their names."""
        topics, deadline = f"{prefix}-*.[!i]*", _soon()
        self.wait_whole()
        kafka_io.wait_closed(self.kafka.bootstrap, topics)
        while True:
            with ThreadPoolExecutor(len(NODES)) as pool:
                found = list(pool.map(lambda number: self._dumped(topics, number), NODES))
            # Who is in sync may be behind for as long as `replica.lag.time.max.ms`.
            if found[0] == found[1] == found[2] or deadline.has_passed:
                break
        assert found[0] == found[1] == found[2]
        for is_tv1 in (False, True):
            of_profile = [one for one in found[0] if is_tv1 is ("-TV1-" in one.topic)]
            brokers.check_log(of_profile, is_tv1=is_tv1)

    def _dumped(self, topics: str, number: int) -> Sequence[brokers.LoggedBatch]:
        found = brokers.dump(self.kafka, topics, number)
        return sorted(found, key=lambda one: (one.topic, one.partition, one.offset))


@contextmanager
def patience() -> Iterator[None]:
    """Pipelines wait for as long as a slow machine needs to start its brokers again."""
    usual, micro_batch.STEP_TIMEOUT_MS = micro_batch.STEP_TIMEOUT_MS, STEP_MS
    try:
        yield
    finally:
        micro_batch.STEP_TIMEOUT_MS = usual


@contextmanager
def three_nodes(
    root: Path, config: Mapping[str, str] | None = None, *, remembers: bool = True
) -> Iterator[ThreeBrokers]:
    """`remembers`: see `Proxy`."""
    ports: dict[int, int] = {}

    def of(node: Node) -> Mapping[str, str]:
        ports[node.number] = proxy.before(node.ports.client)
        (internal,) = free_ports(1)
        between = f"INTERNAL://{HOST}:{internal}"
        control = f"CONTROLLER://{HOST}:{node.ports.controller}"
        return {
            "listeners": f"PLAINTEXT://{HOST}:{node.ports.client},{between},{control}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{ports[node.number]},{between}",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "INTERNAL", "CONTROLLER")
            ),
            **_ALERT,
            **(config or {}),
        }

    with (
        Proxy(remembers=remembers) as proxy,
        patience(),
        EmbeddedKafka(root, nodes=3, config=of) as kafka,
    ):
        made = ThreeBrokers(kafka, proxy, ports)
        try:
            yield made
        finally:
            made.close()
            for number in NODES:  # nobody needs its data any more: a clean stop takes seconds
                kafka.kill(number)


def _soon() -> Deadline:
    return Deadline.after_ms(PATIENCE_S * 1000)


def _reassign(client: KafkaClient, turned: Mapping[tuple[str, int], Sequence[int]]) -> None:
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = topic.ReassignablePartition
    asked = [
        topic(name=name, partitions=[partition(partition_index=number, replicas=list(replicas))])
        for (name, number), replicas in turned.items()
    ]
    client._cluster.query_any(
        lambda: AlterPartitionReassignmentsRequest(version=0, timeout_ms=30_000, topics=asked),
        _soon(),
    )


def _elect(client: KafkaClient, turned: Mapping[tuple[str, int], Sequence[int]]) -> None:
    of_topic = ElectLeadersRequest.TopicPartitions
    asked = [of_topic(topic=name, partitions=[number]) for name, number in turned]
    client._cluster.query_any(
        lambda: ElectLeadersRequest(
            version=2, election_type=0, topic_partitions=asked, timeout_ms=30_000
        ),
        _soon(),
    )
