"""Group the rows of a chunk by their target partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from eos.kafka.records.columns import Columns
from eos.kafka.records.native_rows import NativeRows
from eos.kafka.records.sizes import Layout, numpy_layout
from eos.kafka.records.varint import Ints
from eos.native import library


class Group(NamedTuple):
    """The records of one target partition: rows `start` to `end` (exclusive) of the sorted rows.

    `target` is the partition's index in the caller's list of target partitions.
    """

    target: int
    start: int
    end: int


class GroupedRows(NamedTuple):
    """Records sorted by target partition. The records of one partition keep their order."""

    rows: Layout | NativeRows
    groups: list[Group]
    order: Ints | None  # index of each record in the unsorted rows; None: same order


def grouped(columns: Columns, targets: Ints, base_timestamp_ms: int) -> GroupedRows:
    """Sort rows by their target partition. `targets` has the index of each row's target partition.

    The result is the same with and without the native library.
    """
    native = library.load()
    if native is None or not len(targets):
        order, of_record = _sorted(targets)
        ordered = columns if order is None else columns.take(order)
        return GroupedRows(
            numpy_layout(ordered, base_timestamp_ms), list(_groups(of_record)), order
        )
    first, last = int(targets.min()), int(targets.max())
    rows = NativeRows(native, columns, base_timestamp_ms, targets - first, last - first + 1)
    ends = rows.target_ends
    starts = np.concatenate([ends[:1] * 0, ends[:-1]])
    groups = [
        Group(first + target, int(starts[target]), int(ends[target]))
        for target in np.flatnonzero(ends > starts).tolist()
    ]
    return GroupedRows(rows, groups, rows.order)


def _sorted(targets: Ints) -> tuple[Ints | None, Ints]:
    """Return a stable order of the rows by target, and the targets in that order.

    The order is None if all rows have the same target.
    """
    if not len(targets) or targets[0] == targets[-1] == targets.max() == targets.min():
        return None, targets
    small = targets.astype(np.uint16) if targets.max() < 1 << 16 else targets  # faster to sort
    order = np.argsort(small, kind="stable")
    return order, targets[order]


def _groups(targets: Ints) -> Iterator[Group]:
    """Yield one group per target. `targets` are those of the sorted rows."""
    starts = np.flatnonzero(np.diff(targets, prepend=-1))
    ends = np.append(starts[1:], len(targets))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield Group(int(targets[start]), start, end)
