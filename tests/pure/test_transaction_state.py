"""The coordinator's states."""

from __future__ import annotations

from eos.kafka.transaction_states import OVER, PREDECESSORS, TransactionPhase, may_follow

S = TransactionPhase


def test_every_state_is_reached_and_left_but_the_last():
    assert set(PREDECESSORS) == set(S)
    assert set(S) - frozenset().union(*PREDECESSORS.values()) == {S.DEAD}


def test_what_is_prepared_can_end_in_one_way_only():
    for prepared, complete in [
        (S.PREPARE_COMMIT, S.COMPLETE_COMMIT),
        (S.PREPARE_ABORT, S.COMPLETE_ABORT),
    ]:
        assert [state for state in S if may_follow(state, prepared)] == [complete]


def test_only_what_is_open_can_commit():
    assert PREDECESSORS[S.PREPARE_COMMIT] == {S.ONGOING}
    assert may_follow(S.PREPARE_ABORT, S.PREPARE_EPOCH_FENCE)
    assert PREDECESSORS[S.PREPARE_ABORT] >= OVER  # TV2


def test_names_are_the_broker_s():
    assert S.of("CompleteCommit") is S.COMPLETE_COMMIT
    assert S.of("Novel") is None
    assert [state.value for state in S if state.is_over] == [
        "Empty",
        "CompleteCommit",
        "CompleteAbort",
    ]
