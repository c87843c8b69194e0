"""Stamps (producer id, epoch, sequence) that the upstream gave to source records.

Stamps are read by the same rules as in dedup, but from record batches and without Spark. A producer
id becomes a 64-bit hash, so a record takes 32 bytes. Among a million producers, two have the same
hash with a probability of 3 in a hundred million.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.dedup.header_stamps import numbers
from eos.dedup.stamp_columns import StampPlace, StampRules
from eos.kafka.records.varint import Ints
from eos.producers.id_text import id_text, shortened
from eos.verify.records import Records

NUMBERS_MAX = 2**62  # epochs and sequences must be below it


@dataclass(frozen=True, slots=True)
class Stamps:
    """Stamps of source records, in the order of offsets: one array element per record.

    Records without a valid stamp are left out.
    """

    producer: Ints  # a hash
    epoch: Ints
    sequence: Ints
    offset: Ints

    def __len__(self) -> int:
        return len(self.offset)

    def where(self, rows: Any) -> Stamps:
        return Stamps(self.producer[rows], self.epoch[rows], self.sequence[rows], self.offset[rows])


def joined(parts: Sequence[Stamps]) -> Stamps:
    none = np.zeros(0, np.int64)
    names = ("producer", "epoch", "sequence", "offset")
    return Stamps(*(np.concatenate([none, *(getattr(p, n) for p in parts)]) for n in names))


def stamps(records: Records, offsets: Ints, rules: StampRules) -> Stamps:
    """Return the stamps of these records. Records without a valid stamp are left out."""
    ids = _read(records, rules.producer)
    epoch, sequence = (_numbers(_read(records, at)) for at in (rules.epoch, rules.sequence))
    is_there = np.asarray(pc.is_valid(ids)) & (epoch >= 0) & (sequence >= 0)
    found = Stamps(hashes(ids), epoch, sequence, offsets)
    return found.where(is_there)


def hashes(producers: Any) -> Ints:
    """Return the hash of each producer id; an arbitrary number for null."""
    encoded = pc.dictionary_encode(producers)
    known = [hash_of(id_text(each)) for each in encoded.dictionary.to_pylist()]
    table = np.array([*known, 0], np.int64)
    at: Ints = table[np.asarray(encoded.indices.fill_null(len(known)))]
    return at


def hash_of(producer: str) -> int:
    """Return the hash of a producer id, given as text like in the ledger.

    Ledger records of older releases have long ids in full."""
    digest = hashlib.blake2b(shortened(producer).encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)


def _read(records: Records, place: StampPlace) -> Any:
    """Return, for each record, the bytes of the header, key or JSON field `place`; else null."""
    if place.kind == "key":
        return _nulls(records.keys)
    if place.kind == "header":
        return header(records, place.name.encode())
    parts = place.name.split(".")
    values = _nulls(records.values)
    return pa.array([_in_json(each, parts) for each in values.to_pylist()], pa.binary())


def _nulls(blobs: Any) -> Any:
    """Return the byte strings as an Arrow array; a negative length becomes null."""
    rows = np.arange(len(blobs.lengths), dtype=np.int64)
    at = pa.array(rows, mask=np.asarray(blobs.lengths) < 0)
    if blobs.array is None:
        return pa.array([None if length < 0 else b"" for length in blobs.lengths], pa.binary())
    return blobs.array.take(at)


def header(records: Records, name: bytes) -> Any:
    """Return the value of each record's last header of this name, as `Headers.lastHeader` does."""
    count = len(records.keys.lengths)
    headers = records.headers
    if headers is None or headers.keys.array is None or headers.values.array is None:
        return pa.nulls(count, pa.binary())
    named = np.flatnonzero(np.asarray(pc.equal(headers.keys.array, pa.scalar(name, pa.binary()))))
    row = np.searchsorted(headers.first, named, side="right") - 1
    at = np.full(count, -1, np.int64)
    np.maximum.at(at, row, named)
    is_none = at < 0
    at[is_none] = 0
    is_none |= np.asarray(headers.values.lengths)[at] < 0
    return headers.values.array.take(pa.array(at, mask=is_none))


class _Number(str):
    """A JSON number in its original notation."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """The fields of a JSON object, in their order. A name may occur more than once."""


def _in_json(value: bytes | None, path: Sequence[str]) -> bytes | None:
    """Return the field as Spark's `get_json_object` does; None if it is missing."""
    text = (value or b"").decode(errors="replace")
    try:
        found = json.loads(text, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Object)
    except (ValueError, RecursionError):
        return None
    found = _field(found, path)
    if found is None:
        return None
    written = found if isinstance(found, str) else _json(found)
    return written.encode(errors="replace")


def _field(value: Any, path: Sequence[str]) -> Any:
    """Return the first field with this path that is not null."""
    if not path:
        return value
    fields = value if isinstance(value, _Object) else ()
    found = (_field(each, path[1:]) for name, each in fields if name == path[0])
    return next((each for each in found if each is not None), None)


def _json(value: Any) -> str:
    if isinstance(value, _Number):
        return value
    if isinstance(value, _Object):
        return "{" + ",".join(f"{_json(name)}:{_json(each)}" for name, each in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _numbers(texts: Any) -> Ints:
    """Return each number; -1 if it is malformed or out of range."""
    found: Ints = np.asarray(numbers(texts).fill_null(-1))
    return np.where((found >= 0) & (found < NUMBERS_MAX), found, -1)
