"""Records with what was decided of each. Not in `policy`: who plans reads that without Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int8]  # `policy.NAMES` by place


@dataclass(frozen=True, slots=True)
class VerdictRows:
    """Records with what was decided of them: Arrow arrays, as long as `codes`."""

    codes: Codes
    topic: Any
    partition: Any
    offset: Any
    producer: Any
    epoch: Any
    sequence: Any
