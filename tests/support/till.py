"""An upstream as a process of its own: it stamps with `eos.stamp`, resends what it did not hear of,
and may be killed. `BOOTSTRAP TOPIC STAMP-FILE EPOCH FIRST`: payments of its outbox begin at
FIRST; of an EPOCH above 0 it took over. For each line `UNTIL BATCHES` it sends up to that payment,
in batches of ten, hears of so many of them, and says `sent`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer

from eos.stamp import Stamp
from eos.testing.outside import IN_ORDER

BATCH = 10
CHECKOUT = Path(__file__).parents[2]


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
            [sys.executable, "-m", "support.till", *words],
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
    producer = Producer({**IN_ORDER, "bootstrap.servers": bootstrap, "log_level": 3})
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
