"""What is told of a Spark job that failed: the cause in one line, found in all that Spark says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support import plans

from eos.errors import AttemptFailedError, EosError, PromiseBrokenError, crossing
from eos.run.pipeline import _Run
from eos.run.task_error import task_error

SPARK = """An error occurred while calling o231.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: {why}
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2785)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:398)
"""
LOST = "Task 1 in stage 3.0 failed 1 times, most recent failure: Lost task 1.0 (executor 1): {}"
IDLE = "Consider setting 'spark.python.worker.faulthandler.enabled' to 'true'."
TRACEBACK = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/app/pipelines/orders/transform.py", line 9, in text
ModuleNotFoundError: No module named 'users'
"""
STAGE = (
    "ResultStage 25 (call at client.py:644) has failed the maximum allowable number of times: "
    "1. Most recent failure reason: org.apache.spark.shuffle.FetchFailedException: no file"
)
NO_PYTHON = 'java.io.IOException: Cannot run program "python3.99": error=2'


@pytest.mark.parametrize(
    ("why", "words", "hint"),
    [
        (
            LOST.format(f"org.apache.spark.SparkException: Python worker crashed. {IDLE}"),
            "Lost task 1.0 (executor 1): org.apache.spark.SparkException: Python worker crashed.",
            "",
        ),
        (
            LOST.format("ExecutorLostFailure Reason: Command exited with code 137"),
            "Lost task 1.0 (executor 1): ExecutorLostFailure Reason: Command exited with code 137",
            "",
        ),
        (STAGE, "org.apache.spark.shuffle.FetchFailedException: no file", ""),
        (
            LOST.format(NO_PYTHON),
            f"Lost task 1.0 (executor 1): {NO_PYTHON}",
            "PYSPARK_PYTHON",
        ),
        (LOST.format(TRACEBACK), "ModuleNotFoundError: No module named 'users'", "travel"),
    ],
    ids=["worker", "executor", "shuffle", "no python", "no module"],
)
def test_the_cause_is_told_in_one_line(why: str, words: str, hint: str) -> None:
    told = task_error(RuntimeError(SPARK.format(why=why)))
    assert isinstance(told, AttemptFailedError)
    assert told.message == f"the Spark job failed: {words}"
    assert hint in told.hint
    assert bool(told.hint) == bool(hint)


def test_an_interrupt_is_told_without_the_colon_before_it() -> None:
    error = RuntimeError(
        "An error occurred while calling o1.collect.\n: java.lang.InterruptedException"
    )
    assert task_error(error).message == "the Spark job failed: java.lang.InterruptedException"


def test_an_error_of_ours_comes_as_it_was() -> None:
    ours = crossing(PromiseBrokenError("gone", hint="look", case="some"))
    told = task_error(RuntimeError(SPARK.format(why=LOST.format(ours))))
    assert (type(told), told.message, told.hint) == (PromiseBrokenError, "gone", "look")
    assert told.fields["case"] == "some"


STATE = "org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.{}] An error occurred."


def ended(error: EosError) -> EosError:
    """What a run ends with whose query ended with this."""
    run = _Run(None, None, plans.plan(), None, None, None, None, None, False)
    return run._ended_by(SimpleNamespace(error=error), RuntimeError("the query"), None)


def failed(why: str) -> EosError:
    cause = RuntimeError(SPARK.format(why=LOST.format(why)))
    try:
        raise task_error(cause) from cause
    except EosError as error:
        return error


def test_a_file_of_the_state_that_is_gone_is_no_reason_to_start_again() -> None:
    """A task finds out, so that it looks like an attempt to be redone."""
    error = failed(STATE.format("CANNOT_READ_STREAMING_STATE_FILE"))
    assert isinstance(error, AttemptFailedError)
    told = ended(error)
    assert (type(told), told.fields["case"]) == (PromiseBrokenError, "state_lost")
    assert "--accept-state-loss" in told.hint


@pytest.mark.parametrize("why", [STATE.format("UNRELEASED_THREAD_ERROR_1"), "no room"])
def test_what_may_pass_stays_what_it_was(why: str) -> None:
    error = failed(why)
    assert ended(error) is error
    assert ended(AttemptFailedError("without a cause")).message == "without a cause"
