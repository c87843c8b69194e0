"""What is told of a Spark job that failed: the cause in one line, found in all that Spark says."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import doubles

import eos
from eos.errors import AttemptFailedError, EosError, PromiseBrokenError, TransformError
from eos.micro_batch.task_errors import task_error
from eos.run.query import cause_of, late_worker
from eos.seal import of_this_process
from eos.spark.failure import Failure, Link
from eos.startup.stateful_pipeline import state_refusal

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
        (LOST.format(TRACEBACK), "ModuleNotFoundError: No module named 'users'", "modules"),
    ],
    ids=["worker", "executor", "shuffle", "no python", "no module"],
)
def test_the_cause_is_told_in_one_line(why: str, words: str, hint: str) -> None:
    told = task_error(Failure(SPARK.format(why=why)))
    assert isinstance(told, AttemptFailedError)
    assert told.message == f"the Spark job failed: {words}"
    assert hint in told.hint
    assert bool(told.hint) == bool(hint)


WORKER = """Traceback (most recent call last):
  File "/v/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 3, in main
    process()
{frames}{raised}

\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:1)
Caused by: java.io.IOException: none
"""  # noqa: E501 - as Spark has it
USERS = '  File "/app/pyspark/pipelines/shop/transform.py", line 9, in gross\n    return risky(x)\n'
IN_JSON = '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode\n    raise x\n'
IN_SPARK = '  File "/v/pyspark.zip/pyspark/{}.py", line 7, in read\n    raise x\n'


@pytest.mark.parametrize(
    ("frames", "raised"),
    [
        (USERS, "ValueError: bad luck with 777.00"),
        (USERS, "decimal.InvalidOperation: [<class 'decimal.ConversionSyntax'>]"),
        (USERS, "AssertionError"),
        (USERS + IN_JSON, "json.decoder.JSONDecodeError: Expecting value"),
        (USERS + IN_SPARK.format("sql/types"), "AttributeError: amount"),
    ],
    ids=["own", "no error by name", "no message", "library", "row"],
)
def test_a_users_function_that_fails_in_a_task_is_told_with_its_line(
    frames: str, raised: str
) -> None:
    text = LOST.format(f"{EXCEPTION}: {WORKER.format(frames=frames, raised=raised)}")
    told = task_error(Failure(SPARK.format(why=text)))
    assert (type(told), told.code) == (AttemptFailedError, "python_function_failed")
    line = "/app/pyspark/pipelines/shop/transform.py:9"
    assert told.message == f"a Python function failed in a task ({line}): {raised}"
    assert "`expect`" in told.hint


@pytest.mark.parametrize(
    "frames",
    [
        USERS + IN_SPARK.format("serializers"),
        f'  File "{Path(eos.__file__).parent}/encode/x.py", line 5, in f\n',
        '  File "/tmp/ship/a1.zip/eos/encode/x.py", line 5, in f\n',
        '  File "/app/pipelines/shop/transform.py", line 9 in gross\n',
    ],
    ids=["input", "ours", "ours, shipped", "crash"],
)
def test_a_task_that_fails_outside_a_users_function_does_not_blame_it(frames: str) -> None:
    text = WORKER.format(frames=frames, raised="OSError: gone")
    told = task_error(Failure(SPARK.format(why=text)))
    assert (told.code, told.message) == ("spark_job_failed", "the Spark job failed: OSError: gone")


def test_an_error_of_the_drivers_own_work_is_told_with_its_kind() -> None:
    """Its text alone says nothing, and there was no Spark job."""
    found = task_error(Failure.of(KeyError("offset")))
    assert found.message == "the work on the records failed: KeyError: 'offset'"


def test_an_interrupt_is_told_without_the_colon_before_it() -> None:
    error = Failure("An error occurred while calling o1.collect.\n: java.lang.InterruptedException")
    assert task_error(error).message == "the Spark job failed: java.lang.InterruptedException"


def test_an_error_of_ours_comes_as_it_was() -> None:
    ours = of_this_process().crossing(
        PromiseBrokenError(
            "some",
            "gone",
            hint="look",
        )
    )
    told = task_error(Failure(SPARK.format(why=LOST.format(ours))))
    assert (type(told), told.message, told.hint) == (PromiseBrokenError, "gone", "look")
    assert told.code == "some"


KAFKA = "org.apache.kafka.common.errors.{}"
CASTS = '[CAST_INVALID_INPUT] The value \'{}\' of the type "STRING" cannot be cast to "INT"'
EXCEPTION = "org.apache.spark.SparkException"


def cast_of(value: str) -> Failure:
    """What Spark raises where a step casts it."""
    said = CASTS.format(value)
    kind = "org.apache.spark.SparkNumberFormatException"
    return Failure(said, (Link(kind, said, "CAST_INVALID_INPUT", "22018"),))


@pytest.mark.parametrize(
    "value",
    [
        "no data loss here, offset 5",
        "OffsetOutOfRange failOnDataLoss KAFKA_DATA_LOSS",
        f"{KAFKA.format('TopicAuthorizationException')}: Not authorized: [orders]",
        f"Caused by: {KAFKA.format('SaslAuthenticationException')}: no",
        "AVRO_CANNOT_WRITE_NULL_FIELD",
        "a since it's not defined in enum",
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED]",
        "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
        "Python worker failed to connect back.",
    ],
)
def test_what_a_message_quotes_is_never_the_cause(value: str) -> None:
    failure = cast_of(value)
    told = task_error(failure)
    assert isinstance(told, TransformError)
    assert told.code == "value_refused"
    assert state_refusal("p", failure) is None
    assert late_worker("p", failure) is None
    other = task_error(Failure(SPARK.format(why=LOST.format(f"MyError: {value}"))))
    assert type(other) is AttemptFailedError


def test_a_value_that_sql_cannot_compute_stops_and_is_named() -> None:
    told = task_error(cast_of("abc"))
    assert "The value 'abc' of the type" in told.message
    assert "try_cast" in told.hint


def test_source_records_that_are_gone_are_known_by_their_condition() -> None:
    said = "Some data may have been lost. Reason:\nStarting offset for t-0 was 3 but reset to 9."
    link = Link("x.KafkaIllegalStateException", said, "KAFKA_DATA_LOSS.START_OFFSET_RESET", "22000")
    told = task_error(Failure("Job aborted", (Link(EXCEPTION, "Job aborted"), link)))
    assert (type(told), told.code) == (PromiseBrokenError, "source_lost_records")
    assert told.message.endswith(
        "before they were read: Starting offset for t-0 was 3 but reset to 9."
    )
    range_ = Link("org.apache.kafka.clients.consumer.OffsetOutOfRangeException", "t-0=5")
    assert task_error(Failure("x", (range_,))).code == "source_lost_records"


def ended(error: EosError) -> EosError:
    """What a run ends with whose query ended with this."""
    query = SimpleNamespace(error=error, stages=SimpleNamespace(plan=doubles.plan()))
    return cause_of(query, RuntimeError("the query"), None)


def lost_state(condition: str) -> Failure:
    return Failure("x", (Link(EXCEPTION, "Job aborted"), Link(EXCEPTION, "An error.", condition)))


def test_a_file_of_the_state_that_is_gone_is_no_reason_to_start_again() -> None:
    told = state_refusal(
        "p", lost_state("CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE")
    )
    assert told is not None
    assert told.code == "state_lost"
    assert "--accept-state-loss" in told.hint
    changed = state_refusal("p", lost_state("STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"))
    assert changed is not None
    assert changed.code == "state_changed"


@pytest.mark.parametrize("condition", ["UNRELEASED_THREAD_ERROR_1", "UNRELEASED_THREAD_ERROR"])
def test_state_in_use_may_pass(condition: str) -> None:
    assert state_refusal("p", lost_state(f"CANNOT_LOAD_STATE_STORE.{condition}")) is None


def test_what_may_pass_stays_what_it_was() -> None:
    error = AttemptFailedError("example", "no room")
    assert ended(error) is error


def test_a_long_text_is_read_in_linear_time() -> None:
    """Patterns that took seconds of CPU for 80 kB."""
    started = time.process_time()
    for part in ("most recent failure:\n", "a since it's not defined in ", "[", "Error: ", "a.b."):
        task_error(Failure.of(RuntimeError(part * 200_000)))
    assert time.process_time() - started < 5
