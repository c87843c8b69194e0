"""Find the broker that leads a partition or coordinates an id, and send requests to it.

A read-only request is retried after a lost connection until its deadline, on another broker if any
broker can answer. `send_once` retries a request only if it was certainly never sent.
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from eos.deadline import Backoff, Deadline
from eos.errors import KafkaRefusedError, NoAnswerError, UnavailableError
from eos.kafka.api import TopicPartition
from eos.kafka.connection import Connections
from eos.kafka.outcomes import name_of
from eos.kafka.pending_request import Node
from eos.kafka.refusals import refused, unreachable
from eos.kafka.settings import KafkaSettings

# A broker may not know a topic shortly after its creation or while its leader moves. If a topic is
# unknown for longer than this, it does not exist.
_UNKNOWN_TOPIC_MS = 5_000
_UNKNOWN_TOPIC = 3
LAST_MOMENTS_MS = 50
_TURN_MS = 5_000  # time limit for one broker, if another broker can answer, too
_LEADER_RETRIED = frozenset({3, 5, 6, 9, 13, 72})
_COORDINATOR_RETRIED = frozenset({7, 13, 14, 15, 16})


class TopicInfo(NamedTuple):
    """Metadata of a topic. `topic_id` is in Kafka's notation. Unless `error` is 0, the other fields
    are meaningless."""

    topic_id: str
    partitions: int
    error: int

    @property
    def is_missing(self) -> bool:
        return self.error == _UNKNOWN_TOPIC


class Kind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class NoCoordinatorError(Exception):
    """Error of FindCoordinator, with Kafka's code: permanent, or not over before the deadline."""

    def __init__(self, error: int, message: str) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message


def tries(deadline: Deadline) -> Iterator[None]:
    """Yield once for each try of a request: at least once, then after growing pauses.

    No retry begins in the last 50 ms before the deadline. It would have no time for an answer, and
    its timeout would hide the cause of earlier failures.
    """
    backoff = Backoff()
    yield
    while deadline.left_ms > LAST_MOMENTS_MS:
        backoff.sleep(deadline)
        if deadline.left_ms > LAST_MOMENTS_MS:
            yield


def not_sent(api: str, cause: str) -> NoAnswerError:
    return NoAnswerError(
        "request_not_sent", f"{api} could not be sent: {cause}", api=api, node=None, sent=False
    )


