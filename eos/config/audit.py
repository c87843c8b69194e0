"""What a profile may say of the audit table."""

from __future__ import annotations

from pydantic import Field

from eos.config.base import Strict


class AuditProfile(Strict):
    """`transactions`: a Delta table under the state root with what became of every attempt.

    `behind_max`: so many attempts may be missing in it before the pipeline stops.
    """

    transactions: bool = True
    behind_max: int = Field(default=1000, ge=1)
