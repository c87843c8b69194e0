"""What the tests rely on in the simulated broker and that no script on a real one can reach."""

import struct

import google_crc32c
import pytest
from support.simulated_broker import Fault, Phase, SimulatedBroker, SimulatedPort, Strike
from support.simulated_broker.kit import Tries, record_batch
from support.simulated_broker.log import SEQUENCE_MAX
from support.simulated_broker.transactions import PREDECESSORS

from eos.errors import NoAnswerError
from eos.kafka.api import NO_IDENTITY, Answer, Api, Identity, TopicPartition, TransactionProfile

AT = TopicPartition("t", 0)
BOTH = pytest.mark.parametrize("profile", TransactionProfile)


def client(profile=TransactionProfile.TV2):
    broker = SimulatedBroker({"t": 1})
    port = SimulatedPort(broker, profile)
    return broker, port, port.init_producer_id("id", 1000, NO_IDENTITY, Tries(1)).identity


def produce(port, blob):
    return port.produce("id", {AT: blob}, Tries(1))[AT]


def claiming(blob, records):
    """The same record batch, with another number of records in its header."""
    body = bytearray(blob[21:])
    struct.pack_into(">i", body, 2, records - 1)
    struct.pack_into(">i", body, 36, records)
    return blob[:17] + struct.pack(">I", google_crc32c.value(bytes(body))) + bytes(body)


def test_sequences_wrap_under_tv2_too():
    _, port, identity = client()
    huge = claiming(record_batch(identity, 0, [b"x"]), SEQUENCE_MAX - 1)
    assert produce(port, huge).error == 0
    across = record_batch(identity, SEQUENCE_MAX - 1, [b"y", b"z", b"a", b"b"])
    assert produce(port, across).error == 0
    assert produce(port, across) == (0, SEQUENCE_MAX - 1, "")
    assert produce(port, record_batch(identity, 1, [b"b"])).error == 45
    assert produce(port, record_batch(identity, 2, [b"c"])).error == 0


@BOTH
def test_held_markers_keep_a_decision_from_being_seen(profile):
    broker, port, identity = client(profile)
    port.add_partitions("id", identity, frozenset({AT}), Tries(1))
    produce(port, record_batch(identity, 0, [b"x"]))
    broker.hold_markers()
    assert port.end_txn("id", identity, True, Tries(1)).error == 0
    assert broker.phase("id") is Phase.PREPARE_COMMIT
    assert broker.read_committed(AT) == []
    assert port.init_producer_id("id", 1000, identity, Tries(1)).error == 51
    assert port.end_txn("id", identity, True, Tries(1)).error == 51
    assert port.end_txn("id", identity, False, Tries(1)).error == 48
    broker.release_markers()
    assert broker.phase("id") is Phase.COMPLETE_COMMIT
    assert len(broker.read_committed(AT)) == 1


def test_between_decision_and_marker_a_late_record_shares_the_transactions_fate():
    """As on the real broker, which is why only one writer may ever hold an identity."""
    broker, port, identity = client()
    produce(port, record_batch(identity, 0, [b"x"]))
    broker.hold_markers()
    port.end_txn("id", identity, True, Tries(1))
    assert produce(port, record_batch(identity, 1, [b"late"])).error == 0
    broker.release_markers()
    assert len(broker.read_committed(AT)) == 2


def test_each_strike_does_what_it_says_once_and_is_remembered():
    broker, port, identity = client()
    batches = [record_batch(identity, number, [b"x"]) for number in range(6)]
    log = broker.logs[AT]

    def struck(strike, **how):
        fault = Fault(Api.PRODUCE, strike, **how)
        broker.arm(fault)
        return fault

    faults = [struck(Strike.LOSE_REQUEST)]
    with pytest.raises(NoAnswerError):
        produce(port, batches[0])
    assert log.offset_end == 0
    faults.append(struck(Strike.LOSE_ANSWER))
    with pytest.raises(NoAnswerError):
        produce(port, batches[0])
    assert log.offset_end == 1
    faults.append(struck(Strike.ANSWER, code=19))
    assert produce(port, batches[1]).error == 19
    assert log.offset_end == 1
    faults.append(struck(Strike.CARRY_OUT_AND_ANSWER, code=7))
    assert produce(port, batches[1]).error == 7
    assert log.offset_end == 2
    faults.append(struck(Strike.DELAY_REQUEST, nth=2))
    assert produce(port, batches[2]).error == 0
    with pytest.raises(NoAnswerError):
        produce(port, batches[3])
    assert log.offset_end == 3
    assert broker.deliver_late() == 1
    assert log.offset_end == 4
    faults.append(struck(Strike.REPEAT_LATER))
    assert produce(port, batches[4]).error == 0
    assert broker.deliver_late() == 1
    assert log.offset_end == 5
    assert broker.faults.hit == faults
    assert not broker.faults.is_armed


def test_a_passed_deadline_sends_nothing():
    broker, port, identity = client()
    with pytest.raises(NoAnswerError, match="before it was sent"):
        port.produce("id", {AT: record_batch(identity, 0, [b"x"])}, Tries(0))
    with pytest.raises(NoAnswerError):
        port.end_txn("id", identity, False, Tries(0), on_sent=pytest.fail)
    assert broker.phase("id") is Phase.EMPTY


def test_an_open_transaction_holds_back_readers_of_the_whole_partition():
    broker, port, identity = client()
    other = port.init_producer_id("other", 1000, NO_IDENTITY, Tries(1)).identity
    produce(port, record_batch(identity, 0, [b"open"]))
    port.produce("other", {AT: record_batch(other, 0, [b"done"])}, Tries(1))
    port.end_txn("other", other, True, Tries(1))
    assert broker.read_committed(AT) == []
    port.end_txn("id", identity, False, Tries(1))
    assert [entry.identity for entry in broker.read_committed(AT)] == [other]


def test_an_expired_id_is_unknown_and_its_next_owner_gets_another_producer_id():
    broker, port, identity = client()
    broker.expire("id")
    assert port.add_offsets("id", identity, "group", Tries(1)) == Answer(49)
    again = port.init_producer_id("id", 1000, identity, Tries(1)).identity
    assert again == Identity(identity.producer_id + 1, 0)


def test_only_a_transaction_at_rest_can_be_forgotten():
    broker, port, identity = client()
    produce(port, record_batch(identity, 0, [b"x"]))
    with pytest.raises(AssertionError, match="Ongoing"):
        broker.expire("id")


def test_kafkas_states_follow_one_another_as_kafka_says():
    assert PREDECESSORS[Phase.PREPARE_COMMIT] == {Phase.ONGOING}
    assert PREDECESSORS[Phase.COMPLETE_COMMIT] == {Phase.PREPARE_COMMIT}
    assert PREDECESSORS[Phase.COMPLETE_ABORT] == {Phase.PREPARE_ABORT}
    assert set(PREDECESSORS) == set(Phase)
