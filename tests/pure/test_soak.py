"""The soak: its seed decides the faults, never two of brokers at once; curves and report."""

from __future__ import annotations

import os
import random

from soak.curves import Curves, look
from soak.faults import FAULTS
from soak.run import BROKERS, chosen_faults, never_struck
from support.waiting import wait_until


def test_the_seed_decides_the_faults_and_brokers_are_disturbed_one_at_a_time() -> None:
    drawn = [chosen_faults(random.Random(seed)) for seed in range(2_000)]
    assert drawn == [chosen_faults(random.Random(seed)) for seed in range(2_000)]
    assert {name for names in drawn for name in names} == set(FAULTS)
    assert {len(names) for names in drawn} == {1, 2}
    assert all(len(BROKERS & set(names)) <= 1 for names in drawn)
    assert set(FAULTS) > BROKERS


def test_a_process_is_sampled_until_it_ends() -> None:
    found = look(os.getpid())
    assert found is not None
    assert found[0] > 1
    assert found[1] >= 1
    assert look(2**22 + 1) is None  # above the largest process id


def test_the_summary_has_the_first_the_last_and_the_largest_values() -> None:
    curves = Curves(lambda: {"me": os.getpid(), "gone": 2**22 + 1}, every_s=0.001)
    wait_until(lambda: len(curves.points) >= 3)
    curves.close()
    assert set(curves.summary()) == {"me"}
    curves.points = [{"s": n, "me": (n, 2 * n)} for n in range(20)]
    assert curves.summary()["me"] == {
        "MiB at first": 0,
        "MiB at last": 18,
        "MiB at most": 19,
        "threads at first": 1,
        "threads at last": 37,
        "threads at most": 38,
    }


def test_many_points_become_fewer() -> None:
    curves = Curves(dict, every_s=0.0001)
    wait_until(lambda: curves.points and curves.points[-1]["s"] >= 1)
    curves.close()
    assert len(curves.points) <= 2_000


def test_a_rule_that_was_there_often_and_struck_nothing_is_named() -> None:
    struck = {"DELAY_ANSWER": 3, "THROTTLE": 0}
    assert never_struck({"delays": 3, "throttle": 3, "zombie": 9}, struck) == [
        "DELAY_REQUEST",
        "THROTTLE",
    ]
    assert not never_struck({"delays": 2, "throttle": 2}, {})
