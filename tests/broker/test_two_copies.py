"""Two copies of a pipeline that are started together: one is fenced at most, and one goes on.

Each waits a moment now and then before a request or a step, as a seed says, so that they meet
everywhere in their starts and micro-batches. Which of them is the newer one is for their fences to
say; both being fenced would leave the pipeline to nobody.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest
from support.copy import Copy
from support.forked import Forked
from support.scenes import Scenes, ended
from support.watched import Watched

from eos.errors import EosError, FencedError, Recovery

SEEDS = 100
RECORDS = 40  # two micro-batches
WAITS, WAIT_S_MAX = 0.2, 0.03  # how often, and how long
APART_S_MAX = 0.5  # so that some meet late

MET: list[bool] = []  # of each seed that was played: whether they did


@dataclass
class Jitter:
    """In the place of a crash plan: waits."""

    random: random.Random
    point: str = ""

    def reached(self, _what: str) -> None:
        if self.random.random() < WAITS:
            time.sleep(self.random.uniform(0, WAIT_S_MAX))


def run(copy: Copy, seed: str) -> EosError | None:
    copy.crash = jitter = Jitter(random.Random(seed))
    copy.wire = Watched(copy.wire, jitter.reached)
    copy.writers = Watched(copy.writers, jitter.reached)
    time.sleep(jitter.random.uniform(0, APART_S_MAX))
    return ended(copy)


def started_together(scenes: Scenes, seed: int) -> None:
    scene = scenes.new(RECORDS)
    elsewhere = replace(scene.job, folder=scene.job.folder / "elsewhere")
    with ThreadPoolExecutor(2) as pool, Copy(scene.job) as one, Copy(elsewhere) as other:
        runs = [pool.submit(run, copy, f"{seed}.{n}") for n, copy in enumerate((one, other))]
        errors = [each.result() for each in runs]
    fenced = [error for error in errors if isinstance(error, FencedError)]
    MET.append(bool(fenced))
    assert len(fenced) <= 1, f"seed {seed}: {errors}"
    assert errors.count(None) == 2 - len(fenced), f"seed {seed}: {errors}"
    scene.check()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_one_goes_on_to_the_end(side_by_side, seed):
    side_by_side(started_together, seed)


def test_most_of_them_met():
    assert sum(MET) > len(MET) / 2


def processes_started_together(scenes: Scenes, _number: int) -> None:
    scene = scenes.new(RECORDS)
    elsewhere = replace(scene.job, folder=scene.job.folder / "elsewhere")
    with Forked(scene.job) as one, Forked(elsewhere) as other:
        codes = sorted([one.wait(), other.wait()])
    assert codes in ([0, 0], [0, Recovery.FENCED.value])
    scene.check()


@pytest.mark.parametrize("number", range(8))
def test_one_process_goes_on_to_the_end(side_by_side, number):
    side_by_side(processes_started_together, number)


def test_the_logs_of_all_of_them_are_well_formed(scenes):
    """Epochs follow one another in every partition: none commits after a later one has."""
    assert scenes.check_logs()["COMMIT"] > 0
