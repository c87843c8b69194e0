"""A writer on a cluster that refuses, loses, delays and moves: the log holds what was added, once.

The oracle reads the simulated broker's log and shares nothing with the writer.
"""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.errors import examples, raises
from support.simulated_broker.kit import record_batch
from support.simulated_broker.log import parse
from support.simulated_broker.runs import TARGETS, WriterRun
from support.simulated_broker.wire import Break, Lose, Move, NoPause, Refuse, ShortPause

from eos.errors import (
    AttemptFailedError,
    EosError,
    KafkaRefusedError,
    RecordRefusedError,
    UnavailableError,
)
from eos.faults import CrashPlan
from eos.kafka.api import NO_IDENTITY, Identity, TransactionProfile
from eos.kafka.settings import KafkaSettings
from eos.spark.tasks import WriteStage
from eos.transaction import writer as writer_module

RETRIED = (19, 51, 7, 20, 6, 3, 5)
FATAL = (-1, 45, 47, 48, 120, 10)
AFTER_APPEND = (7, 20)
A0, A1 = TARGETS.partitions[0], TARGETS.partitions[1]

happenings = st.one_of(
    st.none(),
    st.builds(
        Refuse,
        st.sampled_from(RETRIED),
        st.integers(1, 15),
    ),
    st.builds(Refuse, st.sampled_from(AFTER_APPEND), st.integers(1, 15), st.just(value=True)),
    st.builds(Break, st.integers(0, 5), st.booleans()),
    st.builds(Move, st.integers(0, 3)),
)
# What befalls the requests that add partitions: all of it passes.
adds = st.lists(
    st.one_of(
        st.none(),
        st.builds(Refuse, st.sampled_from((51, 14, 15, 16, 3, 55)), st.just(-1), st.booleans()),
        st.builds(Lose, st.booleans()),
    ),
    max_size=8,
)
work = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans()), max_size=40)


@settings(max_examples=examples(300), deadline=None)
@given(
    work,
    st.lists(happenings, max_size=25),
    st.lists(st.integers(0, 3), max_size=20),
    st.sampled_from(TransactionProfile),
    st.sampled_from((100, 250, 1_000)),
    adds,
)
def test_what_was_added_is_in_the_log_once_whatever_passes(
    work, script, eager, profile, max_request_bytes, adds
):
    run = WriterRun(
        *script, eager=eager, profile=profile, max_request_bytes=max_request_bytes, adds=adds
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module, "BUFFER_BYTES_MAX", 1_500)
        for target, records, advances in work:
            run.add(target, records)
            if advances:
                run.writer.advance()
        receipts = run.writer.finish()
    event(f"unanswered: {run.client.unanswered_most}")
    run.check_receipts(receipts)
    run.client.deliver_late()
    run.check_receipts(receipts)


@settings(max_examples=examples(200), deadline=None)
@given(
    work,
    st.lists(happenings, max_size=8),
    st.builds(Refuse, st.sampled_from(FATAL), st.integers(1, 15), st.booleans()),
    st.lists(st.integers(0, 3), max_size=20),
    st.sampled_from(TransactionProfile),
)
def test_what_can_not_pass_raises_and_receipts_nothing(work, script, fatal, eager, profile):
    run = WriterRun(*script, fatal, eager=eager, profile=profile)
    receipts = None
    try:
        for target, records, advances in work:
            run.add(target, records)
            if advances:
                run.writer.advance()
        receipts = run.writer.finish()
    except EosError as error:
        event(type(error).__name__)
        assert fatal in run.client.happened
    run.client.deliver_late()
    run.check_log()
    if receipts is not None:  # nothing was answered so, or 45 came behind a failure
        assert fatal.code == 45 or fatal.code not in run.client.codes
        run.check_receipts(receipts)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, AttemptFailedError) for code in (45, -1, 47)),
        (10, RecordRefusedError),
        (29, KafkaRefusedError),
    ],
)
def test_alone_it_raises(code, kind):
    run = WriterRun(Refuse(code))
    run.add(0)
    with pytest.raises(kind, match=rf"\({code}\) to Produce for a-0"):
        run.writer.finish()


def test_the_first_record_batch_of_a_partition_goes_alone():
    run = WriterRun(Refuse(19))
    for _ in range(3):
        run.add(0)
    run.check_receipts(run.writer.finish())
    sequences = [parse(asked.record_batches[A0]).sequence for asked in run.client.sent]
    assert sequences == [0, 0, 1, 2]


