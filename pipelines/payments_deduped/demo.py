"""A till that crashes and sends again, twice, and is replaced: plays that, and checks the result.

    demo.py load   --bootstrap HOST:PORT
    demo.py report --bootstrap HOST:PORT [--seconds S] [--already N] [--json]

Each life of the till's application is a process of its own, which knows of the ones before what the
file of `eos.stamp` says. Two of them are killed. `report` exits with 1 if a payment is missing or
twice. It reads with librdkafka, as any other consumer would.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from eos.stamp import Stamp
from eos.testing import difference
from eos.testing.outside import Kafka, set_topic

SOURCE, TARGET, LEDGER = "payments", "payments.once", "eos.ledger.payments_deduped"
TILL = "till-7"
PARTITIONS, TARGET_PARTITIONS = 2, 4
BATCH, BATCHES = 50, 30  # payments of a batch, which go to both partitions in turns
LIFE_S_MAX = 1200  # the launcher gives 1500 to all of them


class Life(NamedTuple):
    """One process of the till's application. It is killed where batches are left unanswered."""

    machine: str
    epoch: int
    begins: int  # at this batch, if its file knows of none that was answered
    ends: int
    answered: int
    story: str


STORY = (
    Life("a", 0, 0, 20, 15, "sends batches 1 to 20, hears no answer to the last five, is killed"),
    Life("a", 0, 0, 20, 15, "is started again, sends the last five again, and is killed again"),
    Life("a", 0, 0, 25, 25, "is started again, sends them a third time, and 21 to 25"),
    Life("b", 1, 25, 30, 30, "another machine takes over, in the next epoch: 26 to 30"),
    Life("a", 0, 0, 30, 30, "the first one wakes up, and sends 26 to 30, too"),
)
# Five batches twice again, and five that came too late.
SENT = (BATCHES + 3 * 5) * BATCH
WHY = {
    "duplicate": "sent before, with the same number in the same epoch",
    "fenced": "sent by the machine that another one had replaced",
}


@dataclass(frozen=True)
class Report:
    records_in: int
    payments: int
    records_out: int
    dropped: dict[str, int]  # why: how many
    twice: int
    lost: int
    seconds: float


def load(bootstrap: str) -> dict[str, int]:
    kafka = Kafka(bootstrap)
    present = 0
    for topic, partitions in ((SOURCE, PARTITIONS), (TARGET, TARGET_PARTITIONS)):
        if topic not in kafka.topics():
            kafka.create(topic, partitions)
            # Kept for ever: after a week the check would otherwise miss what retention removed.
            set_topic(bootstrap, topic, retention_ms="-1")
        elif topic == SOURCE:
            present = len(kafka.read(SOURCE))
    if present not in {0, SENT}:
        raise SystemExit(
            f"demo: {SOURCE} has {present:,} records, and the story {SENT:,}: it was cut off, or "
            "others write there. Remove the state root (.eos), or take another broker"
        )
    if not present:
        play(bootstrap)
    return {"loaded": SENT - present, "present": SENT}


def play(bootstrap: str) -> None:
    with tempfile.TemporaryDirectory(prefix="eos-till-") as folder:
        for number, life in enumerate(STORY):
            say(f"{TILL}{life.machine}: {life.story}")
            words = ["live", "--bootstrap", bootstrap, "--life", str(number), "--folder", folder]
            done = subprocess.run(
                [sys.executable, __file__, *words], check=False, timeout=LIFE_S_MAX
            )
            wanted = 0 if life.answered == life.ends else -signal.SIGKILL
            if done.returncode != wanted:
                raise SystemExit(f"demo: that ended with {done.returncode} instead of {wanted}")


def live(bootstrap: str, life: Life, folder: Path) -> None:
    """What an upstream's application does: docs/dedup.md, Stamping."""
    stamp = Stamp(folder / life.machine, TILL, epoch=life.epoch, resumes=True)
    first = life.begins + stamp.next_of(0) * PARTITIONS // BATCH
    Kafka(bootstrap).write(SOURCE, records(stamp, first, life.answered))
    stamp.acknowledged()
    if life.answered < life.ends:
        Kafka(bootstrap).write(SOURCE, records(stamp, max(first, life.answered), life.ends))
        os.kill(os.getpid(), signal.SIGKILL)
    stamp.close()


def records(stamp: Stamp, first: int, end: int) -> Iterator[dict[str, Any]]:
    for payment in range(first * BATCH, end * BATCH):
        value = {"payment_id": payment, "till": TILL, "cents": 100 + payment * 37 % 9_900}
        partition = payment % PARTITIONS
        headers = stamp.headers(partition)
        yield {"value": json.dumps(value), "partition": partition, "headers": headers}


def report(bootstrap: str, seconds: float, *, as_json: bool) -> int:
    kafka = Kafka(bootstrap)
    out = [record.json["payment_id"] for record in kafka.read(TARGET)]
    between = difference(range(BATCHES * BATCH), out)
    ledger = [record.json for record in kafka.read(LEDGER)]
    dedups = [entry["attempt"]["dedup"] for entry in ledger if entry["kind"] == "attempt"]
    verdicts = sum((Counter(each["verdicts"]) for each in dedups), Counter[str]())
    found = Report(
        records_in=len(kafka.read(SOURCE)),
        payments=BATCHES * BATCH,
        records_out=len(out),
        dropped={why: verdicts[why] for why in WHY},
        twice=between.extra.total(),
        lost=between.lost.total(),
        seconds=round(seconds, 1),
    )
    print(json.dumps(asdict(found)) if as_json else table(found))
    return 0 if between.is_none else 1


def table(found: Report) -> str:
    rows = [(name.replace("_", " "), value) for name, value in asdict(found).items()]
    lines = []
    for name, value in rows:
        if name == "dropped":
            lines += [f"  {why:<14}{count:>10,}   {WHY[why]}" for why, count in value.items()]
        else:
            lines.append(f"  {name:<14}{value:>10,}")
    return "\n".join(lines)


def say(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="a till's story, and what became of its payments")
    verbs = parser.add_subparsers(dest="verb", required=True)
    loading = verbs.add_parser("load", help="play the story, if it was not yet")
    reporting = verbs.add_parser("report", help="read everything back and check it")
    living = verbs.add_parser("live", help="one life of the till's application: `load` starts it")
    for verb in (loading, reporting, living):
        verb.add_argument("--bootstrap", required=True, help="Kafka addresses")
    reporting.add_argument("--seconds", type=float, default=0.0, help="what the run took")
    reporting.add_argument("--already", type=int, default=0, help="not used: the story is one")
    reporting.add_argument("--json", action="store_true", help="one JSON object")
    living.add_argument("--life", type=int, required=True, choices=range(len(STORY)))
    living.add_argument("--folder", type=Path, required=True, help="where the stamps' files are")
    options = parser.parse_args(arguments)
    if options.verb == "load":
        print(json.dumps(load(options.bootstrap)))
        return 0
    if options.verb == "live":
        live(options.bootstrap, STORY[options.life], options.folder)
        return 0
    return report(options.bootstrap, options.seconds, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
