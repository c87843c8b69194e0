"""Why a Spark job failed, in our words: what a task raised, or what Spark says in its place."""

from __future__ import annotations

import re
from collections.abc import Collection

from eos.errors import AttemptFailedError, EosError, PromiseBrokenError, crossed
from eos.run.refusal import avro_refusal, source_refusal

_NOT_PYTHONS = ("at ", "File ", "org.", ": org.", "Caused by", "py4j.")
_DATA_LOSS = ("OffsetOutOfRange", "failOnDataLoss", "data loss", "DATA_LOSS")
# What an executor lacks, and may have when the next attempt runs on another one.
_SETUP = {
    "PYTHON_VERSION_MISMATCH": "PYSPARK_PYTHON names the executors' Python: docs/clusters.md",
    "Cannot run program": "PYSPARK_PYTHON names the executors' Python: docs/clusters.md",
    "ModuleNotFoundError": "what a function imports has to travel to the executors, too: "
    "docs/clusters.md",
}


def task_error(error: Exception, sinks: Collection[str] = ()) -> EosError:
    """What a task raised, if it was one of ours; anything else is worth another attempt. `sinks`
    are the topics that Spark writes itself."""
    found = crossed(str(error))
    if found is not None:
        return found
    final = data_loss(error) or source_refusal(error, sinks) or avro_refusal(error)
    if final is not None:
        return final
    words = _last_words(str(error))
    hint = next((hint for mark, hint in _SETUP.items() if mark in words), "")
    return AttemptFailedError(f"the Spark job failed: {words}", hint=hint)


def data_loss(error: Exception) -> EosError | None:
    """Spark's refusal to skip source records that are gone (failOnDataLoss), in our words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not any(mark in line for line in lines for mark in _DATA_LOSS):
        return None
    telling = next((line for line in lines if "offset" in line.lower()), lines[0])
    return PromiseBrokenError(
        f"the source lost records before they were read: {telling[:500]}",
        hint="retention deleted them while the pipeline was down or behind, or somebody did; "
        "nothing brings them back, and nothing was skipped",
        case="source_lost_records",
    )


def _last_words(text: str) -> str:
    """The line of a Python traceback (inside Spark's words) that names the cause; or how the first
    task was lost, if what died could leave no traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if ("Error" in line or "Exception" in line) and ": " in line]
    python = [line for line in named if not line.startswith(_NOT_PYTHONS)]
    if not python:  # what Spark would have us consider is no part of it
        pattern = r"most recent failure(?: reason)?:\s*(.+?)(?: Consider setting .*)?$"
        lost = re.search(pattern, text, re.IGNORECASE | re.MULTILINE)
        named = [lost.group(1)] if lost else named
    # Py4J puts a colon before the class of what Java raised.
    return (python or named or lines or ["no message"])[-1].removeprefix(": ")[:500]
