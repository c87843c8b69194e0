"""What would an option of `eos recover` change in the pipeline's position?

A change has the old and new values, their consequences, and the note for the ledger.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from eos.inspect.snapshot import Snapshot, names_of
from eos.kafka.api import TopicPartition
from eos.ledger import group_offsets as group
from eos.ledger.record import Ends, Position, TableState
from eos.location import local_path
from eos.plan.delta_sink import Table

if TYPE_CHECKING:
    from eos.delta.restore import TableRestore

_SHOWN_MAX = 50

# Old and new offset of each partition whose offset changes; None: it has none.
Moves = Mapping[TopicPartition, tuple[int | None, int | None]]


class LostOffsets(NamedTuple):
    """Offsets that were deleted before the pipeline read them."""

    partition: TopicPartition
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """A proposed change of the pipeline's position in the ledger.

    `after` is the new position; None if nothing is written to Kafka. `group` has the group's
    offsets now; None if an open transaction hides them. `remarks` has sentences for the operator.
    `restores` are applied before `after` is written, which has the tables' states after them. If
    `after` and `renames` are empty, there is nothing to do, and `remarks` has the reason.
    """

    verb: str
    before: Position
    after: Position | None = None
    group: Ends | None = None
    remarks: Sequence[str] = ()
    lost: Sequence[LostOffsets] = ()
    renames: Sequence[tuple[str, str]] = ()
    restores: Sequence[TableRestore] = ()
    foreign_until: int = 0  # foreign ledger records below this offset are handled by this change

    @property
    def is_nothing(self) -> bool:
        return self.after is None and not self.renames

    @property
    def ends(self) -> Moves:
        return {} if self.after is None else moves(self.before.ends, self.after.ends)

    @property
    def group_moves(self) -> Moves:
        """Return the group offsets that change; empty if an open transaction hides them.

        Offsets of partitions that the new position lacks are kept."""
        if self.after is None or self.group is None:
            return {}
        unchanged = {tp: offset for tp, offset in self.group.items() if tp in self.after.ends}
        return moves(unchanged, self.after.ends)

    @property
    def topic_ids(self) -> Mapping[str, tuple[str | None, str | None]]:
        if self.after is None:
            return {}
        old, new = self.before.topic_ids, self.after.topic_ids
        names = sorted(old.keys() | new.keys())
        return {
            name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)
        }

    @property
    def takes_fresh(self) -> bool:
        return self.after is not None and self.after.is_reset and not self.before.is_reset

    def _undone(self) -> Ends:
        """Return the ledger's offsets of the partitions whose group offset would be moved back.

        There, the group is ahead of the ledger, because another client moved it."""
        if self.after is None or self.after == self.before:
            return {}
        ahead = group.ahead(group.differing(self.before.ends, self.group or {}))
        return {tp: end for tp, (_, end) in ahead.items() if tp in self.group_moves}

    def lines(self) -> list[str]:
        found = [
            *_moved("ledger", self.ends),
            *_moved("group", self.group_moves),
            *(
                f"topic id  {name}  {_or_none(a)} -> {_or_none(b)}"
                for name, (a, b) in self.topic_ids.items()
            ),
            *(f"rename  {old} -> {new}" for old, new in self.renames),
            *(each.line() for each in self.restores),
        ]
        if self.after is not None and self.group is None:
            found.append("group  hidden by an open transaction; it gets the ledger's ends")
        ahead = self._undone()
        if ahead:
            found.append(
                f"group  another client moved {names_of(ahead)} ahead; to keep these offsets, use "
                "--from-group first"
            )
        if self.takes_fresh:
            found.append("checkpoint  the next run creates a fresh one at the ledger's ends")
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "verb": self.verb,
            "ends": _nested(self.ends),
            "group": _nested(self.group_moves),
            "topic_ids": {name: list(pair) for name, pair in self.topic_ids.items()},
            "fresh_checkpoint": self.takes_fresh,
            "renames": [list(pair) for pair in self.renames],
            "lost": [
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "from": each.start,
                    "to": each.end,
                    "count": each.end - each.start,
                }
                for each in self.lost
            ],
            "says": list(self.remarks),
            **({"restores": [each.as_json() for each in self.restores]} if self.restores else {}),
            **({"foreign_until": self.foreign_until} if self.foreign_until else {}),
        }

    def note(self, why: str) -> dict[str, Any]:
        """Return the note for the ledger's recovery record: user, time, reason and the change."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return {"by": _operator(), "at": now, "why": _text(why), **self.as_json()}


