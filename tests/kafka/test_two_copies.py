"""Two copies of a pipeline that are started together: one is fenced at most, and one goes on.

Which of them is the newer one is for their fences to say. Were both fenced, nobody would have the
pipeline.
"""

from __future__ import annotations

import pytest
from support.copies.owners import MET, start_processes_together, start_together
from support.errors import in_turn

SEEDS, OF_ALL_RUNS = 100, 12  # more of the same among what takes long


@pytest.mark.parametrize(
    "seed",
    [*range(OF_ALL_RUNS)]
    + [pytest.param(seed, marks=pytest.mark.nightly) for seed in range(OF_ALL_RUNS, SEEDS)],
)
def test_one_goes_on_to_the_end(side_by_side, seed):
    side_by_side(start_together, seed)


def test_many_of_them_met():
    assert sum(MET) > len(MET) / 4  # that they do is the machine's affair, too


@pytest.mark.parametrize("number", in_turn(range(8), 1, every=4, of_these=2))
def test_one_process_goes_on_to_the_end(side_by_side, number):
    side_by_side(start_processes_together, number)


def test_the_logs_of_all_of_them_are_well_formed(scenes):
    """Epochs follow one another in every partition: none commits after a later one has."""
    assert scenes.check_logs()["COMMIT"] > 0
