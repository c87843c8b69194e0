"""Two copies of a pipeline that are started together.

Each waits a moment now and then before a request or a step, as a seed says, so that they meet
everywhere in their starts and micro-batches.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from eos.errors import EosError, FencedError, Recovery
from support.copy import Copy
from support.forked import Forked
from support.scenes import Scenes, ended
from support.watched import Watched

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
    for error, job in zip(errors, (scene.job, elsewhere), strict=True):
        if error is not None and error not in fenced:
            # What a start that is overtaken again and again ends with: a supervisor repeats it.
            assert error.recovery in {Recovery.REDO, Recovery.RESTART}, f"seed {seed}: {errors}"
            with Copy(job) as again:
                assert ended(again) is None, f"seed {seed}: {errors}"
    scene.check()


def processes_started_together(scenes: Scenes, _number: int) -> None:
    scene = scenes.new(RECORDS)
    elsewhere = replace(scene.job, folder=scene.job.folder / "elsewhere")
    with Forked(scene.job) as one, Forked(elsewhere) as other:
        codes = [one.wait(), other.wait()]
    assert codes.count(Recovery.FENCED.value) <= 1, codes
    for code, job in zip(codes, (scene.job, elsewhere), strict=True):
        if code not in {0, Recovery.FENCED.value}:  # as above
            assert code == Recovery.RESTART.value, codes
            with Copy(job) as again:
                assert ended(again) is None, codes
    scene.check()
