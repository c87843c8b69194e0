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
    if plan.is_dataframe:
        unusable = "the rows come from a DataFrame of the job"
    elif plan.is_stateful:
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


def require_tokens(plan: Plan, choice: ReaderChoice, *, is_one_machine: bool) -> None:
    """Raise UsageError if Spark's executors would need tokens that only the driver's machine has.

    Spark's Kafka source on another machine can neither call a Python function nor follow a file
    that changes (`plan/java_login.py`). With Delta tables a startup may read with that source, too.
    """
    security = plan.source_connection.security
    oauth = None if security is None else security.oauth
    if oauth is None or not oauth.is_local or is_one_machine:
        return
    if choice.kind == "arrow" and not plan.tables:
        return
    source = "token_file" if oauth.token_file is not None else "callback"
    why = "the pipeline writes Delta tables" if choice.kind == "arrow" else choice.reason
    raise UsageError(
        "token_source_local",
        f"{plan.names.pipeline}: Spark's Kafka source on other machines can't get the tokens of "
        f"`kafka.security.oauth.{source}`, but may have to read ({why})",
        hint="use `token_endpoint`, which each machine can ask; or set `java_class` to a Java "
        "class that provides the tokens; or run with a local master (docs/logins.md)",
    )


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
