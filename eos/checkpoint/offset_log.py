"""Read Spark's checkpoint: the offsets that it planned, and the micro-batches that it committed.

The files are Spark's own:
- `metadata`: the query id
- `sources/0/0`: where micro-batch 0 starts; Spark prefers it to `startingOffsets`
- `offsets/<N>`: where micro-batch N ends
- `commits/<N>`: micro-batch N is committed
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from eos.checkpoint.files import Files
from eos.deadline import Deadline
from eos.errors import PromiseBrokenError, UnavailableError
from eos.json_fields import FieldError, parsed
from eos.kafka.api import TopicPartition

Offsets = Mapping[TopicPartition, int]

_BATCH = re.compile(r"\d{1,19}", re.ASCII)  # a file name that int() and Spark accept as a batch id
_FOLDER = re.compile(r"(\d+)(?:-\d+-\d+)?", re.ASCII)
_ASIDE = (
    "`eos recover PIPELINE --set-checkpoint-aside` resumes at the ledger's ends, with a fresh one"
)


@dataclass(frozen=True, slots=True)
class Ranges:
    """The offsets that one micro-batch reads: `starts` inclusive, `ends` exclusive.

    A partition that this micro-batch sees first has no start: Spark resolves it later.
    """

    starts: Offsets
    ends: Offsets

    @property
    def records_max(self) -> int:
        """Return an upper bound of the number of records: control records and compacted records
        have offsets, too."""
        return sum(end - self.starts.get(tp, 0) for tp, end in self.ends.items())

    def remaining(self, floors: Offsets) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return the offsets that remain to be read: for each partition from its start, or its
        floor if that is higher, to its end. Partitions without any are left out."""
        found = {}
        for tp, end in self.ends.items():
            start = max(self.starts.get(tp, 0), floors.get(tp, 0))
            if start < end:
                found[tp] = start, end
        return found


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The last planned and the last committed micro-batch of a checkpoint (None if there is none),
    and their end offsets."""

    location: str
    query_id: str
    planned: int | None
    committed: int | None
    ends: Mapping[int, Offsets]

    def ends_of(self, batch_id: int | None) -> Offsets:
        return {} if batch_id is None else self.ends.get(batch_id, {})


class Checkpoint:
    """One checkpoint folder of a query with one Kafka source.

    With `is_opaque`, the query has other sources. Their offsets are not read, and no micro-batch
    has any here.
    """

    def __init__(self, files: Files, location: str, *, is_opaque: bool = False) -> None:
        self.location = location.rstrip("/")
        self._files = files
        self.is_opaque = is_opaque

    @property
    def name(self) -> str:
        return self.location.rpartition("/")[2]

    def query_id(self) -> str:
        return parse_query_id(*self._text("metadata"))

    def has_commits(self) -> bool:
        return self.committed() is not None

    def planned(self) -> int | None:
        """Return the last planned micro-batch, or None. The next run repeats it if it is not
        committed."""
        return self._last("offsets")

    def committed(self) -> int | None:
        """Return the last micro-batch in Spark's commit log, or None. If Spark died between the
        transaction's commit and its log, the log lacks that micro-batch."""
        return self._last("commits")

    def state(self) -> CheckpointState:
        planned, committed = self.planned(), self.committed()
        ends = {number: self.ends(number) for number in {planned, committed} if number is not None}
        return CheckpointState(self.location, self.query_id(), planned, committed, ends)

    def has_state(self) -> bool:
        """Return whether the folder `state` has content, which means that the plan has a stateful
        operator."""
        return bool(listed(self._files, f"{self.location}/state"))

    def ends(self, batch_id: int) -> Offsets:
        text, path = self._text(f"offsets/{batch_id}")
        return _none_in(text, path) if self.is_opaque else parse_ends(text, path)

    def ranges(self, batch_id: int) -> Ranges:
        if self.is_opaque:
            return Ranges({}, self.ends(batch_id))
        ends = self.ends(batch_id)
        if batch_id == 0:
            starts = parse_starts(*self._text("sources/0/0"))
        else:
            starts = self.ends(batch_id - 1)
        return Ranges({tp: offset for tp, offset in starts.items() if tp in ends}, ends)

    def known_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions whose next offset is in the checkpoint. Any other partition is new
        to Spark."""
        planned = self.planned()
        if planned is None:
            return frozenset()
        is_done = planned == self.committed()
        return frozenset(self.ends(planned) if is_done else self.ranges(planned).starts)

    def require_readable(self) -> None:
        """Raise PromiseBrokenError if a file that the next run reads is damaged. Call this before
        Spark reads it, because Spark's error would not explain what to do."""
        self.query_id()
        planned, committed = self.planned(), self.committed()
        if committed is not None:
            parse_commit(*self._text(f"commits/{committed}"))
        if planned is not None and planned == committed:
            self.ends(planned)
        elif planned is not None:
            self.ranges(planned)

    def is_empty(self, name: str) -> bool:
        """Return whether the file exists and is empty, or has zero bytes only. That happens if the
        machine lost power before the content reached the disk."""
        try:
            return not self._text(name)[0].strip("\0\r\n ")
        except PromiseBrokenError:
            return False

    def _last(self, log: str) -> int | None:
        names = listed(self._files, f"{self.location}/{log}")
        return max((int(name) for name in names if _BATCH.fullmatch(name)), default=None)

    def _text(self, name: str) -> tuple[str, str]:
        """Return the file's text and its path. Raise PromiseBrokenError or UnavailableError if it
        can't be read."""
        path = f"{self.location}/{name}"
        try:
            return self._files.read(path), path
        except (FileNotFoundError, PermissionError) as error:
            raise PromiseBrokenError(
                "checkpoint_unreadable",
                f"the checkpoint file {path} can't be read ({error.strerror or error})",
                hint=f"was the checkpoint moved, truncated or restored in part? {_ASIDE}",
                path=path,
            ) from error
        except OSError as error:
            raise UnavailableError(
                "checkpoint_store_unavailable",
                f"the checkpoint file {path} can't be read now ({error.strerror or error})",
                hint="is its file system mounted and available?",
                path=path,
            ) from error


