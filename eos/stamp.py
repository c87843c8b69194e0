"""How an upstream application stamps its records: with its producer id, an epoch and a number.

    from eos.stamp import Stamp

    stamp = Stamp("/var/lib/till/stamp", "till-7", resumes=True)
    for payment in outbox[stamp.next_of(0):]:
        producer.produce("payments", payment, partition=0, headers=stamp.headers(0))
    producer.flush()
    stamp.acknowledged()

Headers are a list of names and bytes, as confluent-kafka and kafka-python accept them. This file
needs Python's standard library only, so it may be copied. Each partition has its own numbers,
without a hole.

A file stores the epoch, and the number of acknowledged records for each partition. If a process
dies, the records that it stamped after the acknowledged ones may or may not have arrived. So there
are two kinds of upstream:

- An upstream that can send the same records again in the same order, from an outbox or a file, sets
  `resumes=True`. Its next process resumes in the same epoch after the acknowledged records, and
  sends the rest again. Records that had arrived are recognized as duplicates. Never set it for an
  upstream that creates new records: under the same numbers they would be dropped.
- Any other upstream gets a new epoch after its process died. No earlier record is sent again, and
  records that an older process sends late are dropped. After `close()` with all records
  acknowledged, the next process resumes in the same epoch.

One process at a time can use a file, which is locked. An instance on another machine that takes
over needs its own file. That file has the same producer and a higher `epoch`, such as the number of
a lease.
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
    """A stamp file that another process holds, that belongs to another producer, or that can't be
    read."""


class Stamp:
    """The stamps of one producer, for one thread: records must be sent in the order in which they
    are stamped."""

    def __init__(
        self, path: Path | str, producer: str, *, epoch: int | None = None, resumes: bool = False
    ) -> None:
        """Open the stamp file and lock it. `epoch` is the lowest one to use."""
        if not producer or (epoch is not None and not 0 <= epoch < NUMBERS_MAX):
            raise ValueError(
                f"producer is {producer!r}, epoch {epoch}: expected a name, and 0 or more"
            )
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self._path)
        self.producer = producer
        try:
            self.epoch, self._acknowledged = self._begun(epoch or 0, resumes=resumes)
            self._next = dict(self._acknowledged)
            self._write(is_closed=False)  # so that the next process notices a crash of this one
        except BaseException:
            os.close(self._lock)
            raise

    def next_of(self, partition: int) -> int:
        """Return the number of the partition's next record. With `resumes`, as many records of the
        partition need not be sent again."""
        return self._next.get(partition, 0)

    def headers(self, partition: int) -> list[tuple[str, bytes]]:
        """Return the headers of the partition's next record. That record must be sent, and before
        any record with later headers."""
        number = self.next_of(partition)
        self._next[partition] = number + 1
        stamp = ((PRODUCER, self.producer), (EPOCH, str(self.epoch)), (SEQUENCE, str(number)))
        return [(name, text.encode()) for name, text in stamp]

    def acknowledged(self, partition: int | None = None, through: int | None = None) -> None:
        """Record that records arrived. Call this after a `flush()` without an error.

        By default all stamped records count as acknowledged. `partition` limits this to one
        partition, and `through` to numbers up to it.
        """
        every = self._next if partition is None else {partition: self.next_of(partition)}
        for each, following in every.items():
            end = following if through is None else through + 1
            if end > following:
                raise ValueError(
                    f"record {through} of partition {each} was not stamped yet: {following} is next"
                )
            self._acknowledged[each] = max(end, self._acknowledged.get(each, 0))
        self._write(is_closed=False)

    def close(self) -> None:
        """Close the file and release its lock.

        If the file is not closed, or not all records are acknowledged, the next process begins a
        new epoch, unless it sets `resumes`.
        """
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
                f"{self.producer!r}: each producer needs its own file"
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
                f"{self._path} is no valid stamp file ({error}): move it away, and begin with an "
                "`epoch` above all that were used. Otherwise new records are dropped as duplicates"
            ) from error

    def _write(self, *, is_closed: bool) -> None:
        """Replace the file's content durably. If that fails, the old content stays."""
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
    """Lock a separate file next to the stamp file, because each write replaces the stamp file. The
    kernel releases the lock when the process ends."""
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    with suppress(PermissionError):  # another user's, or a file system without modes
        os.fchmod(lock, 0o600)  # any user who can read the file can hold the lock
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StampError(
            f"another process uses {path}: both would send the same numbers"
        ) from error
    return lock