def test_45_behind_a_failed_one_is_sent_again_in_order():
    run = WriterRun(Refuse(19))  # the four behind it are then out of order
    run.begin(0)
    for _ in range(5):
        run.add(0)
    run.check_receipts(run.writer.finish())
    assert run.client.unanswered_most == 5
    assert len(run.client.sent) == 10


def test_45_again_although_the_one_before_was_acknowledged_raises():
    run = WriterRun(Refuse(19), Refuse(45), None, Refuse(45))
    run.begin(0)
    run.add(0)
    run.add(0)
    with pytest.raises(AttemptFailedError, match="45"):
        run.writer.finish()


def test_the_leader_remembers_five_so_no_sixth_is_sent_before_the_first_is_acknowledged():
    # 7: appended and not yet replicated, so the four behind it are acknowledged before it
    run = WriterRun(Refuse(7, is_appended=True))
    run.begin(0)
    for _ in range(12):
        run.add(0)
    run.writer.advance()
    run.client.sent[0].wait(run.writer._deadline)
    for asked in run.client.sent[1:5]:
        asked.wait(run.writer._deadline)
    run.writer.advance()
    newest = max(parse(asked.record_batches[A0]).sequence for asked in run.client.sent)
    assert newest == 5
    run.check_receipts(run.writer.finish())
    assert len(run.client.sent) == 12 + 1  # only the first of them twice


def test_a_lane_turns_to_the_new_leader_only_when_the_old_one_has_answered_all():
    run = WriterRun(Move(), None, None)
    run.begin(0)
    for _ in range(3):
        run.add(0)
    run.writer.advance()
    run.client.serve(0)  # the first is refused, two are on their way to the old leader
    run.writer.advance()
    assert {asked.leader for asked in run.client.sent} == {0}
    run.check_receipts(run.writer.finish())
    assert [asked.leader for asked in run.client.sent] == [0, 0, 0, 1, 1, 1]


def test_a_leader_that_is_gone_is_looked_up_before_the_next_try():
    run = WriterRun(Break())
    run.add(0)
    run.writer.advance()
    run.client.leaders_now[A0] = 1
    run.check_receipts(run.writer.finish())
    assert [asked.leader for asked in run.client.sent] == [0, 1]


def test_a_request_behind_a_lost_one_does_not_leave_by_the_next_connection():
    # TV1: a leader that knows nothing of the producer takes any first sequence
    run = WriterRun(Break(), eager=[0, 1], profile=TransactionProfile.TV1)
    run.begin(0)
    run.broker.logs[A0]._producers.clear()
    run.add(0)
    run.add(0)
    run.check_receipts(run.writer.finish())


def test_a_busy_neighbour_does_not_keep_a_lane_from_looking_its_leader_up():
    run = WriterRun(Refuse(6, partitions=1))  # a-0 and a-2 have the same leader; a-0 moves
    run.client.leaders_now[A0] = 0
    run.add(0)
    run.writer.advance()
    run.client.leaders_now[A0] = 1
    run.client.serve(0)
    for _ in range(3):
        run.add(2)
        run.writer.advance()
    run.check_receipts(run.writer.finish())
    assert [one.leader for one in run.client.sent if A0 in one.record_batches] == [0, 1]


def test_partitions_that_failed_together_are_sent_again_together():
    run = WriterRun(Refuse(19))
    run.add(0)
    run.add(2)
    run.check_receipts(run.writer.finish())
    assert [len(asked.record_batches) for asked in run.client.sent] == [2, 2]


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        # the two behind the first are out of order, then acknowledged before it, then lost too
        ([Refuse(19), None, None] * 9, UnavailableError, r"NOT_ENOUGH_REPLICAS \(19\) to Produce"),
        (
            [Refuse(7, is_appended=True), None, None, *[Refuse(7)] * 9],
            UnavailableError,
            r"REQUEST_TIMED_OUT \(7\) to Produce for a-0",
        ),
        ([Break()] * 9, UnavailableError, "a-0: the connection broke"),
        (
            [Refuse(3)] * 9,
            KafkaRefusedError,
            r"UNKNOWN_TOPIC_OR_PARTITION \(3\) to Produce for a-0",
        ),
    ],
)
@pytest.mark.parametrize("pauses_max", [1, 3])
def test_what_does_not_pass_until_the_deadline_is_named(script, kind, words, pauses_max):
    run = WriterRun(*script, pauses_max=pauses_max)
    run.writer._backoff = ShortPause
    run.begin(0)
    for _ in range(3):
        run.add(0)
    with pytest.raises(kind, match=words):
        run.writer.finish()