def listed(files: Files, folder: str) -> list[str]:
    """Return the names in the folder; [] if it does not exist. If the store rejects the request or
    does not respond, raise UnavailableError: otherwise an existing checkpoint would look lost."""
    try:
        return files.names(folder)
    except PermissionError as error:
        raise UnavailableError(
            "checkpoint_access_denied",
            f"the checkpoint folder {folder} can't be listed ({error.strerror or error})",
            hint="grant this user or its credentials the rights to list, read, write and delete "
            "there",
            path=folder,
        ) from error
    except OSError as error:
        raise UnavailableError(
            "checkpoint_store_unavailable",
            f"the checkpoint folder {folder} can't be listed ({error.strerror or error})",
            hint="is the store's address right, is it available, and does the bucket exist? "
            "docs/checkpoints.md lists the settings",
            path=folder,
        ) from error


def require_answer(files: Files, folder: str, deadline: Deadline) -> None:
    """Raise UnavailableError if the store of the checkpoints does not respond before the deadline.
    Call this before the startup fences other instances.

    The store's client retries by its own settings, perhaps for hours, and can't be interrupted. So
    a thread sends the request, and the process does not wait for it after the deadline.
    """
    found: list[Exception | None] = []

    def check() -> None:
        try:
            listed(files, folder)
            found.append(None)
        except Exception as error:  # noqa: BLE001 - raised below
            found.append(error)

    thread = threading.Thread(target=check, name="eos-store", daemon=True)
    thread.start()
    seconds = deadline.left_ms / 1000
    thread.join(seconds)
    if not found:
        raise UnavailableError(
            "checkpoint_store_unavailable",
            f"the checkpoint folder {folder} can't be listed (no response within {seconds:.0f} s, "
            "and the store's client still retries)",
            hint="is the store's address right, and is it available? docs/checkpoints.md lists the "
            "settings with which its client reports the reason earlier",
            path=folder,
        )
    if found[0] is not None:
        raise found[0]


