"""Encode columns as Protobuf records. A row that is encoded again gives the same bytes.

A value outside of its field's range raises an error with the field's path, before any record of the
Arrow batch is passed on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import EncodeError

from eos.arrow import values_of
from eos.protobuf.arrays import binaries
from eos.protobuf.fields import Field, Fields, Label
from eos.protobuf.message import Message

# Limits of Timestamp and Duration in seconds: years 1 to 9999, and ten thousand years.
_SECONDS = {
    "TIMESTAMP": (-62_135_596_800, 253_402_300_799),
    "INTERVAL DAY TO SECOND": (-315_576_000_000, 315_576_000_000),
}
_SHOWN_MAX = 80


class UnfitError(Exception):
    """Error of a row that does not fit the message: its row number, the field's path, and why."""

    def __init__(self, row: int, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.row, self.path, self.reason = row, path, reason

    def of(self, name: str) -> UnfitError:
        return UnfitError(self.row, f"{name}.{self.path}" if self.path else name, self.reason)

    def at(self, row: int) -> UnfitError:
        return UnfitError(row, self.path, self.reason)


def write(message: Message, column: Any) -> Any:
    """Return the encoded message of each struct in an array; null for a null struct.

    Raise UnfitError for a row that does not fit the message.
    """
    kind = message.type
    encoded: list[bytes | None] = []
    for row, fields in enumerate(_messages(message.fields, column)):
        if fields is None:
            encoded.append(None)
            continue
        try:
            encoded.append(kind.SerializeToString(kind(**fields), deterministic=True))
        except (EncodeError, ValueError, TypeError) as error:
            raise UnfitError(row, "", str(error)) from error
    return binaries(encoded)


def _messages(fields: Fields, array: Any) -> list[dict[str, Any] | None]:
    """Return the fields of each row that are not null, by name; None for a null struct."""
    places = {array.type.field(at).name.lower(): at for at in range(array.type.num_fields)}
    flat, columns = array.flatten(), []
    for field in fields:
        try:
            columns.append(_column(field, flat[places[field.name.lower()]]))
        except UnfitError as error:
            raise error.of(field.name) from error
    names = [field.name for field in fields]
    found: list[dict[str, Any] | None] = [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*columns, strict=True)
    ]
    if array.null_count:
        for row, is_there in enumerate(array.is_valid().to_pylist()):
            if not is_there:
                found[row] = None
    _require_one_of(fields, found)
    return found


def _require_one_of(fields: Fields, rows: Sequence[dict[str, Any] | None]) -> None:
    """Raise UnfitError if a row sets two fields of a `oneof`; the library would keep the last."""
    choices: dict[str, list[str]] = {}
    for field in fields:
        if field.choice:
            choices.setdefault(field.choice, []).append(field.name)
    for name, among in choices.items():
        for row, values in enumerate(rows):
            present = [each for each in among if values is not None and each in values]
            if len(present) > 1:
                reason = f"expected one of `{name}`, got {' and '.join(f'`{e}`' for e in present)}"
                raise UnfitError(row, "", reason)


def _column(field: Field, array: Any) -> list[Any]:
    if pa.types.is_null(array.type):
        return [None] * len(array)
    if field.label is Label.ONE:
        return _ones(field, array)
    # The `values` of a sliced array are those of the unsliced array, so select by the offsets.
    bounds = array.offsets.to_pylist()
    first, end = bounds[0], bounds[-1]
    try:
        if field.key is None:
            inner = _required(_ones(field, array.values[first:end]), "an element")
        else:
            values = _required(_ones(field, array.items[first:end]), "a value")
            inner = list(zip(_ones(field.key, array.keys[first:end]), values, strict=True))
    except UnfitError as error:
        raise error.at(int(np.searchsorted(bounds, error.row + first, "right")) - 1) from error
    make = list if field.key is None else dict
    found = [make(inner[a - first : b - first]) for a, b in pairwise(bounds)]
    if not array.null_count:
        return found
    validity = array.is_valid().to_pylist()
    return [each if is_there else None for each, is_there in zip(found, validity, strict=True)]


def _required(values: list[Any], subject: str) -> list[Any]:
    if None in values:
        raise UnfitError(values.index(None), "", f"it contains {subject} that is null")
    return values


def _ones(field: Field, array: Any) -> list[Any]:
    if pa.types.is_null(array.type):
        return [None] * len(array)
    if field.fields:
        return _messages(field.fields, array)
    if field.sql in _SECONDS:
        return _times(field, array.cast(pa.int64()).to_pylist())
    if field.sql == "STRING":
        found = _texts(array)
        return _numbers(field, found) if field.is_enum else found
    is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    is_fast = is_number and not array.null_count
    found = values_of(array).tolist() if is_fast else array.to_pylist()
    if field.bounds is not None:
        if pa.types.is_decimal(array.type):
            found = [None if each is None else int(each) for each in found]
        _require_within(field.bounds, found)
    return found


def _require_within(bounds: tuple[int, int], found: list[Any]) -> None:
    least, greatest = bounds
    present = [each for each in found if each is not None]
    if present and (min(present) < least or max(present) > greatest):
        row = next(at for at, v in enumerate(found) if v is not None and not least <= v <= greatest)
        raise UnfitError(row, "", f"expected {least} to {greatest}, got {found[row]}")


def _texts(array: Any) -> list[Any]:
    try:
        found: list[Any] = array.to_pylist()
        return found
    except UnicodeDecodeError:
        for row, each in enumerate(array):
            try:
                each.as_py()
            except UnicodeDecodeError as error:
                raise UnfitError(row, "", "expected UTF-8 text") from error
        raise


def _numbers(field: Field, names: list[str | None]) -> list[int | None]:
    """Return the enum's number for each name.

    The decoder returns `UNKNOWN_ENUM_VALUE_...` for a number without a name. Such a text becomes
    the number again.
    """
    numbers = {
        name: each.number for name, each in field.descriptor.enum_type.values_by_name.items()
    }
    found: list[int | None] = []
    for row, name in enumerate(names):
        number = None if name is None else numbers.get(name)
        if name is not None and number is None:
            number = _stranger(field, name)
            if number is None:
                reason = f"expected a name of the enum `{field.descriptor.enum_type.full_name}`"
                raise UnfitError(row, "", f"{reason}, got {name[:_SHOWN_MAX]!r}")
            numbers[name] = number
        found.append(number)
    return found


def _stranger(field: Field, name: str) -> int | None:
    before, digits = field.enum_stranger, name.removeprefix(field.enum_stranger)
    if not name.startswith(before) or field.descriptor.enum_type.is_closed:
        return None
    if not re.fullmatch(r"-?[0-9]{1,10}", digits) or not -(1 << 31) <= int(digits) < 1 << 31:
        return None
    return int(digits)


def _times(field: Field, micros: list[int | None]) -> list[dict[str, int] | None]:
    least, greatest = _SECONDS[field.sql]
    found: list[dict[str, int] | None] = []
    for row, each in enumerate(micros):
        if each is None:
            found.append(None)
            continue
        seconds, rest = divmod(each, 1_000_000)
        if not least <= seconds <= greatest:
            reason = f"expected {least} to {greatest} seconds, got {seconds}"
            raise UnfitError(row, "", reason)
        if seconds < 0 and rest and field.sql != "TIMESTAMP":  # a duration's parts share the sign
            seconds, rest = seconds + 1, rest - 1_000_000
        found.append({"seconds": seconds, "nanos": rest * 1000})
    return found
