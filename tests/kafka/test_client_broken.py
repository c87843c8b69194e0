"""A broker that dies, a process that forks."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.spark.processes import pause

from eos.errors import NoAnswerError
from eos.kafka.api import NO_IDENTITY, Identity, TopicPartition, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from eos.local.embedded_kafka import EmbeddedKafka


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory):
    """One that these tests may kill and change."""
    with EmbeddedKafka(tmp_path_factory.mktemp("own")) as kafka:
        yield kafka


@pytest.mark.long
def test_killed_broker_leaves_an_unknown_outcome_and_the_same_bytes_settle_it(
    own_broker, clients, name, settled, within, make_batch
):
    client, tp = clients(bootstrap=own_broker.bootstrap), TopicPartition(name, 0)
    client.create_topic(name, 1, 1, {}, within())
    identity = settled(
        lambda: client.init_producer_id(name, 60_000, NO_IDENTITY, within())
    ).identity
    first = {tp: make_batch(identity, 0, b"a")}
    assert settled(lambda: client.produce(name, first, within()))[tp].error == 0
    second = {tp: make_batch(identity, 1, b"b")}
    leader = client.leaders([tp], within())[tp]
    pid = own_broker.nodes[0].pids()["broker_pid"]
    pause(pid)  # it takes the bytes and doesn't answer
    in_doubt = client.send_produce(leader, name, second, 60_000)
    behind = client.send_produce(leader, name, second, 60_000, after=in_doubt)
    with pytest.raises(NoAnswerError) as still_waiting:
        client.send_produce(leader, name, second, 60_000).wait(within(100))
    assert still_waiting.value.fields["sent"] is True
    assert not in_doubt.done
    own_broker.kill(1)
    with pytest.raises(NoAnswerError) as lost:
        in_doubt.wait(within())
    assert lost.value.fields == {"api": "Produce", "node": leader, "sent": True}
    with pytest.raises(NoAnswerError):
        behind.wait(within())
    # Nobody listens now: what is tried meanwhile certainly never leaves.
    with pytest.raises(NoAnswerError) as unsent:
        client.send_produce(leader, name, second, 2000).wait(within())
    assert unsent.value.fields["sent"] is False
    with pytest.raises(NoAnswerError) as unsent:
        client.end_txn(name, identity, True, within(500))
    assert unsent.value.fields["sent"] is False

    with pytest.raises(NoAnswerError) as unsent:
        client.produce(name, second, within(500))
    assert unsent.value.fields["sent"] is False

    own_broker.restart(1)
    assert settled(lambda: client.produce(name, second, within()))[tp].error == 0
    # On the new connection a request still minds that the one before it was lost with the old.
    with pytest.raises(NoAnswerError, match="an earlier request") as unsent:
        client.send_produce(leader, name, second, 20_000, after=in_doubt).wait(within())
    assert unsent.value.fields["sent"] is False
    ended = settled(lambda: client.end_txn(name, identity, True, within()))
    assert ended.identity == Identity(identity.producer_id, identity.epoch + 1)
    end = client.list_offsets([tp], "latest", committed=False, deadline=within())[tp]
    read = client.read_records(tp, 0, end, committed=True, deadline=within())
    assert [record.value for record in read] == [b"a", b"b"]


def test_closing_leaves_neither_thread_nor_file_descriptor(broker, topic, within):
    def held():
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    def kept() -> bool:
        before = held()
        client = KafkaClient(KafkaSettings((broker.bootstrap,)), TransactionProfile.TV2)
        client.list_offsets([TopicPartition(topic, 0)], "latest", committed=True, deadline=within())
        assert held() > before
        client.close()
        return held() == before

    gc.collect()  # clients of earlier tests, with what they held
    # Others of this process open and close theirs when they like; a leak would be there each time.
    assert any(kept() for _ in range(5))


FORK = """
import gc, os, sys
from eos.deadline import Deadline
from eos.kafka import connection_cache
from eos.kafka.api import TransactionProfile
from eos.kafka.settings import KafkaSettings
from eos.kafka.client import KafkaClient

def ask(wire):
    return wire.broker_config("transaction.max.timeout.ms", Deadline.after_ms(120_000))

settings = KafkaSettings((sys.argv[1],))
parents = KafkaClient.shared(settings, TransactionProfile.TV2)
own = KafkaClient(settings)
ask(parents), ask(own)
child = os.fork()
if not child:
    childs = KafkaClient.shared(settings, TransactionProfile.TV2)
    fresh = childs is not parents and ask(childs) == "900000"
    # Two sets of connections, and one kept client.
    fresh = fresh and len(connection_cache._inherited) == 3
    try:
        ask(parents)
        refused = False
    except RuntimeError:
        refused = True
    parents.close()
    del parents, own
    gc.collect()
    childs.close()
    os._exit(0 if fresh and refused else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
# The child touched neither the parent's sockets nor its epoll set.
assert KafkaClient.shared(settings, TransactionProfile.TV2) is parents
for wire in (parents, own):
    assert ask(wire) == "900000"
print("fine")
"""


def test_forked_child_gets_a_wire_of_its_own_and_leaves_the_parents_alone(broker):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, broker.bootstrap]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (ran.stdout, ran.stderr) == ("fine\n", "")