def newest_with_offsets(files: Files, root: str) -> tuple[str | None, str]:
    """Return the path of the newest checkpoint with a planned micro-batch (None if there is none),
    and the path of a fresh one.

    A folder without a planned micro-batch is never used again. It may have `sources/0/0`, from a
    run that died before it wrote `offsets/0`, and Spark would prefer that file to
    `startingOffsets`. A missing `offsets/0` alone proves nothing, because Spark deletes the oldest
    files.
    """
    names = folders(files, root)
    fresh = f"{root}/{(numbered(names[-1]) if names else 0) + 1:04d}"
    for name in reversed(names):
        path = f"{root}/{name}"
        if any(_BATCH.fullmatch(name) for name in listed(files, f"{path}/offsets")):
            return path, fresh
    return None, fresh


def folders(files: Files, root: str) -> list[str]:
    """Return the names of the checkpoints under `root`, the oldest first."""
    found = (name for name in listed(files, root) if numbered(name))
    return sorted(found, key=lambda name: (numbered(name), name))


def numbered(name: str) -> int:
    """Return the number in a checkpoint folder's name, such as 7 for `0007` or
    `0007-PRODUCER-EPOCH`. Return 0 for other names."""
    found = _FOLDER.fullmatch(name)
    return int(found[1]) if found else 0


def parse_query_id(text: str, path: str) -> str:
    """Return the query id from the text of `metadata`, which is one JSON object."""
    try:
        return parsed(text.encode()).text("id")
    except ValueError as error:
        raise _unreadable_error(path, error) from error


def parse_ends(text: str, path: str) -> Offsets:
    """Return the offsets from the text of `offsets/<N>`.

    Its lines are the version, the micro-batch's metadata, and the offsets once for each time that
    the plan reads the source. The last lines are equal, since there is one source
    (`transform/plan_check.py`).
    """
    lines = text.rstrip("\n").split("\n")
    if len(lines) > 3 and len(set(lines[2:])) == 1:
        text = "\n".join(lines[:3])
    return _parse(text, path, lines_expected=3)


def _none_in(text: str, path: str) -> Offsets:
    """Return no offsets. Raise if the text is not that of `offsets/<N>` with one source or more."""
    lines = text.rstrip("\n").split("\n")
    if lines[0] not in ("v1", "v2") or len(lines) < 3:
        error = ValueError(f"{len(lines)} lines, version {lines[0][:20]!r}")
        raise _unreadable_error(path, error)
    return {}


def parse_starts(text: str, path: str) -> Offsets:
    """Return the offsets from the text of `sources/0/0`, which has the version and the offsets. The
    zero byte before them keeps releases of Spark before 2.1 from reading the file."""
    return _parse(text.lstrip("\0"), path, lines_expected=2)


def parse_commit(text: str, path: str) -> None:
    """Raise PromiseBrokenError unless the text is that of `commits/<N>`: the version, and one JSON
    object."""
    try:
        version, noted = text.rstrip("\n").split("\n")
        if version != "v1":
            raise ValueError(f"version {version[:20]!r}")
        parsed(noted.encode())
    except ValueError as error:
        raise _unreadable_error(path, error) from error


def _parse(text: str, path: str, lines_expected: int) -> Offsets:
    """Return the offsets in the last line. Raise for another version, another number of sources or
    a truncated file, because offsets in an unknown format may be misread."""
    try:
        lines = text.rstrip("\n").split("\n")
        if lines[0] != "v1" or len(lines) != lines_expected:
            raise ValueError(
                f"{len(lines)} lines where one source has {lines_expected}, "
                f"version {lines[0][:20]!r}"
            )
        return parse_offsets(lines[-1])
    except ValueError as error:
        raise _unreadable_error(path, error) from error


def parse_offsets(line: str) -> Offsets:
    """Return the offsets of `{"topic": {"0": offset}}`, the format of Spark's Kafka source. Raise
    ValueError for any other text."""
    try:
        return parsed(line.encode()).topic_offsets()
    except FieldError as error:
        raise ValueError(f"not the offsets of a Kafka source: {error}") from error


def _unreadable_error(path: str, error: Exception) -> PromiseBrokenError:
    return PromiseBrokenError(
        "checkpoint_unreadable",
        f"the checkpoint file {path} has a format that this release does not support ({error})",
        hint=f"was it truncated, or written by another Spark version? {_ASIDE}",
        path=path,
    )
