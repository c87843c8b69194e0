"""Run a constant load under faults for hours, and check it after each fault and at the end.

    ./tests/run soak --hours 0.2 --seed 7 --report soak-7.json

Two pipelines in a chain, two transactional producers and three read_committed consumers use three
brokers behind proxies. After each round of faults the load rests until everything is copied and
read, and the history checker looks at the round. The seed decides which faults there are, when and
to whom; how far processes are then differs from run to run. The exit code is 1 if an anomaly was
found; its history is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from history.events import Anomaly
from history.workload import Workload
from support.kafka.three_brokers import NODES, ThreeBrokers, three_nodes

from soak.curves import Curves
from soak.faults import FAULTS, LASTS_S, RULES, Soak, both, healed

_TWO_AT_ONCE = 0.3
_OFTEN = 3  # rounds of a fault, after which each of its rules must have struck
_PREFIX = "soak"
# At most one at a time. Two brokers less would leave no majority, and a black hole waits for
# requests to a leader, which another broker may have become meanwhile.
BROKERS = {name for name in FAULTS if name.endswith(("_broker", "_leaders", "_hole"))}


class AnomalyError(Exception):
    """An anomaly: the run ends at once."""

    def __init__(self, anomalies: Sequence[Anomaly]) -> None:
        super().__init__(f"{len(anomalies)} anomalies; the smallest is\n{anomalies[0]}")


def chosen_faults(chosen: random.Random) -> tuple[str, ...]:
    """One fault, or two of which at most one is in BROKERS."""
    first = chosen.choice(list(FAULTS))
    if chosen.random() >= _TWO_AT_ONCE:
        return (first,)
    others = [name for name in FAULTS if name not in BROKERS and name != first]
    return first, chosen.choice(others)


def one_round(soak: Soak, names: tuple[str, ...]) -> None:
    soak.load.resume()
    try:
        both(soak, names)
    except Exception as error:
        raise RuntimeError(f"in the round of {' + '.join(names)}") from error
    finally:
        healed(soak)
    time.sleep(LASTS_S / 4)
    found = soak.load.rest()
    if found:
        raise AnomalyError(found)


def run(seed: int, hours: float, folder: Path) -> dict[str, Any]:
    """The report. `AnomalyError` has the reason why there is none."""
    chosen, faults = random.Random(seed), Counter[str]()
    with three_nodes(folder / "brokers", remembers=False) as three:
        direct = three.kafka.bootstrap
        name = f"{_PREFIX}-{seed}"
        load = Workload(direct, three.bootstrap, name, folder, seed, replication=-1)
        soak = Soak(three, load, chosen)
        curves = Curves(lambda: pids(three, load))
        begun = time.monotonic()
        try:
            while time.monotonic() - begun < hours * 3600:
                names = chosen_faults(chosen)
                one_round(soak, names)
                faults.update(names)
                seconds = time.monotonic() - begun
                print(f"{seconds:7.0f} s  {' + '.join(names)}: {load.checked} records", flush=True)
            found = load.rest_of_all()
            if found:
                raise AnomalyError(found)
            idle = never_struck(faults, soak.struck)
            assert not idle, f"these rules of the proxy never struck a request: {idle}"
        finally:
            curves.close()
            load.close()
        return {
            "seed": seed,
            "hours": round((time.monotonic() - begun) / 3600, 2),
            "cores": os.cpu_count(),
            "faults": dict(sorted(faults.items())),
            "requests struck": dict(sorted(soak.struck.items())),
            **load.counts(),
            "processes": curves.summary(),
            "curves": curves.points,
        }


def never_struck(faults: Mapping[str, int], struck: Mapping[str, int]) -> list[str]:
    """Rules that were there often enough, and still did nothing."""
    enough = sorted(name for name, times in faults.items() if times >= _OFTEN)
    return [do for name in enough for do in RULES.get(name, ()) if not struck.get(do)]


def pids(three: ThreeBrokers, load: Workload) -> Mapping[str, int]:
    found = {"test process": os.getpid()}
    found |= {f"pipeline {n}": each.pid for n, each in enumerate(load.pipelines, 1)}
    for number in NODES:
        pid = three.kafka.nodes[number - 1].pids().get("broker_pid")
        if pid:
            found[f"broker {number}"] = pid
    return found


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./tests/run soak")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, help="a file for the report, as JSON")
    options = parser.parse_args(words)
    folder = Path(tempfile.mkdtemp(prefix=f"soak-{options.seed}-"))
    try:
        report = run(options.seed, options.hours, folder)
    except BaseException as error:
        print(f"{error}\nseed {options.seed}; all that is left of it is in {folder}", flush=True)
        if isinstance(error, AnomalyError):
            return 1
        raise
    shutil.rmtree(folder, ignore_errors=True)
    if options.report is not None:
        options.report.write_text(json.dumps(report) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in report.items() if key != "curves"}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
