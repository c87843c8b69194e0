"""Turn the failure of a Spark job into the project's error, which decides whether it is retried."""

from __future__ import annotations

import re
from pathlib import Path

from eos.errors import AttemptFailedError, EosError, TransformError
from eos.kafka.read_errors import lost_records
from eos.micro_batch.java_client_errors import avro_refusal, source_refusal
from eos.seal import crossed
from eos.spark.failure import Failure, Link

_NOT_PYTHONS = ("at ", "File ", "org.", ": org.", "Caused by", "py4j.")
_LOST = ("most recent failure reason:", "most recent failure:")
_ADVICE = " Consider setting "
_DATA_LOSS = "KAFKA_DATA_LOSS"
_OUT_OF_RANGE = "org.apache.kafka.clients.consumer.OffsetOutOfRangeException"
# SQLSTATE class 22: an expression can't compute with a value, and a retry would fail again. 22000
# is excluded, because Spark also uses it for other errors, such as KAFKA_DATA_LOSS.
_DATA_EXCEPTION, _UNSPECIFIC = "22", "22000"
# Hints for errors in an executor's setup, by a text in Spark's message. These errors are retried,
# because the next attempt may run on another executor.
_SETUP = {
    "PYTHON_VERSION_MISMATCH": "set PYSPARK_PYTHON to the executors' Python: docs/clusters.md",
    "Cannot run program": "set PYSPARK_PYTHON to the executors' Python: docs/clusters.md",
    "ModuleNotFoundError": "the executors need the modules that a function imports, too: "
    "docs/clusters.md",
}
# A frame of a Python traceback. A worker that crashed leaves frames without the comma: it says
# nothing about the user's code.
_FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+), in ', re.MULTILINE)
# Files of other people's code. Workers may have other paths than the driver.
_OTHERS = re.compile(
    r"/(site-packages|dist-packages|pyspark\.zip|python/pyspark|lib(64)?/python3\.\d+)/"
    r"|\.zip/eos/|^<frozen"
)
_OWN = f"{Path(__file__).parents[1]}/"
_SPARKS_INPUT = "/pyspark/serializers.py"  # fails if the JVM's side does


def task_error(failure: Failure) -> EosError:
    """Return the project's error for a failed Spark job, or for the driver's own work on records.

    If a task raised a project error, that error is returned. A cause that a retry would meet again
    becomes a final error. Any other failure becomes an AttemptFailedError, which is retried.
    """
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
    reason = _last_words(failure.text)
    hint = next((hint for mark, hint in _SETUP.items() if mark in reason), "")
    users = None if hint else _users_line(failure.text)
    if users is not None:
        position, reason = users
        return AttemptFailedError(
            "python_function_failed",
            f"a Python function failed in a task ({position}): {reason}",
            hint="correct the function, or keep such records from it by a rule of `expect` with "
            "`on_error: dead_letter`. Nothing is lost: the next start runs the micro-batch again",
        )
    what = "the work on the records" if failure.is_of_python else "the Spark job"
    return AttemptFailedError("spark_job_failed", f"{what} failed: {reason}", hint=hint)


def data_loss(failure: Failure) -> EosError | None:
    """Return the error if Spark stopped because source records are gone (failOnDataLoss), or
    None."""
    found = failure.first(_is_loss)
    if found is None:
        return None
    full = found.message.partition("Reason:")[2].strip() or found.message.strip()
    reason = full[:500]
    return lost_records(reason)


def _is_loss(link: Link) -> bool:
    return link.condition.partition(".")[0] == _DATA_LOSS or link.kind == _OUT_OF_RANGE


def _data_exception(failure: Failure) -> EosError | None:
    """Return the error if an SQL expression failed on a value, as in ANSI mode, or None."""
    found = failure.first(
        lambda link: link.state.startswith(_DATA_EXCEPTION) and link.state != _UNSPECIFIC
    )
    if found is None:
        return None
    reason = found.line[:500]
    return TransformError(
        "value_refused",
        f"a step or a sink's expression failed on a value: {reason}",
        hint="use `try_cast`, `try_divide` and the like, which return null, or reject such records "
        "by a rule of `expect` with `on_error: dead_letter`; then start again",
    )


def _users_line(text: str) -> tuple[str, str] | None:
    """Return the last line of the user's code in a worker's traceback, as FILE:LINE, and the
    exception. Return None if a task failed outside the user's code."""
    found = None
    for frame in _FRAME.finditer(text):
        file = frame[1]
        if file.endswith(_SPARKS_INPUT):
            found = None
        elif not file.startswith(_OWN) and not _OTHERS.search(file):
            found = frame
    if found is None:
        return None
    after = text[found.end() :].splitlines()[1:]
    # The lines of a traceback are indented, and the exception is not.
    reason = next((line.strip() for line in after if line[:1].strip()), "no message")
    return f"{found[1]}:{found[2]}", reason[:500]


def _last_words(text: str) -> str:
    """Return the line of Spark's error text that names the cause.

    That is the last line of a Python traceback. If a killed worker left no traceback, it is Spark's
    reason for losing the task.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    matches = [line for line in lines if ("Error" in line or "Exception" in line) and ": " in line]
    python = [line for line in matches if not line.startswith(_NOT_PYTHONS)]
    if not python:
        lost = _lost(lines)
        matches = [lost] if lost else matches
    # Py4J puts a colon before the class of a Java exception.
    return (python or matches or lines or ["no message"])[-1].removeprefix(": ")[:500]


def _lost(lines: list[str]) -> str:
    """Return Spark's reason for losing a task, without the settings that it recommends. "" if there
    is none."""
    for line in lines:
        lower = line.lower()
        for message in _LOST:
            at = lower.find(message)
            if at >= 0:
                return line[at + len(message) :].partition(_ADVICE)[0].strip()
    return ""
