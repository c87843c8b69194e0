"""The coordinator's states."""

from __future__ import annotations

from eos.kafka.transaction_states import TransactionPhase as Phase


def test_names_are_the_broker_s():
    assert Phase.of("CompleteCommit") is Phase.COMPLETE_COMMIT
    assert Phase.of("Novel") is None
    assert [state.value for state in Phase if state.is_over] == [
        "Empty",
        "CompleteCommit",
        "CompleteAbort",
    ]
