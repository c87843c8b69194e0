"""What Spark plans to read: the ranges of a micro-batch, from its checkpoint.

The files are Spark's own: `metadata` (query id), `sources/0/0` (where batch 0 starts, preferred by
Spark to `startingOffsets`), `offsets/<N>` (where batch N ends) and `commits/<N>`.
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

_BATCH = re.compile(r"\d{1,19}", re.ASCII)  # a name that int() takes as Spark does
_FOLDER = re.compile(r"(\d+)(?:-\d+-\d+)?", re.ASCII)
_ASIDE = (
    "`eos recover PIPELINE --set-checkpoint-aside` goes on where the ledger ends, in a fresh one"
)


@dataclass(frozen=True, slots=True)
class Ranges:
    """What one micro-batch reads: `starts` inclusive, `ends` exclusive, the same partitions.

    A partition that this micro-batch sees first has no start here: Spark resolves it later.
    """

    starts: Offsets
    ends: Offsets

    @property
    def records_max(self) -> int:
        """An upper bound: control records and compacted ones count as well."""
        return sum(end - self.starts.get(tp, 0) for tp, end in self.ends.items())


class Checkpoint:
    """One checkpoint folder of one query with one Kafka source."""

    def __init__(self, files: Files, location: str) -> None:
        self.location = location.rstrip("/")
        self._files = files

    @property
    def name(self) -> str:
        return self.location.rpartition("/")[2]

    def query_id(self) -> str:
        return parse_query_id(*self._text("metadata"))

    def has_commits(self) -> bool:
        return self.committed() is not None

    def planned(self) -> int | None:
        """The last micro-batch that was planned. A start repeats it if it is not committed."""
        return self._last("offsets")

    def committed(self) -> int | None:
        """The last micro-batch whose end Spark has noted; one behind, if it died before."""
        return self._last("commits")

    def has_state(self) -> bool:
        """Whether the query's plan had an operator with state."""
        return bool(listed(self._files, f"{self.location}/state"))

    def ends(self, batch_id: int) -> Offsets:
        return parse_ends(*self._text(f"offsets/{batch_id}"))

    def ranges(self, batch_id: int) -> Ranges:
        ends = self.ends(batch_id)
        if batch_id == 0:
            starts = parse_starts(*self._text("sources/0/0"))
        else:
            starts = self.ends(batch_id - 1)
        return Ranges({tp: offset for tp, offset in starts.items() if tp in ends}, ends)

    def begun(self) -> frozenset[TopicPartition]:
        """The partitions that are not new to Spark: it knows where their next record is."""
        planned = self.planned()
        if planned is None:
            return frozenset()
        is_done = planned == self.committed()
        return frozenset(self.ends(planned) if is_done else self.ranges(planned).starts)

    def require_readable(self) -> None:
        """What a start will read of it, asked before Spark does: it would stop in other words."""
        self.query_id()
        planned, committed = self.planned(), self.committed()
        if committed is not None:
            parse_commit(*self._text(f"commits/{committed}"))
        if planned is not None and planned == committed:
            self.ends(planned)
        elif planned is not None:
            self.ranges(planned)

    def is_empty(self, name: str) -> bool:
        """Whether the file is there and has no content, or zero bytes only: the machine lost its
        power before the content was on its disk."""
        try:
            return not self._text(name)[0].strip("\0\r\n ")
        except PromiseBrokenError:
            return False

    def _last(self, log: str) -> int | None:
        names = listed(self._files, f"{self.location}/{log}")
        return max((int(name) for name in names if _BATCH.fullmatch(name)), default=None)

    def _text(self, name: str) -> tuple[str, str]:
        """What is in the file, and its path."""
        path = f"{self.location}/{name}"
        try:
            return self._files.read(path), path
        except (FileNotFoundError, PermissionError) as error:
            raise PromiseBrokenError(
                f"the checkpoint file {path} can't be read ({error.strerror or error})",
                hint=f"was the checkpoint moved, truncated or restored in part? {_ASIDE}",
                path=path,
                case="checkpoint_unreadable",
            ) from error
        except OSError as error:
            raise UnavailableError(
                f"the checkpoint file {path} can't be read now ({error.strerror or error})",
                hint="does its file system answer?",
                path=path,
            ) from error


def listed(files: Files, folder: str) -> list[str]:
    """What is in it; nothing if it is absent. A store that refuses or can't be reached is neither:
    a checkpoint that is there would pass for a lost one."""
    try:
        return files.names(folder)
    except OSError as error:
        is_refused = isinstance(error, PermissionError)
        raise UnavailableError(
            f"the checkpoint folder {folder} can't be listed ({error.strerror or error})",
            hint="may this user, with these credentials, list, read, write and delete there?"
            if is_refused
            else "is its address right, does its store answer, and is its bucket there? "
            "docs/checkpoints.md names the settings",
            path=folder,
        ) from error


