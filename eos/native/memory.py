"""A pool of large memory blocks, each of which is reused as soon as nothing refers to it.

Writing into new memory takes longer than the computations of the native library, because the
operating system clears each page at its first use.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

ALIGNMENT = 64
_SMALL_BYTES = 1 << 16  # malloc itself uses such memory again
_BLOCKS_MAX = 6
_BLOCK_BYTES_MAX = 32 << 20  # larger memory is rare, and is not kept
_BYTES_MAX = 32 << 20  # of all blocks; pages that were never used take no memory


class Pool:
    """Blocks of memory. A block is free once the leased array and all buffers on it are gone."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Any, weakref.ref[Any]]] = []
        self._lock = threading.Lock()

    def lease(self, size: int) -> Any:
        """Return a numpy array of `size` bytes that begins at a multiple of `ALIGNMENT`.

        The lease lasts as long as this array itself. `pyarrow.py_buffer` keeps it, but a slice
        made by numpy does not.
        """
        if not _SMALL_BYTES <= size <= _BLOCK_BYTES_MAX:
            return _aligned(np.empty(size + ALIGNMENT, np.uint8), size)
        with self._lock:
            block = self._free(size)
            if block is None:
                block = np.empty(size + ALIGNMENT, np.uint8)
            lease = _aligned(block, size)
            self._blocks.append((block, weakref.ref(lease)))
            self._forget_old()
        return lease

    def _free(self, size: int) -> Any:
        """Remove a free block of at least this size from the pool and return it; else None.

        A block of more than about twice the size is not used."""
        for index, (block, lease) in enumerate(self._blocks):
            if lease() is None and size + ALIGNMENT <= len(block) <= 2 * size + (1 << 20):
                del self._blocks[index]
                return block
        return None

    def _forget_old(self) -> None:
        """Forget the oldest blocks, above the limits of the pool.

        Python frees the memory of such a block when nothing refers to it."""
        total = sum(len(block) for block, _ in self._blocks)
        while len(self._blocks) > _BLOCKS_MAX or total > _BYTES_MAX:
            block, _ = self._blocks.pop(0)
            total -= len(block)


def _aligned(block: Any, size: int) -> Any:
    skipped = -block.__array_interface__["data"][0] % ALIGNMENT
    return block[skipped : skipped + size]


def layout(sizes: tuple[int, ...]) -> tuple[list[int], int]:
    """Return where aligned parts of these sizes begin in one block, and the block's size."""
    starts, total = [], 0
    for size in sizes:
        starts.append(total)
        total += -(-size // ALIGNMENT) * ALIGNMENT
    return starts, total


POOL = Pool()  # of this process