def test_nothing_leaves_after_the_deadline():
    run = WriterRun(Break())
    run.add(0)
    run.writer.advance()
    run.client.serve(0)
    run.writer._deadline.pauses.extend([1] * 500)
    run.writer.advance()
    with pytest.raises(UnavailableError, match="the connection broke"):
        run.writer.finish()
    assert len(run.client.sent) == 1


def test_what_was_mended_is_not_named_at_the_deadline():
    run = WriterRun(Refuse(19))
    run.add(0)
    run.writer.finish()
    run.add(0)
    run.writer.advance()
    run.writer._deadline.pauses.extend([1] * 500)
    with raises("record_batches_not_acknowledged"):
        run.writer.finish()


def test_the_pause_is_short_again_after_an_acknowledgement():
    made = []

    class Counted(NoPause):
        def __init__(self):
            made.append(self)
            super().__init__()

    run = WriterRun(Refuse(19), None, Refuse(19))
    run.writer._backoff = Counted
    for _ in range(2):
        run.add(0)
        run.writer.finish()
    assert len(made) == 2


def test_the_pause_grows_although_a_neighbour_is_acknowledged():
    made = []

    class Counted(NoPause):
        def __init__(self):
            made.append(self)
            super().__init__()

    run = WriterRun(*[Refuse(19, partitions=1)] * 6)
    run.writer._backoff = Counted
    run.add(0)
    for _ in range(6):  # each request holds both
        run.add(2)
        run.writer.advance()
        run.client.serve(0)
    run.check_receipts(run.writer.finish())
    assert len(made) == 1


def test_acknowledged_in_the_last_moment_is_acknowledged():
    run = WriterRun()
    run.add(0)
    run.writer.advance()
    run.client.serve(0)
    run.writer._deadline.pauses.extend([1] * 500)
    run.check_receipts(run.writer.finish())


def test_a_partition_that_this_identity_already_wrote_to_stops_the_writer_before_it_sends():
    run = WriterRun()
    run.add(1)
    run.check_receipts(run.writer.finish())
    again = WriterRun()
    again.broker, again.identity = run.broker, run.identity
    again.client.broker, again.writer._identity = run.broker, run.identity
    again.add(1, records=2)
    with raises("epoch_already_used") as caught:
        again.writer.finish()
    assert "a-1" in caught.value.message
    assert again.client.sent == []


def test_another_identity_on_the_partition_and_the_marker_of_the_last_attempt_are_no_obstacle():
    run = WriterRun()
    other = run.broker.transactions.init("other", 60_000, NO_IDENTITY).identity
    run.broker.produce(TransactionProfile.TV2, "other", {A1: record_batch(other, 0, [b"theirs"])})
    run.add(1)
    run.writer.finish()
    ended = run.broker.transactions.end(
        "id", run.identity, commit=False, profile=TransactionProfile.TV2
    )
    again = WriterRun()
    again.broker = again.client.broker = run.broker
    again.identity = again.writer._identity = ended.identity
    again.add(1)
    again.writer.finish()
    assert [entry.identity for entry in run.broker.read_uncommitted(A1)] == [
        other,
        run.identity,
        ended.identity,
    ]


def test_the_second_attempt_of_a_task_is_refused_before_there_is_a_connection():
    stage = WriteStage(
        settings=KafkaSettings(("nowhere.invalid:1",)),
        profile=TransactionProfile.TV2,
        transactional_id="id",
        identity=Identity(1, 0),
        targets=TARGETS,
        timeout_ms=1,
        crash=CrashPlan(),
    )
    with pytest.raises(AttemptFailedError, match="writer task attempt 1"):
        stage.write(iter(()), task_attempt=1)


def test_nothing_to_write_is_no_receipt_and_no_request():
    run = WriterRun()
    run.writer.advance()
    assert run.writer.finish() == {}
    assert run.client.sent == []
