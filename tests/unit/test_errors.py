"""Errors keep their class, words, hint and fields on the way from a task to the driver."""

import pickle

import pytest

from eos import errors
from eos.errors import (
    AttemptFailedError,
    CrossingError,
    EosError,
    PromiseBrokenError,
    Recovery,
    UsageError,
    about,
    crossed,
    crossing,
    naming,
)
from eos.transaction.outcomes import describe
from eos.transaction.port import Api
from eos.transaction.protocol import TransitionError

KINDS = sorted(
    (
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, EosError)
    ),
    key=lambda kind: kind.__name__,
)
# What Spark, Py4J and two tracebacks put around it.
AROUND = """An error occurred while calling o79.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed \
1 times, most recent failure: Lost task 0.0 in stage 3.0 (TID 4) (host executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/eos/transaction/writer.py", line 160, in write
eos.errors.{name}: {message}

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 3100, in main
eos.errors.CrossingError: {crossing}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(x.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: [eos-error
"""


def sample(kind):
    return kind(
        'topic "a"\nb: caf\u00e9 [x] {y} \U0001f600',
        hint="look\nthere",
        topic="a-0",
        code=45,
        share=0.5,
        known=None,
        sent=True,
    )


def alike(error, other):
    return (type(error), error.message, error.hint, error.fields, str(error)) == (
        type(other),
        other.message,
        other.hint,
        other.fields,
        str(other),
    )


def test_there_are_errors_of_every_recovery():
    assert {kind.recovery for kind in KINDS} == set(Recovery)
    assert len({kind.code for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_it_pickles(kind):
    error = sample(kind)
    assert alike(pickle.loads(pickle.dumps(error)), error)


@pytest.mark.parametrize("kind", KINDS)
def test_it_crosses_in_spark_s_words(kind):
    error = sample(kind)
    text = AROUND.format(name=kind.__name__, message=error.message, crossing=crossing(error))
    found = crossed(text)
    assert found is not None
    assert alike(found, error)
    assert found.recovery is kind.recovery


def test_the_words_are_readable_for_who_sees_the_log_of_the_executor():
    error = crossing(AttemptFailedError("a second task wrote", hint="look"))
    assert isinstance(error, CrossingError)
    assert str(error).startswith("a second task wrote\n  hint: look [eos-error ")


def test_a_field_that_is_no_plain_value_stays_behind():
    error = crossed(str(crossing(EosError("x", where=("a", 1), api=Api.PRODUCE, code=3))))
    assert error is not None
    assert error.fields == {"code": 3}


def test_what_the_table_describes_crosses():
    error = describe(Api.PRODUCE, 10, "too large", where="t-0")
    found = crossed(str(crossing(error)))
    assert found is not None
    assert alike(found, error)


def test_a_class_of_another_release_arrives_as_the_base_with_its_words():
    found = crossed(str(crossing(TransitionError("begin is not possible", hint="h"))))
    assert (type(found), found.message, found.hint) == (EosError, "begin is not possible", "h")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "java.lang.OutOfMemoryError",
        "[eos-error ]",
        "[eos-error AAAA]",
        "[eos-error A]",
        "[eos-error bnVsbA==]",  # null
        "[eos-error WzFd]",  # [1]
        "[eos-error WyJVc2FnZUVycm9yIiwgIngiLCAiIiwgMV0=]",  # fields that are none
    ],
)
def test_words_that_look_like_an_error_are_none_and_hide_none(text):
    assert crossed(text) is None
    found = crossed(f"{text} {crossing(UsageError('the real one'))}")
    assert found is not None
    assert found.message == "the real one"


def test_the_hint_stands_on_a_line_of_its_own():
    assert str(EosError("what", hint="do this")) == "what\n  hint: do this"
    assert str(EosError("what")) == "what"


def test_an_error_about_a_pipeline_names_it_once_and_stays_what_it_was():
    told = about("p", PromiseBrokenError("it is gone", hint="`eos recover PIPELINE`", case="gone"))
    assert isinstance(told, PromiseBrokenError)
    assert (told.message, told.hint) == ("p: it is gone", "`eos recover p`")
    assert told.fields == {"case": "gone", "pipeline": "p"}
    assert about("p", told) is told


def test_each_error_of_a_run_names_the_pipeline():
    words = {
        "a target is gone": "orders: a target is gone",
        "orders: a target is gone": "orders: a target is gone",
        "orders already runs": "orders already runs",
        "orders2 is another": "orders: orders2 is another",
    }
    for message, expected in words.items():
        with pytest.raises(PromiseBrokenError) as stop, naming("orders"):
            raise PromiseBrokenError(message, hint="look", case="gone")
        assert (stop.value.message, stop.value.hint) == (expected, "look")
        assert stop.value.fields["case"] == "gone"
