"""Compute Kafka's murmur2 hash of all keys in a column.

The native library hashes one key after another. Without it, each round of numpy calls hashes four
bytes of all keys that are not complete. A round for few keys takes as long as a round for many. So
when only a few long keys are left, Python completes each of them on its own.
"""

from __future__ import annotations

import numpy as np

from eos.kafka.records.varint import Ints
from eos.native import library
from eos.native.structs import address

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_LONG_KEY_WORDS = 1 << 14  # words of a long key that are converted to Python numbers at a time
_FEW = 64  # a round of numpy calls takes about as long as 64 steps in Python


def murmur2(data: Ints, starts: Ints, lengths: Ints) -> Ints:
    """Return the hash of each key `data[start : start + length]`.

    Each hash is a uint32 with the bits of Java's Utils.murmur2."""
    native = library.load()
    if native is None:
        return numpy_murmur2(data, starts, lengths)
    data = np.ascontiguousarray(data, np.uint8)
    starts, lengths = (np.ascontiguousarray(each, np.int64) for each in (starts, lengths))
    hashes: Ints = np.empty(len(lengths), np.uint32)
    result = native.eos_murmur2(
        address(data), len(data), address(starts), address(lengths), len(lengths), address(hashes)
    )
    if result:
        raise ValueError("a key is outside of the column's bytes")
    return hashes


def numpy_murmur2(data: Ints, starts: Ints, lengths: Ints) -> Ints:
    words = lengths >> 2
    order = _longest_first(words)
    if order is not None:
        starts, lengths, words = starts[order], lengths[order], words[order]
    starts = starts.astype(np.int64, copy=False)
    state: Ints = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    _hash_words(data, starts, words, state)
    _last_bytes(data, starts, lengths, state)
    state ^= state >> 13
    state *= np.uint32(_M)
    state ^= state >> 15
    if order is None:
        return state
    result: Ints = np.empty_like(state)
    result[order] = state
    return result


def _longest_first(words: Ints) -> Ints | None:
    """Return the row numbers, longest keys first; None if all keys have the same number of words.

    In this order, the keys that are not completely hashed yet are always the first ones."""
    longest = int(words.max()) if len(words) else 0
    if not len(words) or longest == words.min():
        return None
    missing = longest - words
    # numpy sorts 16-bit numbers with a radix sort, several times faster.
    return np.argsort(missing.astype(np.uint16) if longest < 1 << 16 else missing, kind="stable")


def _hash_words(data: Ints, starts: Ints, words: Ints, state: Ints) -> None:
    longest = int(words[0]) if len(words) else 0
    if not longest:
        return
    # View a little-endian word at every byte position, because keys begin at any position.
    every = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    descending = -words
    for done in range(longest):
        running = int(np.searchsorted(descending, -done, side="left"))
        if running <= _FEW:
            for row in range(running):
                count = int(words[row]) - done
                state[row] = _long_key(every, int(starts[row]) + 4 * done, count, int(state[row]))
            return
        mixed = _mix(every[starts[:running] + 4 * done])
        active = state[:running]
        active *= np.uint32(_M)
        active ^= mixed


def _mix(word: Ints) -> Ints:
    word = word * np.uint32(_M)  # a copy, so that the keys stay unchanged
    word ^= word >> 24
    word *= np.uint32(_M)
    return word


def _long_key(every: Ints, start: int, count: int, state: int) -> int:
    for done in range(0, count, _LONG_KEY_WORDS):
        first = start + 4 * done
        words = every[first : first + 4 * min(_LONG_KEY_WORDS, count - done) : 4]
        for word in _mix(words).tolist():
            state = (state * _M & _MASK) ^ word
    return state


def _last_bytes(data: Ints, starts: Ints, lengths: Ints, state: Ints) -> None:
    left = lengths & 3
    ends = starts + (lengths - left)
    for byte in (2, 1, 0):
        rows = np.flatnonzero(left > byte)
        if len(rows):
            state[rows] ^= data[ends[rows] + byte].astype(np.uint32) << (8 * byte)
    rows = np.flatnonzero(left)
    state[rows] *= np.uint32(_M)
