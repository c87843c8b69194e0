"""Where records lie, in as few columns as will do: each costs time on its way out of the JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

PARTITIONS_MAX, OFFSETS_MAX = 1 << 16, 1 << 47


def unpacked(at: Any, topics: Sequence[Any], topic: str) -> tuple[Any, Any, Any]:
    """Topic, partition and offset of each row: `at` has two of them in one number (`encode.refusal`
    says how), and `topics` is a column, or empty where all rows are of this `topic`."""
    numbers = np.asarray(at)
    names = topics[0] if topics else pa.repeat(pa.scalar(topic, pa.string()), len(numbers))
    return names, pa.array(numbers & 0xFFFF, pa.int32()), pa.array(numbers >> 16)
