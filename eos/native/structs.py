"""The structs of the native library for ctypes: the same as in `decode.c`, `encode.c`,
`dedup.c`, `json.c` and `json_write.c`.

All fields have 64 bits. A pointer is an address, and the caller must keep its buffer alive.
"""

from __future__ import annotations

import ctypes
from typing import Any

HEADER_COST = 8  # bytes that a header adds to its row's size, in addition to its name and value
# Results of `eos_decode`.
DONE, FULL, TOO_LARGE, NEEDS_HEADERS = range(4)
# Results of the encoding functions if they fail. A negative result means an invalid column.
NULL_NAME, NEEDS_ROOM, NOT_PLAIN = 1, 2, 3
PLACES = 6  # numbers that `eos_count` needs for each target

_REASONS = (
    "a record is shorter than its fields",
    "a number of more than 64 bits",
    "a record or the record batch is longer than its content",
    "an impossible number of headers",
    "a header without a name",
    "an offset outside of the record batch",
)


def reason(error: int) -> str:
    """Return the text for an error number of `eos_decode`: why it rejected the bytes."""
    return _REASONS[error - 1]


class Column(ctypes.Structure):
    """The Arrow buffers of a binary column, into which `eos_decode` writes."""

    _fields_ = (
        ("offsets", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("valid", ctypes.c_void_p),
        ("used", ctypes.c_int64),
        ("nulls", ctypes.c_int64),
    )


class Decoder(ctypes.Structure):
    """The state of `eos_decode`: a record batch, the columns, and the progress in both."""

    _fields_ = (
        ("records", ctypes.c_void_p),
        ("length", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("base_offset", ctypes.c_int64),
        ("delta_max", ctypes.c_int64),
        ("first_ms", ctypes.c_int64),
        ("append_ms", ctypes.c_int64),
        ("is_append_time", ctypes.c_int64),
        ("start", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("at", ctypes.c_int64),
        ("done", ctypes.c_int64),
        ("rows_max", ctypes.c_int64),
        ("bytes_max", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("key", Column),
        ("value", Column),
        ("offset", ctypes.c_void_p),
        ("timestamp", ctypes.c_void_p),
        ("timestamp_type", ctypes.c_void_p),
        ("list", ctypes.c_void_p),
        ("list_valid", ctypes.c_void_p),
        ("name", Column),
        ("header_value", Column),
        ("headers", ctypes.c_int64),
        ("rows_with_headers", ctypes.c_int64),
        ("has_wide_names", ctypes.c_int64),
        ("record_bytes", ctypes.c_int64),
        ("error", ctypes.c_int64),
    )


class Source(ctypes.Structure):
    """The Arrow buffers of a binary column, from which the encoding functions read."""

    _fields_ = (
        ("offsets", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("valid", ctypes.c_void_p),
        ("first_bit", ctypes.c_int64),
        ("rows", ctypes.c_int64),
    )


class Sorted(ctypes.Structure):
    """A binary column whose rows `eos_group` has sorted by target partition."""

    _fields_ = (
        ("lengths", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_int64),
    )


class Grouping(ctypes.Structure):
    """The state of `eos_count` and `eos_group`: columns, and the same columns sorted by target."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("targets", ctypes.c_int64),
        ("target", ctypes.c_void_p),
        ("key", Source),
        ("value", Source),
        ("timestamps", ctypes.c_void_p),
        ("header_counts", ctypes.c_void_p),
        ("first_name", ctypes.c_void_p),
        ("first_text", ctypes.c_void_p),
        ("name", Source),
        ("text", Source),
        ("places", ctypes.c_void_p),
        ("headers", ctypes.c_int64),
        ("order", ctypes.c_void_p),
        ("sorted_key", Sorted),
        ("sorted_value", Sorted),
        ("sorted_timestamps", ctypes.c_void_p),
        ("sorted_counts", ctypes.c_void_p),
        ("sorted_first", ctypes.c_void_p),
        ("sorted_name", Sorted),
        ("sorted_text", Sorted),
    )


class Encoder(ctypes.Structure):
    """The state of `eos_measure` and `eos_write`: sorted columns, and one record batch."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("key", Sorted),
        ("value", Sorted),
        ("timestamps", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("first", ctypes.c_void_p),
        ("name", Sorted),
        ("text", Sorted),
        ("sizes", ctypes.c_void_p),
        ("start", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("out", ctypes.c_void_p),
        ("out_capacity", ctypes.c_int64),
        ("out_size", ctypes.c_int64),
    )


class Field(ctypes.Structure):
    """The address and length of a byte string."""

    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_int64))


class Stamping(ctypes.Structure):
    """The state of `eos_stamps`: record headers, and the stamps that are read from them.

    Arrays have one element each for id, epoch and sequence."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("lists", ctypes.c_void_p),
        ("name", Source),
        ("value", Source),
        ("wanted", Field * 3),
        ("valid", ctypes.c_void_p * 3),
        ("nulls", ctypes.c_int64 * 3),
        ("id_offsets", ctypes.c_void_p),
        ("id_data", ctypes.c_void_p),
        ("id_bytes", ctypes.c_int64),
        ("numbers", ctypes.c_void_p * 3),
    )


class Numbering(ctypes.Structure):
    """The state of `eos_number`: a hash table of ids, and the ids whose numbers are looked up."""

    _fields_ = (
        ("slots", ctypes.c_void_p),
        ("slot_count", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("known", Source),
        ("indexed", ctypes.c_int64),
        ("ids", Source),
        ("is_adding", ctypes.c_int64),
        ("numbers", ctypes.c_void_p),
        ("firsts", ctypes.c_void_p),
        ("added", ctypes.c_int64),
    )


class JsonColumn(ctypes.Structure):
    """The Arrow buffers of a column, into which `eos_json` writes a field of JSON objects."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("name_length", ctypes.c_int64),
        ("kind", ctypes.c_int64),
        ("is_required", ctypes.c_int64),
        ("precision", ctypes.c_int64),
        ("scale", ctypes.c_int64),
        ("values", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
        ("used", ctypes.c_int64),
        ("valid", ctypes.c_void_p),
        ("nulls", ctypes.c_int64),
        ("is_found", ctypes.c_int64),
        ("is_set", ctypes.c_int64),
    )


class JsonReader(ctypes.Structure):
    """The state of `eos_json`: a column of JSON texts, and the columns for their fields."""

    _fields_ = (
        ("texts", Source),
        ("columns", ctypes.POINTER(JsonColumn)),
        ("column_count", ctypes.c_int64),
        ("powers", ctypes.c_void_p),
        ("first_power", ctypes.c_int64),
        ("power_count", ctypes.c_int64),
        ("is_left", ctypes.c_void_p),
        ("left", ctypes.c_int64),
    )


class WrittenColumn(ctypes.Structure):
    """The Arrow buffers of a column that `eos_json_write` writes as a field of JSON objects."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("name_length", ctypes.c_int64),
        ("kind", ctypes.c_int64),
        ("texts", Source),
        ("values", ctypes.c_void_p),
        ("first_bit", ctypes.c_int64),
        ("valid", ctypes.c_void_p),
        ("first_valid_bit", ctypes.c_int64),
    )


class JsonWriter(ctypes.Structure):
    """The input of `eos_json_write`, and the memory for its JSON objects."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("valid", ctypes.c_void_p),
        ("first_valid_bit", ctypes.c_int64),
        ("before", ctypes.c_char_p),
        ("before_length", ctypes.c_int64),
        ("columns", ctypes.POINTER(WrittenColumn)),
        ("column_count", ctypes.c_int64),
        ("offsets", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
    )


def address(array: Any) -> int:
    """Return the memory address of a numpy array. The caller must keep the array alive."""
    return int(array.__array_interface__["data"][0])
