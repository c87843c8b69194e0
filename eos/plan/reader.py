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
    """The reader that is used, and the reason for the choice."""

    kind: Literal["arrow", "spark"]
    reason: str

    def __str__(self) -> str:
        return f"{ARROW_NAME if self.kind == 'arrow' else SPARK_NAME}: {self.reason}"


def foreseen(plan: Plan) -> str:
    """Return a text that names the reader of a plan, before Spark has checked the steps."""
    if plan.reader == "spark":
        return f"read by {SPARK_NAME} (`source.reader: spark`)"
    if plan.reader == "arrow":
        return f"read by {ARROW_NAME} (`source.reader: arrow`)"
    return f"read by {ARROW_NAME}; by {SPARK_NAME} if a step keeps state"


def choose_reader(plan: Plan, no_library: str) -> ReaderChoice:
    """Return the reader for a plan. Raise UsageError if `reader: arrow` is set but not possible.

    `no_library` is why the native library is missing; empty if it is not.
    """
    declared = os.environ.get(OVERRIDE) or plan.reader
    if declared not in _KINDS:
        raise UsageError(
            "reader_unknown",
            f"{OVERRIDE} is {declared!r}; expected one of {', '.join(_KINDS)}",
            hint=f"unset {OVERRIDE}, or correct it",
        )
    if declared == "spark":
        return ReaderChoice("spark", "`source.reader: spark`")
    unusable = no_library
    if plan.is_stateful:
        unusable = "a step keeps state, and Spark reads the records of a stateful query itself"
    if not unusable:
        return ReaderChoice("arrow", "Spark plans the offsets, and tasks fetch the records")
    if declared == "arrow":
        raise UsageError(
            "arrow_reader_unusable",
            f"{plan.names.pipeline}: `source.reader: arrow` is not possible: {unusable}",
            hint="remove the key, or set `reader: spark`; `eos doctor` describes the library",
        )
    return ReaderChoice("spark", unusable)
