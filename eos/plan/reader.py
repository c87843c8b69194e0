"""Choose the reader of the source's records: this project's Arrow reader, or Spark's Kafka source.

In both cases Spark plans the offsets of each micro-batch. With the Arrow reader, tasks fetch these
offsets themselves. That needs the native library and a stateless pipeline: a stateful query reads
its source inside Spark.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from eos.errors import UsageError

if TYPE_CHECKING:
    from eos.plan.plan import Plan

OVERRIDE = "EOS_READER"  # replaces `source.reader` of every pipeline file
ARROW_NAME, SPARK_NAME = "the Arrow reader", "Spark's Kafka source"
_KINDS = ("auto", "arrow", "spark")


@dataclass(frozen=True, slots=True)
class ReaderChoice:
    """The reader that is used, and why it is not the Arrow reader."""

    kind: Literal["arrow", "spark"]
    reason: str = ""


def foreseen(plan: Plan) -> str:
    """Return a text that names the reader of a plan, before Spark has checked the steps."""
    declared, setting = _declared(plan)
    if declared == "auto":
        return f"read by {ARROW_NAME}; by {SPARK_NAME} if a step keeps state"
    return f"read by {SPARK_NAME if declared == 'spark' else ARROW_NAME} ({setting})"


def choose_reader(plan: Plan, no_library: str) -> ReaderChoice:
    """Return the reader for a plan. Raise UsageError if `reader: arrow` is set but not possible.

    `no_library` is why the native library is missing; empty if it is not.
    """
    declared, setting = _declared(plan)
    if declared == "spark":
        return ReaderChoice("spark", setting)
    unusable = no_library
    if plan.is_stateful:
        unusable = "a step keeps state, and Spark reads the records of a stateful query itself"
    if not unusable:
        return ReaderChoice("arrow")
    if declared == "arrow":
        raise UsageError(
            "arrow_reader_unusable",
            f"{plan.names.pipeline}: {setting} is not possible: {unusable}",
            hint="remove it, or set it to `spark`; `eos doctor` describes the library",
        )
    return ReaderChoice("spark", unusable)


def _declared(plan: Plan) -> tuple[str, str]:
    """Return the declared reader, and the setting that declares it."""
    override = os.environ.get(OVERRIDE)
    if not override:
        return plan.reader, f"`source.reader: {plan.reader}`"
    if override not in _KINDS:
        raise UsageError(
            "reader_unknown",
            f"{OVERRIDE} is {override!r}; expected one of {', '.join(_KINDS)}",
            hint=f"unset {OVERRIDE}, or correct it",
        )
    return override, f"{OVERRIDE}={override}"
