"""What the tests with a real broker share. Record batches come from kafka-python, not from eos."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from support.copies.pipeline_copy import Job
from support.copies.recovery import Pipeline
from support.copies.scenes import ProxiedKafka, Scenes, SideBySide, proxied_kafka
from support.doubles import Hurried
from support.kafka.kafka_io import NOW_MS
from support.simulated_broker.conformance import Readers, reading

from eos.deadline import Backoff, Deadline
from eos.kafka.api import Identity, TopicPartition, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from eos.local.embedded_kafka import EmbeddedKafka

# 3, 6: the partition is new; 19: its leader could not yet ask the coordinator to add it.
BUSY = {3, 6, 14, 15, 16, 19, 51}


@pytest.fixture
def within() -> Callable[[int], Deadline]:
    return lambda timeout_ms=120_000: Deadline.after_ms(timeout_ms)


@pytest.fixture
def clients(broker: EmbeddedKafka) -> Iterator[Callable[..., KafkaClient]]:
    """Makes a Wire, with a connection of its own, that the test need not close."""
    made: list[KafkaClient] = []

    def make(
        profile: TransactionProfile | None = TransactionProfile.TV2, bootstrap: str = ""
    ) -> KafkaClient:
        made.append(KafkaClient(KafkaSettings((bootstrap or broker.bootstrap,)), profile))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(clients: Callable[..., KafkaClient]) -> KafkaClient:
    return clients()


@pytest.fixture
def name() -> str:
    """A name that no other test uses: for topics, groups and transactional ids."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(client: KafkaClient, name: str) -> str:
    """Three partitions."""
    deadline = Deadline.after_ms(120_000)
    client.create_topic(name, 3, 1, {}, deadline)
    every = [TopicPartition(name, number) for number in range(3)]
    client.list_offsets(every, "latest", committed=False, deadline=deadline)  # they are led
    return name


@pytest.fixture
def settled() -> Callable[[Callable[[], Any]], Any]:
    """The first answer of a request that is not "ask again": coordinators load on first use."""

    def ask(request: Callable[[], Any]) -> Any:
        deadline, backoff = Deadline.after_ms(120_000), Backoff()
        answer = request()
        while codes(answer) & BUSY and not deadline.has_passed:
            backoff.sleep(deadline)
            answer = request()
        return answer

    return ask


def codes(answer: Any) -> set[int]:
    return {one.error for one in answer.values()} if isinstance(answer, dict) else {answer.error}


@pytest.fixture(scope="session")
def readers_of(request: pytest.FixtureRequest) -> Iterator[Callable[[EmbeddedKafka], Readers]]:
    """Makes what reads back the topics of conformance scripts, once for each broker."""
    scripts = sum("readers_of" in item.fixturenames for item in request.session.items)
    made: dict[str, Readers] = {}
    with ExitStack() as stack:

        def of(broker: EmbeddedKafka) -> Readers:
            at = broker.bootstrap
            if at not in made:
                made[at] = stack.enter_context(reading(at, scripts))
            return made[at]

        yield of


@pytest.fixture(scope="session")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedKafka]:
    """One broker behind a proxy for the session, which looks for timed-out transactions often."""
    looks = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with proxied_kafka(tmp_path_factory.mktemp("proxied"), looks) as made:
        yield made


@pytest.fixture
def proxied(behind_proxy: ProxiedKafka) -> Iterator[ProxiedKafka]:
    """Without the rules of the test before. Each of the test's own must strike."""
    behind_proxy.proxy.clear()
    yield behind_proxy
    behind_proxy.proxy.clear()
    behind_proxy.proxy.check_struck()


@pytest.fixture
def job(proxied: ProxiedKafka, request: pytest.FixtureRequest) -> Callable[..., Job]:
    """Makes a copy's job; names begin with the test file's."""
    file = Path(str(request.path)).stem.removeprefix("test_").replace("_", "-")
    return lambda **options: proxied.job(file, **options)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Hurried]:
    """Makes the plan of a run that gives one commit up, and leaves it in doubt."""
    return partial(Hurried, monkeypatch)


@pytest.fixture(scope="module")
def scenes(
    broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Scenes:
    """Pipelines whose names begin with the test file's."""
    file = Path(str(request.path)).stem.removeprefix("test_").replace("_", "-")
    return Scenes(broker, tmp_path_factory.mktemp(file), file)


@pytest.fixture(scope="module")
def begun(scenes: Scenes) -> Iterator[SideBySide]:
    made = SideBySide(scenes)
    yield made
    made.close()


@pytest.fixture
def side_by_side(
    begun: SideBySide, request: pytest.FixtureRequest
) -> Callable[[Callable[[Scenes, Any], None], Any], None]:
    """Plays a scene for all cases of the test that asks: see `support.copies.scenes`."""
    return lambda scene, case: begun.play(request.node, scene, case)


@pytest.fixture
def pipeline(broker: EmbeddedKafka, tmp_path: Path, name: str) -> Iterator[Pipeline]:
    """A pipeline with a state, for what is done about it; its source has two partitions."""
    made = Pipeline(tmp_path, broker.bootstrap, name)
    yield made
    made.close()


@pytest.fixture
def make_batch() -> Callable[..., bytes]:
    def make(identity: Identity, sequence: int, *values: bytes, padding: int = 0) -> bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=True,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            batch_size=1 << 24,
        )
        for number, value in enumerate(values):
            builder.append(number, NOW_MS + number, b"key", value + b"." * padding, [("h", b"1")])
        return bytes(builder.build())

    return make
