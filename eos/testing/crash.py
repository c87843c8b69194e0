"""Crash points: the steps of a micro-batch before or after which a test can kill a run.

    crash_at("end_txn_sent")                        kills driver and JVM after EndTxn was sent
    crash_at("ledger_record", "before", "python")   kills the driver before the ledger record

begin               nothing is sent yet
first_produce       the first record batch of the micro-batch
all_acked           every record is acknowledged, nothing is committed
ledger_record       the ledger's record, in the same transaction
offsets             the source offsets, in the same transaction
end_txn_sent        the commit; `before`: not sent yet; `after`: sent, without a response
end_txn_answered    the micro-batch is committed, and Spark has not recorded it yet
commit_log          Spark's own record of the commit
"""

from __future__ import annotations

from typing import Literal

from eos.errors import UsageError
from eos.faults import MOMENTS, POINTS, VICTIMS

CRASH_POINTS = POINTS


def crash_at(
    point: str,
    moment: Literal["before", "after"] = "after",
    victim: Literal["python", "jvm", "both"] = "both",
) -> str:
    """Return the value of `EOS_CRASH_AT` with which a run is killed by SIGKILL.

    The run dies before or after `point` (`moment`), in the first micro-batch that reaches it."""
    for what, given, known in (
        ("point", point, POINTS),
        ("moment", moment, MOMENTS),
        ("victim", victim, VICTIMS),
    ):
        if given not in known:
            raise UsageError(
                "crash_point_invalid",
                f"{given!r} is not a valid crash {what}",
                hint=f"use one of {', '.join(known)}",
            )
    return f"{point}:{moment}:{victim}"
