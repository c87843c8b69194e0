"""Answers that no broker gives on demand: of leaders that were replaced, that fail once, or lag."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from support.errors import raises

from eos.deadline import Deadline
from eos.errors import KafkaRefusedError, NoAnswerError, PromiseBrokenError, UnavailableError
from eos.kafka import range_fetcher
from eos.kafka.api import TopicPartition
from eos.kafka.compression_type import Codec
from eos.kafka.fetch_wire import FetchedPartition
from eos.kafka.range_fetcher import Range, RangeFetcher
from eos.kafka.records.record_batch import Columns, encode
from eos.kafka.refusals import unreachable

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC = FetchResponse.FetchableTopicResponse


def batch(offset: int, records: int = 10) -> bytes:
    values = pa.array([b"%d" % (offset + each) for each in range(records)], pa.binary())
    made = encode(Columns(pa.nulls(records, pa.binary()), values), Codec.NONE, 0).blob
    return offset.to_bytes(8, "big") + made[8:]  # the checksum does not cover the offset


class Log:
    """A partition that serves one record batch at a time."""

    def __init__(self, *offsets: int, stable: int = 20, high: int = 20) -> None:
        self.batches = {offset: batch(offset) for offset in offsets}
        self.stable, self.high = stable, high

    def at(self, position: int) -> bytes:
        found = [offset for offset in self.batches if offset + 10 > position]
        return self.batches[min(found)] if found else b""


Answer = Callable[[TopicPartition, int], "FetchedPartition | None"]


class Broker:
    """A leader. Each of `answers` replaces one response; None is one without partitions, and
    "failed" one with UNKNOWN_SERVER_ERROR for the request as a whole."""

    def __init__(self, logs: Mapping[TopicPartition, Log], *answers: int | str | None) -> None:
        self.logs, self.answers = logs, deque(answers)
        self.requests: list[list[tuple[int, int]]] = []  # partition and position
        self.sent = 0  # including requests whose response is not read yet

    def respond(self, request: Any) -> bytes:
        asked = [
            (TopicPartition(topic.topic, one.partition), one.fetch_offset)
            for topic in request.topics
            for one in topic.partitions
        ]
        self.requests.append([(tp.partition, position) for tp, position in asked])
        special = self.answers.popleft() if self.answers else 0
        if special == "lost":
            raise NoAnswerError("request_unanswered", "lost", api="Fetch", node=1, sent=True)
        topics, is_full = [], False
        for tp, position in asked if special not in {None, "failed"} else []:
            log = self.logs[tp]
            records = b"" if special or is_full or position >= log.stable else log.at(position)
            is_full = is_full or bool(records)
            topics.append(
                TOPIC(
                    topic=tp.topic,
                    partitions=[
                        TOPIC.PartitionData(
                            partition_index=tp.partition,
                            error_code=special or 0,
                            high_watermark=log.high,
                            last_stable_offset=log.stable,
                            log_start_offset=0,
                            aborted_transactions=None,
                            preferred_read_replica=-1,
                            records=records,
                        )
                    ],
                )
            )
        throttled_ms = 20 if special is None else 0
        return self._encoded(request, topics, throttled_ms, -1 if special == "failed" else 0)

    def _encoded(self, request: Any, topics: list[Any], throttled_ms: int, error: int) -> bytes:
        made = FetchResponse(
            version=12,
            throttle_time_ms=throttled_ms,
            error_code=error,
            session_id=0,
            responses=topics,
        )
        made.with_header(correlation_id=request.correlation)
        return bytes(made.encode(header=True))


class Connection:
    """To a broker in this process."""

    client_id, has_ended = "c", False

    def __init__(self, broker: Broker) -> None:
        self.broker, self.resume_at, self._sent = broker, 0.0, b""
        self._correlation = 0

    def next_correlation(self) -> int:
        self._correlation += 1
        return self._correlation

    def send(self, frame: bytes, _deadline: Deadline) -> None:
        self._sent = frame[4 + 8 + 2 + 1 + 1 :]
        self.broker.sent += 1

    def receive(self, _deadline: Deadline) -> memoryview:
        request = FetchRequest.decode(self._sent, version=12)
        asked = SimpleNamespace(topics=request.topics, correlation=self._correlation)
        return memoryview(self.broker.respond(asked))

    def close(self) -> None:
        self.has_ended = True


class Cluster:
    """The brokers of a cluster. `leads` has each partition's leaders, one after another."""

    def __init__(self, leads: Mapping[TopicPartition, Iterable[Broker]]) -> None:
        self._leads = {tp: deque(brokers) for tp, brokers in leads.items()}
        self.dead: set[Broker] = set()
        self.numbers: dict[Broker, int] = {}

    def leaders(self, partitions: Iterable[TopicPartition], _deadline: Deadline) -> Any:
        return {tp: self._number(self._leads[tp][0]) for tp in partitions}

    def _number(self, broker: Broker) -> int:
        return self.numbers.setdefault(broker, len(self.numbers))

    def forget_leaders(self) -> None:
        for brokers in self._leads.values():
            if len(brokers) > 1:
                brokers.popleft()

    def lost(self, _error: NoAnswerError) -> None:
        self.forget_leaders()

    # -- the part of ExclusiveConnections

    def take(self, node: int, *_args: object) -> Connection:
        broker = {number: each for each, number in self.numbers.items()}[node]
        if broker in self.dead:
            raise NoAnswerError("request_not_sent", "dead", api="Fetch", node=node, sent=False)
        return Connection(broker)

    def put_back(self, connection: Connection) -> None:
        connection.close()


