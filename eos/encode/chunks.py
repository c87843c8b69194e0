"""Merge small Arrow batches and split large ones into chunks of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from eos.errors import UsageError


def chunks(
    batches: Iterator[pa.RecordBatch],
    needed: frozenset[str],
    welcome: frozenset[str],
    bytes_max: int,
    rows_max: int,
) -> Iterator[pa.Table]:
    """Yield tables of at most `bytes_max` bytes and `rows_max` rows. A single row that is larger is
    a table of its own.

    The tables have the `needed` columns, and the `welcome` (optional) ones that exist. Each column
    of a table is one contiguous array. Raise UsageError if a needed column is missing.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _pieces(_selected(batch, needed, welcome), bytes_max, rows_max):
            full = rows + piece.num_rows > rows_max or size + piece.nbytes > bytes_max
            if held and full:
                yield pa.Table.from_batches(held).combine_chunks()
                held, rows, size = [], 0, 0
            held.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def _selected(
    batch: pa.RecordBatch, needed: frozenset[str], welcome: frozenset[str]
) -> pa.RecordBatch:
    names = batch.schema.names
    missing = sorted(needed.difference(names))
    if missing:
        column, existing = missing[0], ", ".join(names) or "none"
        raise UsageError(
            "row_column_missing",
            f"a sink needs the column {column}, but the rows have only {existing}",
            hint=f"add {column} in the last transform, or set another column in the sink",
            column=column,
        )
    return batch.select([name for name in names if name in needed or name in welcome])


def _pieces(batch: pa.RecordBatch, bytes_max: int, rows_max: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of the batch, halved until each is within both bounds or has one row."""
    if not batch.num_rows:
        return
    if batch.num_rows == 1 or (batch.num_rows <= rows_max and batch.nbytes <= bytes_max):
        yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half), bytes_max, rows_max)
    yield from _pieces(batch.slice(half), bytes_max, rows_max)
