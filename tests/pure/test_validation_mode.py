"""Which attempts write records before they are validated: all inputs, against the rules."""

from __future__ import annotations

import itertools

from eos.dedup.validation_mode import (
    VALIDATE_FIRST_MAX,
    ValidationMode,
    left_after,
    validation_mode,
)

BOTH = (False, True)
INPUTS = [
    dict(
        zip(
            ("is_producer_scope", "is_retry", "micro_batches_left", "validates_first"),
            values,
            strict=True,
        )
    )
    for values in itertools.product(BOTH, BOTH, (0, 1, VALIDATE_FIRST_MAX), BOTH)
]


def test_an_attempt_validates_first_if_anything_asks_for_it():
    assert len(INPUTS) == 24
    for given in INPUTS:
        must = given["is_retry"] or given["validates_first"] or given["micro_batches_left"] > 0
        is_first = validation_mode(**given) is ValidationMode.VALIDATE_FIRST
        assert is_first == (must or not given["is_producer_scope"]), given


def test_a_retry_never_writes_before_validation_again():
    for given in INPUTS:
        again = validation_mode(**{**given, "is_retry": True})
        assert again is ValidationMode.VALIDATE_FIRST, given


def test_micro_batches_that_validate_first_are_counted_down():
    left, found = left_after(0, has_failed=True), []
    while left:
        found.append(left)
        left = left_after(left, has_failed=False)
    assert found == list(range(VALIDATE_FIRST_MAX, 0, -1))
    assert left_after(0, has_failed=False) == 0
    assert left_after(3, has_failed=True) == VALIDATE_FIRST_MAX
