"""In which form do the modules of dedup pass records and their verdicts to each other?

A verdict is dedup's result for one record, such as `duplicate`. `VerdictRows` is not in `policy`,
because the planner imports `policy` and must not load Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int8]  # indexes into `policy.NAMES`


@dataclass(frozen=True, slots=True)
class VerdictRows:
    """Positions, stamps and verdict codes of records; each array has one element per record."""

    codes: Codes
    topic: Any
    partition: Any
    offset: Any
    producer: Any
    epoch: Any
    sequence: Any
