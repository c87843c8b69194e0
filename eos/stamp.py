"""For upstream applications: whose a record is, in which life, and which number it has there.

    from eos.stamp import Stamp

    stamp = Stamp("/var/lib/till/stamp", "till-7", resumes=True)
    for payment in outbox[stamp.next_of(0):]:
        producer.produce("payments", payment, partition=0, headers=stamp.headers(0))
    producer.flush()
    stamp.acknowledged()

Headers are a list of names and bytes, as confluent-kafka and kafka-python take them. Needs Python's
own library only, so this file may be copied. Each partition has numbers of its own, without a hole.

A file keeps the epoch, and for each partition how many records were acknowledged. What was stamped
behind that when a process died may have arrived or not. So there are two kinds of upstream:

- One that can send the same records again in the same order, from an outbox or a file, says
  `resumes=True`. Its next process goes on in the same epoch where the acknowledged ones end, and
  sends again from there: what had arrived is recognised. Other records under those numbers would be
  dropped, so never say so of an upstream that makes new ones.
- Any other gets a new epoch when its process died: nothing of before is sent again, and what an
  older process still has in hand is dropped. After `close()` with all acknowledged, it goes on.

One process has a file at a time, which is locked. An instance on another machine that takes over
has a file of its own, with the same producer and a higher `epoch`, such as the number of a lease.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

PRODUCER, EPOCH, SEQUENCE = "eos.producer", "eos.epoch", "eos.sequence"
NUMBERS_MAX = 2**62
_FORMAT = 1


class StampError(Exception):
    """The file is another process's, another producer's, or can't be read."""


class Stamp:
    """Not shared between threads: records would be sent in another order than they are stamped."""

    def __init__(
        self, path: Path | str, producer: str, *, epoch: int | None = None, resumes: bool = False
    ) -> None:
        """`epoch`: at least this one."""
        if not producer or (epoch is not None and not 0 <= epoch < NUMBERS_MAX):
            raise ValueError(f"producer is {producer!r}, epoch {epoch}: expected an id, and 0 up")
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self._path)
        self.producer = producer
        try:
            self.epoch, self._acknowledged = self._begun(epoch or 0, resumes=resumes)
            self._next = dict(self._acknowledged)
            self._write(is_closed=False)  # before anything is stamped
        except BaseException:
            os.close(self._lock)
            raise

    def next_of(self, partition: int) -> int:
        """The number of the next record there: with `resumes`, how many need not come again."""
        return self._next.get(partition, 0)

    def headers(self, partition: int) -> list[tuple[str, bytes]]:
        """Of the next record to that partition. It must be sent, and before any later one."""
        number = self.next_of(partition)
        self._next[partition] = number + 1
        stamp = ((PRODUCER, self.producer), (EPOCH, str(self.epoch)), (SEQUENCE, str(number)))
        return [(name, text.encode()) for name, text in stamp]

    def acknowledged(self, partition: int | None = None, through: int | None = None) -> None:
        """All that was stamped has arrived: after a `flush()` without an error. Or that of one
        partition, maybe only up to a number."""
        every = self._next if partition is None else {partition: self.next_of(partition)}
        for each, following in every.items():
            end = following if through is None else through + 1
            if end > following:
                raise ValueError(f"{through} of partition {each} was not stamped yet: {following}")
            self._acknowledged[each] = max(end, self._acknowledged.get(each, 0))
        self._write(is_closed=False)

    def close(self) -> None:
        """Without this, and if not all is acknowledged, the next start begins a new epoch."""
        if self._lock >= 0:
            self._write(is_closed=self._acknowledged == self._next)
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Stamp:  # noqa: PYI034 - typing.Self begins with 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _begun(self, epoch: int, *, resumes: bool) -> tuple[int, dict[int, int]]:
        if not self._path.exists():
            return epoch, {}
        found = self._read()
        if found["producer"] != self.producer:
            raise StampError(
                f"{self._path} is the file of producer {found['producer']!r}, not of "
                f"{self.producer!r}: each has a file of its own"
            )
        if epoch > found["epoch"]:
            return epoch, {}
        if resumes or found["is_closed"]:
            return found["epoch"], found["acknowledged"]
        return found["epoch"] + 1, {}

    def _read(self) -> dict[str, Any]:
        try:
            body = json.loads(self._path.read_text(encoding="utf-8"))
            if body["format"] != _FORMAT:
                raise ValueError(f"its format is {body['format']}")
            return {
                "producer": str(body["producer"]),
                "epoch": int(body["epoch"]),
                "is_closed": bool(body["is_closed"]),
                "acknowledged": {int(p): int(n) for p, n in body["acknowledged"].items()},
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StampError(
                f"{self._path} is no file of this module ({error}): move it away, and begin with "
                "an `epoch` above all that were used: else new records would be dropped as known"
            ) from error

    def _write(self, *, is_closed: bool) -> None:
        """Whole and on the disk, or as it was."""
        if self._lock < 0:
            raise ValueError(f"{self._path} is closed")
        body = {
            "format": _FORMAT,
            "producer": self.producer,
            "epoch": self.epoch,
            "is_closed": is_closed,
            "acknowledged": {str(p): n for p, n in sorted(self._acknowledged.items())},
        }
        unfinished = self._path.with_name(f"{self._path.name}.part")
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(body, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _locked(path: Path) -> int:
    """Beside the file, which is replaced at each write. The kernel lets it go with the process."""
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    with suppress(PermissionError):  # another user's, or a file system without modes
        os.fchmod(lock, 0o600)  # a user who can read the file can hold the lock
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StampError(f"another process has {path}: two would send the same numbers") from error
    return lock
