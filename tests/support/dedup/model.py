"""What upstreams send to a pipeline with dedup.

As a program, this is an upstream: it stamps with `eos.stamp`, resends records without an
acknowledgement, and may be killed. Its arguments are BOOTSTRAP TOPIC STAMP-FILE EPOCH FIRST:
payments of its outbox begin at FIRST, and with an EPOCH above 0 it took over. For each line
`UNTIL BATCHES` it sends payments up to UNTIL, in batches of ten, receives the acknowledgements of
BATCHES of them, and prints `sent`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from hypothesis import strategies as st

from eos.stamp import Stamp
from support.dedup import Sent
from support.kafka import kafka_io

CIRCLE = 2**16
ACTIONS = (
    "next",
    "next",
    "next",
    "again",
    "batch again",
    "restart",
    "zombie",
    "skip",
    "below",
    "any",
)


@st.composite
def upstream_records(draw, circle):
    """What an upstream sends, as (partition, producer, epoch, sequence)."""
    found: list[Sent] = []
    heads: dict[tuple[int, bytes], tuple[int, int]] = {}
    for _ in range(draw(st.integers(1, 30))):
        key = draw(st.integers(0, 1)), b"p%d" % draw(st.integers(0, 2))
        begins = st.sampled_from([0, 0, 7, CIRCLE - 3])
        epoch, number = heads.get(key) or (draw(st.integers(0, 2)), draw(begins))
        action = draw(st.sampled_from(ACTIONS))
        own = [each for each in found if each[:2] == key]
        if action == "again" and own:
            found.append(draw(st.sampled_from(own)))
            continue
        if action == "batch again":  # as one that did not hear the answer
            found += own[-5:]
            continue
        if action == "zombie" and own and epoch:
            found.append(Sent(*key, epoch - 1, draw(st.integers(0, 5))))
            continue
        if action == "below" and own:
            found.append(Sent(*key, epoch, (number - draw(st.integers(1, 9))) % min(circle, 2**62)))
            continue
        if action == "restart":
            epoch, number = epoch + 1, 0
        if action == "skip":
            number = (number + draw(st.integers(1, 3))) % circle
        if action == "any":
            stamp = draw(st.sampled_from([(None, 0, 0), (key[1], None, 0), (key[1], 0, -1)]))
            found.append(Sent(key[0], *(None if part == -1 else part for part in stamp)))
            continue
        found.append(Sent(*key, epoch, number))
        heads[key] = epoch, (number + 1) % circle
    return found


BATCH = 10
CHECKOUT = Path(__file__).parents[3]


class Till:
    """From the test's side."""

    def __init__(
        self,
        environment: dict[str, str],
        bootstrap: str,
        topic: str,
        file: Path,
        epoch: int = 0,
        first: int = 0,
    ) -> None:
        words = [bootstrap, topic, str(file), str(epoch), str(first)]
        self._process = subprocess.Popen(
            # Not by its path: then this folder's modules would pass for Python's own.
            [sys.executable, "-m", "support.dedup.model", *words],
            env={**environment, "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}"},
            cwd=file.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def sends(self, until: int, batches: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{until} {batches}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "sent\n"

    def killed(self) -> None:
        """SIGKILL: it closes nothing and says nothing."""
        self._process.kill()
        self.over()

    def over(self) -> None:
        """Whatever became of it: nothing of it is left."""
        self._process.kill()
        self._process.communicate(timeout=300)


def main(bootstrap: str, topic: str, file: str, epoch: int, first: int) -> None:
    producer = kafka_io.producer(bootstrap)
    stamp = Stamp(file, "till-a", epoch=epoch, resumes=True)
    for line in sys.stdin:
        until, batches = map(int, line.split())
        for number in range(stamp.next_of(0), until - first):
            payment = {"payment_id": first + number, "till": "a", "cents": number}
            headers = stamp.headers(0)
            producer.produce(topic, json.dumps(payment), partition=0, headers=headers)
            if (number + 1) % BATCH == 0:
                assert producer.flush(300) == 0
                if number // BATCH < batches:
                    stamp.acknowledged()
        assert producer.flush(300) == 0
        print("sent", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
