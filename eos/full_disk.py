"""Did a full disk cause an error? If so, report which folder, how much room is left, and what to
do.

The operating system's error arrives through Spark, Java and Rust, inside stack traces without a
folder's name. So the free space of each folder that a run writes to is looked up.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from eos.errors import EosError, Recovery, UnavailableError
from eos.location import local_path

ROOM_BYTES_MIN = 4 << 20  # a disk with less counts as full: a Delta commit may need some MB
_NUMBERS = (errno.ENOSPC, errno.EDQUOT)
_MARKS = tuple(os.strerror(number) for number in _NUMBERS)
_CAUSES_MAX = 20
_WHAT_TO_DO = "free space on this disk, then start again; no records are lost"


class Room(NamedTuple):
    """The free and total bytes of a folder's disk."""

    free: int
    total: int


def require_room(folder: Path) -> None:
    """Raise UnavailableError if the folder's disk is full.

    Call this before delta-rs writes: on a full disk its threads panic, and print Rust's stack
    traces.
    """
    found = _room(folder)
    if found is not None and found.free < ROOM_BYTES_MIN:
        room = _room_text(found)
        raise UnavailableError(
            "disk_full",
            f"the disk of {folder} is full ({room})",
            hint=_WHAT_TO_DO,
            path=str(folder),
        )


@contextmanager
def naming_full_disk(pipeline: str, folders: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Replace an error in this context by one with the folder's name, if a full disk caused it."""
    try:
        yield
    except Exception as error:
        named = full_disk_error(pipeline, error, folders())
        if named is None:
            raise
        raise named from error


def full_disk_error(pipeline: str, error: Exception, folders: Iterable[str]) -> EosError | None:
    """Return the error about the full disk, or None if no full disk caused `error`.

    Only errors after which a restart may help are replaced, so the exit code never depends on an
    error's text, which may quote a record.
    """
    is_transient = not isinstance(error, EosError) or error.recovery in {
        Recovery.RESTART,
        Recovery.REDO,
    }
    if not is_transient or not _is_caused_by_full_disk(error):
        return None
    local = [path for path in (local_path(each) for each in folders) if path is not None]
    rooms = {path: _room(path) for path in dict.fromkeys([*local, Path(tempfile.gettempdir())])}
    full = [(path, room) for path, room in rooms.items() if room and room.free < ROOM_BYTES_MIN]
    if full:
        full_disks = "; ".join(
            f"the disk of {path} is full ({_room_text(room)})" for path, room in full
        )
        return UnavailableError("disk_full", f"{pipeline}: {full_disks}", hint=_WHAT_TO_DO)
    if not isinstance(error, EosError):
        return None
    message, folders_here = error.message, ", ".join(str(path) for path in rooms)
    return UnavailableError(
        "disk_full",
        message,
        hint=f"a disk was full, on this machine or an executor's: free space in {folders_here}, "
        "then start again; no records are lost",
    )


def _is_caused_by_full_disk(error: BaseException) -> bool:
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return False
        if isinstance(cause, OSError) and cause.errno in _NUMBERS:
            return True
        if any(mark in str(cause) for mark in _MARKS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _room(folder: Path) -> Room | None:
    """Return the free and total bytes of the nearest existing folder, because a run may not have
    created this one yet. Return None if they can't be read."""
    for place in (folder, *folder.parents):
        try:
            usage = shutil.disk_usage(place)
            return Room(usage.free, usage.total)
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def _room_text(room: Room) -> str:
    free, total = room.free / (1 << 20), room.total / (1 << 20)
    return f"{free:,.1f} MiB of {total:,.0f} MiB free"