class Cluster:
    def __init__(self, connections: Connections, settings: KafkaSettings) -> None:
        self._connections = connections
        self._settings = settings
        self._lock = threading.Lock()
        self._turn = 0
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[Kind, str], Node] = {}

    # -- asking ------------------------------------------------------------------------------

    def limited(self, deadline: Deadline) -> Deadline:
        """Return the deadline of one try: the request timeout, or `deadline` if that is earlier."""
        return Deadline.after_ms(deadline.at_most_ms(self._settings.request_timeout_ms))

    def query_any(self, build: Callable[[], Any], deadline: Deadline) -> Any:
        """Send a request that any broker can answer. If a broker is silent, try the next one.

        Raise UnavailableError if none answers before the deadline."""
        cause = ""
        for _ in tries(deadline):
            node = self._any()
            try:
                return self._connections.call(node, build(), self._turn_deadline(deadline))
            except NoAnswerError as lost:
                # A try that ends at the deadline reports only a timeout. Keep an earlier cause.
                if not cause or not deadline.has_passed:
                    cause = lost.message
                with self._lock:
                    self._turn += 1
        raise unreachable(self._settings.bootstrap, cause)

    def send_repeatable(
        self, node_of: Callable[[], Node], build: Callable[[], Any], deadline: Deadline
    ) -> Any:
        """Send a read-only request to the broker of `node_of()`. Retry it until the deadline."""
        return self._send(node_of, build, deadline, repeatable=True)

    def send_once(
        self,
        node_of: Callable[[], Node],
        build: Callable[[], Any],
        deadline: Deadline,
        on_sent: Callable[[], None] | None = None,
    ) -> Any:
        """Send a request at most once, to the broker that `node_of` returns.

        Use this for requests that change the cluster. A request that was never sent is retried."""
        return self._send(node_of, build, deadline, repeatable=False, on_sent=on_sent)

    def _send(
        self,
        node_of: Callable[[], Node],
        build: Callable[[], Any],
        deadline: Deadline,
        *,
        repeatable: bool,
        on_sent: Callable[[], None] | None = None,
    ) -> Any:
        error: NoAnswerError | None = None
        for _ in tries(deadline):
            try:
                return self._connections.call(
                    node_of(), build(), self.limited(deadline), on_sent=on_sent
                )
            except NoAnswerError as lost:
                error = lost
                self.lost(lost)
                self.forget_coordinators()
                if lost.fields["sent"] and not repeatable:
                    break
            except UnavailableError as unavailable:  # no broker answered the lookup of the node
                if repeatable:
                    raise
                error = error or not_sent(
                    str(build().name).removesuffix("Request"), unavailable.message
                )
                break
        assert error is not None  # tries() yields at least once
        raise error

    def query_each(self, build: Callable[[int], Any], deadline: Deadline) -> dict[int, Any]:
        """Return the answer of each broker in the cluster, by broker id.

        Raise UnavailableError if a broker does not answer. One that leaves the cluster meanwhile is
        left out."""
        answers: dict[int, Any] = {}
        silent: set[int] = set()
        for _ in tries(deadline):
            listed = {int(broker.node_id) for broker in self.metadata((), deadline).brokers}
            for node in sorted(listed - answers.keys()):
                answer = self.try_once(node, build(node), deadline)
                if answer is not None:
                    answers[node] = answer
            silent = listed - answers.keys()
            if not silent:
                return {node: answers[node] for node in listed}
        broker = min(silent)
        raise UnavailableError(
            "broker_unreachable",
            f"broker {broker} is listed in the cluster's metadata, but does not answer",
            hint="check that the broker runs, and that its advertised listener is reachable from "
            "this machine",
            brokers=sorted(silent),
        )

    def try_once(self, node: Node, request: Any, deadline: Deadline) -> Any:
        """Send a request once. Without an answer, return None and forget all cached leaders."""
        try:
            return self._connections.call(node, request, self.limited(deadline))
        except NoAnswerError as lost:
            self.lost(lost)
            return None

    def pause(self, deadline: Deadline) -> None:
        """Wait about 50 ms, and forget the cached leaders, so that the next try looks them up."""
        self.forget_leaders()
        Backoff(first_ms=50).sleep(deadline)

    def lost(self, error: NoAnswerError) -> None:
        """Forget the cached leaders after an unanswered request.

        The next lookup is sent to another broker than the silent one."""
        self.forget_leaders()
        with self._lock:
            if self._any() == error.fields["node"]:
                self._turn += 1

    def _any(self) -> Node:
        """Return the broker to use for requests that any broker can answer.

        Brokers from metadata precede bootstrap addresses. Each failure advances to the next one."""
        nodes = [*self._connections.brokers, *self._connections.bootstrap_nodes]
        return nodes[self._turn % len(nodes)]

    def _turn_deadline(self, deadline: Deadline) -> Deadline:
        """Return the deadline of a request that other brokers could answer, too.

        Each broker gets only a part of the time, so a silent broker leaves time for the others."""
        nodes = len(self._connections.brokers or self._connections.bootstrap_nodes)
        share_ms = max(1000, deadline.left_ms // max(1, nodes))
        turn_ms = self._settings.request_timeout_ms if nodes < 2 else _TURN_MS
        timeout_ms = min(share_ms, turn_ms, self._settings.request_timeout_ms)
        return Deadline.after_ms(deadline.at_most_ms(timeout_ms))

    # -- topics and leaders ------------------------------------------------------------------

    def metadata(
        self, topics: Iterable[str] | None, deadline: Deadline, *, with_operations: bool = False
    ) -> Any:
        """Request metadata of topics, or of all if None. Update the known brokers and leaders.

        Return the response. This never creates a topic."""
        names = None if topics is None else sorted(set(topics))

        def build() -> Any:
            topic = MetadataRequest.MetadataRequestTopic
            return MetadataRequest(
                version=12,
                topics=None if names is None else [topic(name=name) for name in names],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=with_operations,
            )

        response = self.query_any(build, deadline)
        if response.brokers:
            known = self._connections.brokers
            self._connections.learn(response)
            if not known:  # the brokers are known now: close connections to bootstrap addresses
                for node in self._connections.bootstrap_nodes:
                    self._connections.drop(node)
        found = {
            TopicPartition(topic.name, partition.partition_index): partition.leader_id
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code == 0 and self._connections.knows(partition.leader_id)
        }
        with self._lock:
            listed = {topic.name for topic in response.topics}
            kept = {tp: node for tp, node in self._leaders.items() if tp.topic not in listed}
            self._leaders = {**kept, **found}
        return response

    def leaders(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> Mapping[TopicPartition, int]:
        requested = set(partitions)
        unknown_until = Deadline.after_ms(_UNKNOWN_TOPIC_MS)
        errors: dict[TopicPartition, int] = {}
        for _ in tries(deadline):
            known = self._leaders
            if requested <= known.keys():
                return {tp: known[tp] for tp in requested}
            try:
                known, errors = self._refresh_leaders(requested, deadline)
            except UnavailableError:
                if not errors:
                    raise
                break  # raise the error of an earlier try: this lookup only ran out of time
            _check_unknown(errors, unknown_until)
            if not errors:
                return {tp: known[tp] for tp in requested}
        partitions_and_errors = _errors_text(errors)
        raise UnavailableError(
            "partition_without_leader",
            f"no leader was found in time for {partitions_and_errors}",
            hint="check the brokers that have the replicas: `kafka-topics.sh --bootstrap-server "
            "... --describe --unavailable-partitions` lists partitions without a leader",
            errors=errors,
        )

    def _refresh_leaders(
        self, requested: set[TopicPartition], deadline: Deadline
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Request metadata. Return the known leaders, and an error code for each requested
        partition without a leader.

        Another thread may forget the leaders at any time, so a caller uses these."""
        response = self.metadata({tp.topic for tp in requested}, deadline)
        codes = {topic.name: topic.error_code for topic in response.topics}
        found = {
            TopicPartition(topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }
        known = self._leaders
        return known, {
            tp: codes.get(tp.topic) or found.get(tp, _UNKNOWN_TOPIC) or 5
            for tp in requested
            if tp not in known
        }

    def forget_leaders(self) -> None:
        with self._lock:
            self._leaders = {}

    def topics(
        self, names: Iterable[str] | re.Pattern[str], deadline: Deadline
    ) -> Mapping[str, TopicInfo]:
        pattern = names if isinstance(names, re.Pattern) else None
        response = self.metadata(None if isinstance(names, re.Pattern) else names, deadline)
        return {
            topic.name: TopicInfo(_topic_id(topic), len(topic.partitions), topic.error_code)
            for topic in response.topics
            if pattern is None or (pattern.fullmatch(topic.name) and not topic.is_internal)
        }

    # -- coordinators ------------------------------------------------------------------------

    def coordinator(self, kind: Kind, key: str, deadline: Deadline) -> Node:
        """Return the broker that coordinates a group or a transactional id, cached if known.

        Raise NoCoordinatorError with Kafka's code if it can't be found before the deadline."""
        node = self._coordinators.get((kind, key))
        if node is not None:
            return node
        error, message = 15, ""
        for _ in tries(deadline):
            found = self._find_coordinator(kind, key, deadline)
            if found.error_code == 0:
                if not self._connections.knows(found.node_id):
                    self.metadata((), deadline)
                with self._lock:
                    self._coordinators[kind, key] = found.node_id
                return int(found.node_id)
            error, message = found.error_code, found.error_message or ""
            if error not in _COORDINATOR_RETRIED:
                break
        raise NoCoordinatorError(error, message)

    def _find_coordinator(self, kind: Kind, key: str, deadline: Deadline) -> Any:
        response = self.query_any(
            lambda: FindCoordinatorRequest(version=4, key_type=int(kind), coordinator_keys=[key]),
            deadline,
        )
        return response.coordinators[0]

    def forget_coordinators(self) -> None:
        with self._lock:
            self._coordinators = {}


def _check_unknown(errors: Mapping[TopicPartition, int], unknown_until: Deadline) -> None:
    """Raise KafkaRefusedError if a partition's lookup error is permanent.

    A topic may be unknown until `unknown_until`. After that, this error is permanent, too."""
    for tp, code in errors.items():
        if code == _UNKNOWN_TOPIC and unknown_until.has_passed:
            raise KafkaRefusedError(
                "kafka_unknown_topic_or_partition",
                f"{tp.topic}-{tp.partition} does not exist on this cluster, or is not visible to "
                "this user",
                topic=tp.topic,
                partition=tp.partition,
                error=code,
                hint="the topic was deleted or recreated with fewer partitions, or this user "
                "lacks DESCRIBE on it",
            )
        if code not in _LEADER_RETRIED:
            raise refused("Metadata", code, f"topic {tp.topic}")


def _errors_text(errors: Mapping[TopicPartition, int]) -> str:
    shown = [f"{tp.topic}-{tp.partition} ({name_of(code)})" for tp, code in sorted(errors.items())]
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")


def _topic_id(topic: Any) -> str:
    if topic.topic_id is None:
        return ""
    return base64.urlsafe_b64encode(topic.topic_id.bytes).decode().rstrip("=")
