"""Several owners on a broker that knows no transaction version 2.

There a refusal may stand for our own transaction that timed out, so a fence is disputed before it
is believed. Nobody who was replaced may win that dispute.

`test_zombies.py` has the same of newer brokers, at more steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.copies.owners import (
    STEPS,
    WOKEN_INSIDE,
    start_together,
    wake_after_takeover,
    wake_inside_transaction,
)
from support.copies.scenes import Scenes
from support.errors import in_turn

from eos.local.embedded_kafka import EmbeddedKafka

SEEDS, OF_ALL_RUNS = 30, 5  # more of the same among what takes long


@pytest.fixture(scope="module")
def scenes(
    older_broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenes]:
    return Scenes(older_broker, tmp_path_factory.mktemp("tv1"), "tv1-owners", profile="TV1")


@pytest.mark.parametrize("point", in_turn(STEPS, every=4, of_these=2))
def test_woken_it_is_fenced_and_the_newer_one_notices_nothing(side_by_side, point):
    side_by_side(wake_after_takeover, point)


@pytest.mark.parametrize("points", in_turn(WOKEN_INSIDE, width=1, every=5))
def test_woken_inside_a_transaction_it_costs_the_newer_one_an_attempt(side_by_side, points):
    side_by_side(wake_inside_transaction, points)


@pytest.mark.parametrize(
    "seed",
    [*range(OF_ALL_RUNS)]
    + [pytest.param(seed, marks=pytest.mark.nightly) for seed in range(OF_ALL_RUNS, SEEDS)],
)
def test_of_two_that_are_started_together_one_goes_on(side_by_side, seed):
    side_by_side(start_together, seed)


def test_the_logs_of_all_of_them_are_well_formed(scenes):
    assert scenes.check_logs()["COMMIT"] > 0
