"""A copy that was paused at any step and wakes up after another one took its pipeline over.

The older one ends with exit 3 and says so, and nothing of it commits after the newer one's fence.
The newer one goes on. Everything comes through once.
"""

from __future__ import annotations

import pytest
from support.copies.owners import (
    STEPS,
    STEPS_OF_NOTES,
    WOKEN_INSIDE,
    wake_after_takeover,
    wake_inside_transaction,
)
from support.errors import in_turn


@pytest.mark.parametrize("point", in_turn([*STEPS, *STEPS_OF_NOTES], every=4, of_these=2))
def test_woken_it_is_fenced_and_the_newer_one_notices_nothing(side_by_side, point):
    side_by_side(wake_after_takeover, point)


@pytest.mark.parametrize("points", in_turn(WOKEN_INSIDE, 1, every=3, of_these=2))
def test_woken_inside_a_transaction_it_costs_the_newer_one_an_attempt(side_by_side, points):
    side_by_side(wake_inside_transaction, points)


def test_the_logs_of_all_of_them_are_well_formed(scenes):
    """One marker an epoch, no record after it, no sequence missing or twice."""
    markers = scenes.check_logs()
    assert markers["COMMIT"] > 0
    assert markers["ABORT"] > 0