def _text(argument: str) -> str:
    """Return a word of the command line, whose bytes need not be text, as Unicode."""
    return argument.encode(errors="replace").decode()


Verb = Callable[[Snapshot], LedgerChange]


def no_change(verb: str, before: Position, reason: str) -> LedgerChange:
    return LedgerChange(verb, before, remarks=[reason])


def moves(before: Ends, after: Ends) -> Moves:
    every = sorted(before.keys() | after.keys())
    found = {tp: (before.get(tp), after.get(tp)) for tp in every}
    return {tp: pair for tp, pair in found.items() if pair[0] != pair[1]}


def consequences(
    view: Snapshot,
    moved: Moves,
    tables: Mapping[str, TableState] | None = None,
    *,
    restores: bool = False,
) -> list[str]:
    """Return sentences for the operator about offsets that are skipped or read again.

    `tables` has the Delta tables' states at the new position, as far as they are known. `restores`:
    the change itself restores the tables.
    """
    skipped = {
        tp: b - a for tp, (a, b) in moved.items() if a is not None and b is not None and b > a
    }
    repeated = {
        tp: a - b for tp, (a, b) in moved.items() if a is not None and b is not None and b < a
    }
    found = []
    if skipped:
        found.append(
            f"{sum(skipped.values()):,} offsets of {names_of(skipped)} are skipped: this pipeline "
            "will not read them"
        )
    if repeated:
        targets = ", ".join(view.planned.sink_topics)
        found.append(
            f"{sum(repeated.values()):,} offsets of {names_of(repeated)} are read again"
            + (f": their output is written a second time to {targets}" if targets else "")
        )
        known, affected = tables or {}, () if restores else view.planned.tables
        found += [_table_effect(view, each, known.get(each.name)) for each in affected]
    return found


def _table_effect(view: Snapshot, table: Table, then: TableState | None) -> str:
    """Return a sentence about a table that receives rows again, and how to prevent that. `then` is
    its state at the new position, if it is known."""
    effect = "receives those rows a second time"
    if table.keys:
        effect = "is merged with those rows again, and may show older values until that ends"
    remedy = "delete the rows there, or RESTORE the table and accept it with --accept-table"
    if then is not None:
        offer = "add --restore-tables, or " if local_path(table.path) is not None else ""
        remedy = (
            f"to restore it to its version at that position, {offer}run RESTORE TABLE "
            f"delta.`{table.path}` TO VERSION AS OF {then.version}, which also undoes later writes "
            f"of others, and then `eos recover {view.name} --accept-table {table.name} --yes`"
        )
    return f"the Delta table {table.name} ({table.path}) {effect}: {remedy}"


def _moved(subject: str, moved: Moves) -> list[str]:
    lines = [
        f"{subject}  {tp}  {_or_none(a)} -> {_or_none(b)}"
        for tp, (a, b) in list(moved.items())[:_SHOWN_MAX]
    ]
    if len(moved) > _SHOWN_MAX:
        lines.append(f"{subject}  and {len(moved) - _SHOWN_MAX} more partitions (--json has all)")
    return lines


def _or_none(value: object) -> str:
    return "nothing" if value is None else str(value)


def _nested(moved: Moves) -> dict[str, Any]:
    """Return the moves as JSON: `{topic: {"0": [before, after]}}`."""
    pairs: dict[str, Any] = {}
    for (topic, partition), pair in sorted(moved.items()):
        pairs.setdefault(topic, {})[str(partition)] = list(pair)
    return pairs


def _operator() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
