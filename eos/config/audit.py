"""Which settings does a profile have for the audit table?"""

from __future__ import annotations

from pydantic import Field

from eos.config.base import Strict


class AuditProfile(Strict):
    """The audit table.

    `transactions`: a Delta table under the state root with the outcome of every attempt.

    `behind_max`: the pipeline begins no attempt while the table lags by this number of attempts.
    """

    transactions: bool = True
    behind_max: int = Field(default=1000, ge=1)
