"""How are records and their verdicts passed between the modules of dedup?

This is not part of `policy`, because planning imports `policy` without loading Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int8]  # indexes into `policy.NAMES`


@dataclass(frozen=True, slots=True)
class VerdictRows:
    """Records and their verdict codes: Arrow arrays of the same length as `codes`."""

    codes: Codes
    topic: Any
    partition: Any
    offset: Any
    producer: Any
    epoch: Any
    sequence: Any