def read(cluster: Cluster, *ranges: Range, patience_ms: int = 60_000) -> list[tuple[int, int]]:
    """Partition and next position of each piece."""
    fetcher = RangeFetcher(cluster, cluster, ranges, patience_ms=patience_ms)  # type: ignore[arg-type]
    return [(each.progress.partition.partition, each.next_position) for each in fetcher.pieces()]


@pytest.fixture
def offsets(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What ListOffsets returns."""
    known = {"earliest": 0, "latest": 20}

    def listed(_cluster: object, partitions: list[TopicPartition], at: str, *_: object) -> Any:
        return dict.fromkeys(partitions, known[at])

    monkeypatch.setattr(range_fetcher.admin, "list_offsets", listed)
    return known


WHOLE = [(0, 10), (0, 20)]


@pytest.mark.parametrize("answer", [-1, 3, 5, 6, 7, 9, 56, 74, 75, 78, None, "lost", "failed"])
def test_after_an_answer_that_may_pass_the_request_is_repeated(answer: int | str | None) -> None:
    broker = Broker({A: Log(0, 10)}, answer, 0, answer)
    assert read(Cluster({A: [broker]}), Range(A, 0, 20)) == WHOLE
    assert broker.requests == [[(0, 0)], [(0, 0)], [(0, 10)], [(0, 10)]]


def test_a_leader_that_was_replaced_is_left(offsets: dict[str, int]) -> None:
    """It has another log, and says that it has no such offset."""
    old, new = Broker({A: Log(0)}, 0, 1), Broker({A: Log(0, 10)})
    assert read(Cluster({A: [old, new]}), Range(A, 0, 20)) == WHOLE
    assert new.requests == [[(0, 10)]]
    assert offsets["latest"] == 20


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"earliest": 3}, "t-0 begins at offset 3, but offset 0 is next"),
        ({"earliest": -5, "latest": -1}, "t-0 ends at offset -1, but offset 0 was planned"),
    ],
)
def test_an_offset_outside_of_the_log_is_lost(
    offsets: dict[str, int], known: dict[str, int], words: str
) -> None:
    offsets.update(known)
    with raises("source_lost_records", PromiseBrokenError) as caught:
        read(Cluster({A: [Broker({A: Log(0)}, 1)]}), Range(A, 0, 20))
    assert words in caught.value.message


def test_an_answer_that_does_not_pass_is_final() -> None:
    broker = Broker({A: Log(0, 10)}, 29)
    with pytest.raises(KafkaRefusedError, match=r"TOPIC_AUTHORIZATION_FAILED \(29\) to Fetch"):
        read(Cluster({A: [broker]}), Range(A, 0, 20))
    assert len(broker.requests) == 1


def test_a_follower_that_became_leader_may_serve_the_last_records_later(
    offsets: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has them: it does not refuse to read from their end on. So nothing is lost."""
    asked: list[int] = []

    def fetch_once(_cluster: object, _tp: object, position: int, *_: object) -> Any:
        asked.append(position)
        return SimpleNamespace(error_code=0)

    monkeypatch.setattr(range_fetcher, "fetch_once", fetch_once)
    offsets["latest"] = 10
    broker = Broker({A: Log(0, stable=10, high=10)})
    with raises("partition_leader_unavailable", UnavailableError) as caught:
        read(Cluster({A: [broker]}), Range(A, 0, 20), patience_ms=300)
    assert "its leader has records up to offset 10" in caught.value.message
    assert asked == [20]


@pytest.mark.parametrize(
    ("patience_ms", "code"),
    [(900, "partition_leader_unavailable"), (60_000, "brokers_unreachable")],
)
def test_a_lookup_with_little_time_left_does_not_hide_a_silent_leader(
    monkeypatch: pytest.MonkeyPatch, patience_ms: int, code: str
) -> None:
    cluster = Cluster({A: [Broker({A: Log(0)}, "lost")]})
    first_lookup = cluster.leaders

    def leaders(partitions: Iterable[TopicPartition], deadline: Deadline) -> Any:
        monkeypatch.setattr(cluster, "leaders", fails)
        return first_lookup(partitions, deadline)

    def fails(*_: object) -> Any:
        raise unreachable(("b:1",), "its deadline passed")

    monkeypatch.setattr(cluster, "leaders", leaders)
    with raises(code, UnavailableError):
        read(cluster, Range(A, 0, 20), patience_ms=patience_ms)


def test_a_leader_without_new_records_is_asked_for_one_range_alone() -> None:
    """The others would be fetched again and again meanwhile."""
    late = Log(0, 10, stable=10)
    broker = Broker({A: late, B: Log(0, 10)})
    respond = broker.respond

    def later(request: Any) -> bytes:
        late.stable = 20 if len(broker.requests) > 3 else 10
        return respond(request)

    broker.respond = later  # type: ignore[method-assign]
    found = read(Cluster({A: [broker], B: [broker]}), Range(A, 0, 20), Range(B, 0, 20))
    assert found == [*WHOLE, (1, 10), (1, 20)]
    both, alone = [(0, 10), (1, 0)], [(0, 10)]
    assert broker.requests[:5] == [[(0, 0), (1, 0)], both, alone, alone, alone]


@pytest.mark.parametrize(("fetch_bytes", "is_asked"), [(1_000, True), (128, False)])
def test_requests_are_sent_ahead_of_the_reader_but_not_far(
    fetch_bytes: int, is_asked: bool
) -> None:
    """To the same leader always, to another one if its records are read soon."""
    first, second = Broker({A: Log(0, 10)}), Broker({B: Log(0, 10)})
    cluster = Cluster({A: [first], B: [second]})
    ranges = Range(A, 0, 20), Range(B, 0, 20)
    fetcher = RangeFetcher(cluster, cluster, ranges, fetch_bytes=fetch_bytes)  # type: ignore[arg-type]
    pieces = fetcher.pieces()
    next(pieces)
    assert first.sent == 2
    assert (second.sent == 1) is is_asked
    assert [each.next_position for each in pieces] == [20, 10, 20]
    assert (first.sent, second.sent) == (2, 2)


def test_records_that_are_read_later_do_not_wait_for_a_dead_leader() -> None:
    first, dead, new = Broker({A: Log(0, 10)}), Broker({}), Broker({B: Log(0, 10)})
    cluster = Cluster({A: [first], B: [dead, new]})
    cluster.dead.add(dead)
    assert read(cluster, Range(A, 0, 20), Range(B, 5, 20)) == [*WHOLE, (1, 10), (1, 20)]
    # The first leader is asked once for each record batch: the other's failure did not disturb.
    assert first.requests == [[(0, 0)], [(0, 10)]]
    assert new.requests == [[(1, 5)], [(1, 10)]]


def test_half_a_record_batch_alone_is_unreadable() -> None:
    broken = Log(0)
    broken.batches[0] = broken.batches[0][:-5]
    with raises("batch_unreadable", PromiseBrokenError) as caught:
        read(Cluster({A: [Broker({A: broken})]}), Range(A, 0, 20))
    assert "it is not complete" in caught.value.message
