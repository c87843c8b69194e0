"""Why a Spark job failed, in our words: what a task raised, or what Spark says in its place."""

from __future__ import annotations

from eos.errors import AttemptFailedError, EosError, PromiseBrokenError, TransformError
from eos.run.java_client_errors import avro_refusal, source_refusal
from eos.seal import crossed
from eos.spark.failure import Failure, Link

_NOT_PYTHONS = ("at ", "File ", "org.", ": org.", "Caused by", "py4j.")
_LOST = ("most recent failure reason:", "most recent failure:")
_ADVICE = " Consider setting "
_DATA_LOSS = "KAFKA_DATA_LOSS"
_OUT_OF_RANGE = "org.apache.kafka.clients.consumer.OffsetOutOfRangeException"
# SQLSTATE of what an expression can't compute of a value: each attempt would meet it again.
_DATA_EXCEPTION, _UNSPECIFIC = "22", "22000"
# What an executor lacks, and may have when the next attempt runs on another one.
_SETUP = {
    "PYTHON_VERSION_MISMATCH": "PYSPARK_PYTHON names the executors' Python: docs/clusters.md",
    "Cannot run program": "PYSPARK_PYTHON names the executors' Python: docs/clusters.md",
    "ModuleNotFoundError": "what a function imports has to travel to the executors, too: "
    "docs/clusters.md",
}


def task_error(failure: Failure) -> EosError:
    """Return the error that a task raised, if it is one of ours. Any other failure may pass: it
    becomes an AttemptFailedError."""
    found = crossed(failure.text)
    if found is not None:
        return found
    final = (
        data_loss(failure)
        or source_refusal(failure)
        or avro_refusal(failure)
        or _data_exception(failure)
    )
    if final is not None:
        return final
    words = _last_words(failure.text)
    hint = next((hint for mark, hint in _SETUP.items() if mark in words), "")
    return AttemptFailedError(f"the Spark job failed: {words}", hint=hint)


def data_loss(failure: Failure) -> EosError | None:
    """Spark's refusal to skip source records that are gone (failOnDataLoss), in our words."""
    found = failure.first(_is_loss)
    if found is None:
        return None
    said = found.message.partition("Reason:")[2].strip() or found.message.strip()
    return PromiseBrokenError(
        f"the source lost records before they were read: {said[:500]}",
        hint="retention deleted them while the pipeline was down or behind, or somebody did; "
        "nothing brings them back, and nothing was skipped",
        case="source_lost_records",
    )


def _is_loss(link: Link) -> bool:
    return link.condition.partition(".")[0] == _DATA_LOSS or link.kind == _OUT_OF_RANGE


def _data_exception(failure: Failure) -> EosError | None:
    """A value that an SQL expression of a step or a sink can't compute with, in ANSI mode."""
    found = failure.first(
        lambda link: link.state.startswith(_DATA_EXCEPTION) and link.state != _UNSPECIFIC
    )
    if found is None:
        return None
    return TransformError(
        f"a step or a sink's expression failed on a value: {found.line[:500]}",
        hint="use `try_cast`, `try_divide` and the like, which return null, or refuse such records "
        "by a rule of `expect` with `on_error: dead_letter`; then start it again",
        case="value_refused",
    )


def _last_words(text: str) -> str:
    """The line of a Python traceback (inside Spark's words) that names the cause; or how the first
    task was lost, if what died could leave no traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if ("Error" in line or "Exception" in line) and ": " in line]
    python = [line for line in named if not line.startswith(_NOT_PYTHONS)]
    if not python:
        lost = _lost(lines)
        named = [lost] if lost else named
    # Py4J puts a colon before the class of what Java raised.
    return (python or named or lines or ["no message"])[-1].removeprefix(": ")[:500]


def _lost(lines: list[str]) -> str:
    """How Spark lost a task, without the settings that it advises."""
    for line in lines:
        lower = line.lower()
        for words in _LOST:
            at = lower.find(words)
            if at >= 0:
                return line[at + len(words) :].partition(_ADVICE)[0].strip()
    return ""
