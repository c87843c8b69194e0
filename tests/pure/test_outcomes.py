"""Error codes: every one is named, none is taken for success, each message shows the way out."""

import pickle

import pytest

from eos.errors import (
    AttemptFailedError,
    FencedError,
    KafkaRefusedError,
    RecordRefusedError,
    Recovery,
    UnavailableError,
    UnsupportedBrokerError,
)
from eos.kafka.api import Api
from eos.kafka.error_codes import KAFKA_ERRORS
from eos.kafka.outcomes import Outcome, describe, name_of, outcome_of, worst

ALL_CODES = [*range(-1, 134), 999, 32_000, -2]


def test_all_of_kafkas_codes_have_a_name():
    assert set(KAFKA_ERRORS) == set(range(-1, 134))
    assert len(set(KAFKA_ERRORS.values())) == 135
    assert name_of(90) == "PRODUCER_FENCED (90)"
    assert name_of(999) == "unknown error (999)"


@pytest.mark.parametrize("api", Api)
def test_only_0_is_success_and_an_unlisted_code_is_unknown(api):
    assert [code for code in ALL_CODES if outcome_of(api, code) is Outcome.OK] == [0]
    for unlisted in (999, -2, 1, 133):
        assert outcome_of(api, unlisted) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("api", "code", "outcome"),
    [
        (Api.FIND_COORDINATOR, 15, Outcome.RETRY),
        (Api.INIT_PRODUCER_ID, 51, Outcome.RETRY),
        (Api.INIT_PRODUCER_ID, 90, Outcome.FENCED),
        (Api.INIT_PRODUCER_ID, 50, Outcome.FATAL),
        (Api.ADD_PARTITIONS, 55, Outcome.RETRY),
        (Api.PRODUCE, 19, Outcome.RETRY),
        (Api.PRODUCE, 6, Outcome.REFRESH),
        (Api.PRODUCE, 45, Outcome.ABORT),
        (Api.PRODUCE, 46, Outcome.ABORT),
        (Api.PRODUCE, 47, Outcome.PROBE),
        (Api.PRODUCE, 120, Outcome.ABORT),
        (Api.PRODUCE, 10, Outcome.FATAL),
        (Api.ADD_OFFSETS, 49, Outcome.PROBE),
        (Api.TXN_OFFSET_COMMIT, 7, Outcome.REFRESH),
        (Api.TXN_OFFSET_COMMIT, 25, Outcome.FATAL),
        (Api.END_TXN, -1, Outcome.REFRESH),
        (Api.END_TXN, 48, Outcome.PROBE),
        (Api.END_TXN, 90, Outcome.PROBE),
    ],
)
def test_a_code_means_what_the_protocol_reference_says(api, code, outcome):
    assert outcome_of(api, code) is outcome


def test_no_code_of_end_txn_says_that_the_attempt_is_void():
    """48, 49, 90 may follow a commit that succeeded: only the ledger can tell."""
    claims = {outcome_of(Api.END_TXN, code) for code in ALL_CODES}
    assert Outcome.FENCED not in claims


def test_of_several_partitions_the_worst_answer_decides():
    assert worst([Outcome.OK, Outcome.RETRY, Outcome.OK]) is Outcome.RETRY
    assert worst([Outcome.PROBE, Outcome.ABORT, Outcome.RETRY]) is Outcome.PROBE
    assert worst([Outcome.OK, Outcome.OK]) is Outcome.OK
    assert worst([]) is Outcome.UNKNOWN


@pytest.mark.parametrize("api", Api)
def test_every_code_of_every_request_has_a_cause_and_a_way_out(api):
    for code in ALL_CODES:
        if code == 0:
            continue
        error = describe(api, code, "the broker's words", where="orders-3")
        assert name_of(code) in error.message
        assert f"{api.value} for orders-3: the broker's words" in error.message
        assert error.hint
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.fields) == (type(error), str(error), error.fields)
        assert error.fields["kafka_error"] == code


@pytest.mark.parametrize(
    ("api", "code", "kind", "says"),
    [
        (Api.PRODUCE, 29, KafkaRefusedError, "WRITE on Topic"),
        (Api.TXN_OFFSET_COMMIT, 29, KafkaRefusedError, "grant READ on Topic"),
        (Api.TXN_OFFSET_COMMIT, 30, KafkaRefusedError, "READ on Group"),
        (Api.INIT_PRODUCER_ID, 53, KafkaRefusedError, "TransactionalId"),
        (Api.INIT_PRODUCER_ID, 31, KafkaRefusedError, "Cluster"),
        (Api.FIND_COORDINATOR, 53, KafkaRefusedError, "WRITE on TransactionalId"),
        (Api.INIT_PRODUCER_ID, 50, KafkaRefusedError, "transaction.max.timeout.ms"),
        (Api.INIT_PRODUCER_ID, 51, UnavailableError, "describe --transactional-id"),
        (Api.INIT_PRODUCER_ID, 90, FencedError, "second instance"),
        (Api.PRODUCE, 10, RecordRefusedError, "max.message.bytes"),
        (Api.PRODUCE, 3, KafkaRefusedError, "create the topic"),
        (Api.PRODUCE, 19, UnavailableError, "min.insync.replicas"),
        (Api.PRODUCE, 47, AttemptFailedError, "second instance"),
        (Api.PRODUCE, 120, AttemptFailedError, "transaction timeout"),
        (Api.TXN_OFFSET_COMMIT, 25, KafkaRefusedError, "separate consumer group"),
        (Api.TXN_OFFSET_COMMIT, 12, KafkaRefusedError, "offset.metadata.max.bytes"),
        (Api.END_TXN, 35, UnsupportedBrokerError, "Kafka"),
        (Api.INIT_PRODUCER_ID, 999, UnavailableError, "broker's log"),
        (Api.PRODUCE, 999, AttemptFailedError, "broker's log"),
    ],
)
def test_an_answer_becomes_the_error_that_says_what_to_do(api, code, kind, says):
    error = describe(api, code)
    assert type(error) is kind
    assert says in error.hint


def test_what_a_redo_may_mend_is_redone_and_nothing_else():
    redone = {
        (api, code)
        for api in Api
        for code in ALL_CODES
        if code and describe(api, code).recovery is Recovery.REDO
    }
    may_mend = {Outcome.ABORT, Outcome.PROBE, Outcome.UNKNOWN}
    inside = set(Api) - {Api.FIND_COORDINATOR, Api.INIT_PRODUCER_ID}
    assert redone == {
        (api, code)
        for api in inside
        for code in ALL_CODES
        if code and outcome_of(api, code) in may_mend
    }


def test_success_is_no_error():
    with pytest.raises(ValueError, match="without an error"):
        describe(Api.PRODUCE, 0)
