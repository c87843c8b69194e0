"""Faults of a soak. Each begins, lasts and ends in one call, with the load running beside it.

A fault removes its own rules of the proxy: another one may wait for records, which need the
network.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from history.pipelines import FENCED
from history.workload import Workload
from support.kafka.proxy_rules import ALWAYS, ANY, Do, Rule
from support.kafka.three_brokers import INTERNAL, NODES, ThreeBrokers

LASTS_S = 8
_LOST = (Do.LOSE_ANSWER, Do.CLOSE_BEFORE, Do.CLOSE_AFTER, Do.HALF_ANSWER)
_PIECE = b"\0" * (1 << 20)
_DISK_BYTES_MAX = 256 << 20


@dataclass
class Soak:
    three: ThreeBrokers
    load: Workload
    random: Random
    struck: Counter[str] = field(default_factory=Counter)  # requests, by what was done to them

    def node(self) -> int:
        return self.random.choice(NODES)


def _last(soak: Soak, *rules: Rule) -> None:
    time.sleep(LASTS_S)
    soak.three.proxy.end(*rules)
    for rule in rules:
        soak.struck[rule.do.name] += len(rule.struck)


def kill_pipeline(soak: Soak) -> None:
    """SIGKILL, twice: the second one may hit a startup."""
    pipeline = soak.random.choice(soak.load.pipelines)
    for _ in range(2):
        pipeline.kill()
        time.sleep(soak.random.uniform(0, LASTS_S))


def zombie(soak: Soak) -> None:
    """A pipeline is paused, replaced, and wakes."""
    pipeline = soak.random.choice(soak.load.pipelines)
    code = pipeline.replace_by_force(lambda: time.sleep(LASTS_S))
    # It may have been ending when it was paused, or may have lost a broker.
    assert code in {FENCED, 5, -9}, f"a zombie ended with {code}"


def kill_broker(soak: Soak) -> None:
    node = soak.node()
    soak.three.kill(node)
    time.sleep(LASTS_S)
    soak.three.restart(node)


def restart_broker(soak: Soak) -> None:
    soak.three.restart(soak.node())


def pause_broker(soak: Soak) -> None:
    """As if its network were gone, or its machine swapped."""
    node = soak.node()
    soak.three.pause(node)
    time.sleep(LASTS_S)
    soak.three.wake(node)
    soak.three.wait_whole()


def move_leaders(soak: Soak) -> None:
    ledgers = [pipeline.job.ledger for pipeline in soak.load.pipelines]
    soak.three.move_leaders(*INTERNAL, *soak.load.topics, *ledgers)


def lost_answers(soak: Soak) -> None:
    """Of one request in fifty."""
    rare = {"chance": 0.02, "times": ALWAYS}
    _last(soak, *(soak.three.proxy.rule(ANY, do, **rare) for do in _LOST))


def delays(soak: Soak) -> None:
    rule = soak.three.proxy.rule
    answers = rule(ANY, Do.DELAY_ANSWER, delay_s=0.5, chance=0.1, times=ALWAYS)
    requests = rule("Produce", Do.DELAY_REQUEST, delay_s=1, chance=0.1, times=ALWAYS)
    _last(soak, answers, requests)


def other_codes(soak: Soak) -> None:
    """Errors that say that a request was not carried out, although it was."""
    rare = {"chance": 0.05, "times": ALWAYS}
    codes = (("Produce", 7), ("EndTxn", 15), ("TxnOffsetCommit", 16))
    rule = soak.three.proxy.rule
    _last(soak, *(rule(api, Do.OTHER_CODE, code=code, **rare) for api, code in codes))


def black_hole(soak: Soak) -> None:
    """The writers of a pipeline get no answer from a leader of its target."""
    job = soak.random.choice(soak.load.pipelines).job
    port = soak.three.kafka.nodes[soak.three.leader(job.target) - 1].ports.client
    hole = soak.three.proxy.black_hole(client=f"{job.name}.writer", port=port)
    hole.wait_struck()
    _last(soak, hole)


def throttle(soak: Soak) -> None:
    slow = soak.three.proxy.rule("Produce", Do.THROTTLE, bytes_per_s=20_000, times=ALWAYS)
    slow.wait_struck()  # beside another fault, writers may pause for longer than `_last`
    _last(soak, slow)


def disk_pressure(soak: Soak) -> None:
    """Another process writes to the brokers' disk, and waits until it is there."""
    end = time.monotonic() + LASTS_S
    with tempfile.TemporaryFile(dir=soak.three.kafka.root) as file:
        while time.monotonic() < end:
            file.write(_PIECE)
            if file.tell() >= _DISK_BYTES_MAX:
                file.seek(0)
            os.fsync(file.fileno())


def nothing(_soak: Soak) -> None:
    time.sleep(LASTS_S)


FAULTS: Mapping[str, Callable[[Soak], None]] = {
    each.__name__: each
    for each in (
        kill_pipeline,
        zombie,
        kill_broker,
        restart_broker,
        pause_broker,
        move_leaders,
        lost_answers,
        delays,
        other_codes,
        black_hole,
        throttle,
        disk_pressure,
        nothing,
    )
}

# What a fault's rules do to requests.
RULES: Mapping[str, tuple[str, ...]] = {
    "lost_answers": tuple(do.name for do in _LOST),
    "delays": (Do.DELAY_ANSWER.name, Do.DELAY_REQUEST.name),
    "other_codes": (Do.OTHER_CODE.name,),
    "black_hole": (Do.DROP_REQUEST.name,),
    "throttle": (Do.THROTTLE.name,),
}


def healed(soak: Soak) -> None:
    """The network is whole again, and each broker is back."""
    soak.three.proxy.clear_rules()
    soak.three.mend()


def both(soak: Soak, names: tuple[str, ...]) -> None:
    """Several faults at the same time. The first error of one is raised."""
    errors: list[BaseException] = []

    def one(name: str) -> None:
        try:
            FAULTS[name](soak)
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=one, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
