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
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.kafka.records.varint import Ints
from eos.producers.id_text import id_text, shortened
from eos.verify.records import Records

NUMBERS_MAX = 2**62  # epochs and sequences must be below it
_NUMBER = r"^\s*[+-]?[0-9]{1,40}\s*$"


class StampPlace(Protocol):
    """The interface of `eos.dedup.stamp_columns.StampPlace`."""

    @property
    def kind(self) -> Literal["header", "value", "key"]: ...

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class StampPlaces:
    producer: StampPlace
    epoch: StampPlace
    sequence: StampPlace


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


def stamps(records: Records, offsets: Ints, places: StampPlaces) -> Stamps:
    """Return the stamps of these records. Records without a valid stamp are left out."""
    ids = _read(records, places.producer)
    epoch, sequence = (_numbers(_read(records, at)) for at in (places.epoch, places.sequence))
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


class _Written(str):
    """A JSON number in its original notation."""

    __slots__ = ()


def _in_json(value: bytes | None, path: Sequence[str]) -> bytes | None:
    try:
        found = json.loads(value or b"", parse_int=_Written, parse_float=_Written)
        for part in path:
            found = found[part]
    except (ValueError, LookupError, TypeError):
        return None
    if found is None:
        return None
    text = found if isinstance(found, str) else json.dumps(found, separators=(",", ":"))
    return text.encode(errors="replace")


def _numbers(texts: Any) -> Ints:
    """Return each number; -1 if it is malformed or out of range."""
    found = np.full(len(texts), -1, np.int64)
    is_number = pc.fill_null(pc.match_substring_regex(texts, _NUMBER), False)
    rows = np.flatnonzero(np.asarray(is_number))
    if len(rows):
        encoded = pc.dictionary_encode(texts.filter(is_number))
        numbers = (int(each) for each in encoded.dictionary.to_pylist())  # once per text
        table = np.array([n if 0 <= n < NUMBERS_MAX else -1 for n in numbers], np.int64)
        found[rows] = table[np.asarray(encoded.indices)]
    return found