def require_answer(files: Files, folder: str, deadline: Deadline) -> None:
    """Whether the store of the checkpoints answers at all, asked before a pipeline is taken.

    Its client repeats by settings of its own, which may last for minutes or hours and can't be
    interrupted. So it is asked by a thread that is given up: the process ends without it.
    """
    found: list[Exception | None] = []

    def ask() -> None:
        try:
            listed(files, folder)
            found.append(None)
        except Exception as error:  # noqa: BLE001 - raised below
            found.append(error)

    thread = threading.Thread(target=ask, name="eos-store", daemon=True)
    thread.start()
    seconds = deadline.left_ms / 1000
    thread.join(seconds)
    if not found:
        raise UnavailableError(
            f"the checkpoint folder {folder} can't be listed (no answer within {seconds:.0f} s, "
            "and the store's client still tries)",
            hint="is its address right, and does its store answer? docs/checkpoints.md names the "
            "settings with which its client gives up earlier, and says why",
            path=folder,
        )
    if found[0] is not None:
        raise found[0]


def newest_with_offsets(files: Files, root: str) -> tuple[str | None, str]:
    """The newest checkpoint under `root` in which a micro-batch was planned, and the next name.

    A folder without one may still hold `sources/0/0`, from a start that died between the two.
    Spark would prefer that file to `startingOffsets`, so such a folder is never used again. It
    is not `offsets/0` that tells: Spark purges the oldest files.
    """
    names = folders(files, root)
    fresh = f"{root}/{(numbered(names[-1]) if names else 0) + 1:04d}"
    for name in reversed(names):
        path = f"{root}/{name}"
        if any(_BATCH.fullmatch(name) for name in listed(files, f"{path}/offsets")):
            return path, fresh
    return None, fresh


def folders(files: Files, root: str) -> list[str]:
    """The names of the checkpoints under `root`, the oldest first."""
    found = (name for name in listed(files, root) if numbered(name))
    return sorted(found, key=lambda name: (numbered(name), name))


def numbered(name: str) -> int:
    """Of a checkpoint's name, `0007` or `0007-PRODUCER-EPOCH`; 0 if it is none."""
    found = _FOLDER.fullmatch(name)
    return int(found[1]) if found else 0


def parse_query_id(text: str, path: str) -> str:
    """`metadata`: one JSON object."""
    try:
        return parsed(text.encode()).text("id")
    except ValueError as error:
        raise _unknown(path, error) from error


def parse_ends(text: str, path: str) -> Offsets:
    """`offsets/<N>`: the version, the micro-batch's own metadata, then a line for each place of the
    plan that reads the source: the same line, since it is one source. See
    `transform/plan_check.py`."""
    lines = text.rstrip("\n").split("\n")
    if len(lines) > 3 and len(set(lines[2:])) == 1:
        text = "\n".join(lines[:3])
    return _parse(text, path, lines_expected=3)


def parse_starts(text: str, path: str) -> Offsets:
    """`sources/0/0`: the version and the offsets, after a zero byte that keeps releases of Spark
    before 2.1 from reading it."""
    return _parse(text.lstrip("\0"), path, lines_expected=2)


def parse_commit(text: str, path: str) -> None:
    """`commits/<N>`: the version, and what Spark notes of the micro-batch's end."""
    try:
        version, noted = text.rstrip("\n").split("\n")
        if version != "v1":
            raise ValueError(f"version {version[:20]!r}")
        parsed(noted.encode())
    except ValueError as error:
        raise _unknown(path, error) from error


def _parse(text: str, path: str, lines_expected: int) -> Offsets:
    """Another version, another number of sources, half a file: whatever is not exactly as this
    release knows it could mean other offsets than it seems to."""
    try:
        lines = text.rstrip("\n").split("\n")
        if lines[0] != "v1" or len(lines) != lines_expected:
            raise ValueError(
                f"{len(lines)} lines where one source has {lines_expected}, "
                f"version {lines[0][:20]!r}"
            )
        return parse_offsets(lines[-1])
    except ValueError as error:
        raise _unknown(path, error) from error


def parse_offsets(line: str) -> Offsets:
    """`{"topic": {"0": offset}}`, as Spark's Kafka source writes them. Raises a ValueError."""
    try:
        return parsed(line.encode()).topic_offsets()
    except FieldError as error:
        raise ValueError(f"not the offsets of a Kafka source: {error}") from error


def _unknown(path: str, error: Exception) -> PromiseBrokenError:
    return PromiseBrokenError(
        f"the checkpoint file {path} has a form that this release does not know ({error})",
        hint=f"was it written by another Spark version, or truncated? {_ASIDE}",
        path=path,
        case="checkpoint_unreadable",
    )
