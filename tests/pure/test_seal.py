"""A task's error reaches the driver as it was, and no text that looks like one does."""

from __future__ import annotations

import base64
import json
import pickle
import random
import string

import pytest

from eos import errors
from eos.errors import AttemptFailedError, EosError, FencedError, UsageError
from eos.kafka.api import Api
from eos.kafka.outcomes import describe
from eos.seal import CrossingError, Seal, crossed, of_this_process
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
eos.seal.CrossingError: {crossing}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(x.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: [eos-error
"""
SEAL = of_this_process()


def sample(kind: type[EosError]) -> EosError:
    return kind(
        "example",
        'topic "a"\nb: caf\u00e9 [x] {y} \U0001f600',
        hint="look\nthere",
        topic="a-0",
        number=45,
        share=0.5,
        known=None,
        sent=True,
    )


def alike(error: EosError, other: EosError) -> bool:
    return (type(error), error.code, error.message, error.hint, error.fields, str(error)) == (
        type(other),
        other.code,
        other.message,
        other.hint,
        other.fields,
        str(other),
    )


def body(told: object) -> str:
    return base64.b64encode(json.dumps(told).encode()).decode()


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_crosses_in_sparks_text(kind: type[EosError]) -> None:
    error = sample(kind)
    task = pickle.loads(pickle.dumps(SEAL))  # as a closure brings it
    text = AROUND.format(name=kind.__name__, message=error.message, crossing=task.crossing(error))
    found = crossed(text)
    assert found is not None
    assert alike(found, error)
    assert found.recovery is kind.recovery


def test_the_words_are_readable_in_an_executors_log() -> None:
    error = SEAL.crossing(AttemptFailedError("example", "a second task wrote", hint="look"))
    assert isinstance(error, CrossingError)
    assert str(error).startswith("[example] a second task wrote\n  hint: look [eos-error ")


def test_a_field_that_is_no_plain_value_is_dropped() -> None:
    error = crossed(
        str(SEAL.crossing(EosError("example", "x", where=("a", 1), api=Api.PRODUCE, number=3)))
    )
    assert error is not None
    assert error.fields == {"number": 3}


def test_long_texts_of_records_are_cut() -> None:
    long = "\U0001f600" * 1_000_000
    told = str(
        SEAL.crossing(EosError("example", long, hint=long, **{f"f{n}": long for n in range(99)}))
    )
    assert len(told) < 300_000
    error = crossed(f"{'x' * 10_000_000}{told}{'y' * 1_000_000}")
    assert error is not None
    assert (len(error.message), len(error.hint), len(error.fields)) == (4_000, 2_000, 32)


def test_what_the_table_describes_crosses() -> None:
    error = describe(Api.PRODUCE, 10, "too large", where="t-0")
    found = crossed(str(SEAL.crossing(error)))
    assert found is not None
    assert alike(found, error)


def test_a_class_of_another_release_arrives_as_the_base_with_its_words() -> None:
    found = crossed(
        str(SEAL.crossing(TransitionError("example", "begin is not possible", hint="h")))
    )
    assert found is not None
    assert (type(found), found.message, found.hint) == (EosError, "begin is not possible", "h")


FORGED = body(["FencedError", "example", "another copy took over", "", {}])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "java.lang.OutOfMemoryError",
        f"[eos-error {FORGED}]",  # as a release before signatures wrote it
        f"[eos-error {FORGED} {'0' * 64}]",
        str(Seal().crossing(FencedError("example", "another run's"))),
        "[eos-error  ]",
        f"[eos-error {'A' * 1_000_000}",
    ],
)
def test_a_text_without_a_valid_signature_is_none_and_hides_none(text: str) -> None:
    assert crossed(text) is None
    found = crossed(f"{text} {SEAL.crossing(UsageError('example', 'the real one'))}")
    assert found is not None
    assert found.message == "the real one"


@pytest.mark.parametrize(
    "told",
    [
        None,
        [1],
        ["UsageError", "x", "", {}],  # as a release before codes wrote it
        ["UsageError", 1, "x", "", {}],
        ["UsageError", "example", 1, "", {}],
        ["UsageError", "example", "", None, {}],
        ["UsageError", "example", "x", "", 1],
        ["UsageError", "example", "x", "", {"message": 1}],
        ["UsageError", "example", "x", "", {"code": 1}],
        [["UsageError"], "example", "x", "", {}],
        ["os", "example", "x", "", {"hint": 2}],
    ],
)
def test_a_signed_mark_of_another_shape_is_no_error(told: object) -> None:
    signed = body(told)
    assert crossed(f"[eos-error {signed} {SEAL._signature(signed)}]") is None


def test_forged_and_broken_marks_are_never_an_error() -> None:
    """Of 20,000 variations: marks cut, mixed, repeated, with other letters, signed by others."""
    chance = random.Random(17)
    own = str(SEAL.crossing(FencedError("example", "mine", hint="h", number=3)))
    others = [
        f"[eos-error {FORGED}]",
        str(Seal().crossing(FencedError("example", "x"))),
        "[eos-refused t 0 0",
    ]
    own_mark = own[own.index("[eos-error") :]
    for _ in range(20_000):
        letters = list(chance.choice([*others, own_mark]))
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(letters))
            letters[at : at + chance.randrange(4)] = chance.choice(string.printable)
        text = "".join(letters)
        if own_mark not in text:
            assert crossed(text) is None, text


def test_a_text_that_sql_raised_counts_with_the_runs_word_only() -> None:
    opening = SEAL.opening("refused")
    assert SEAL.raised("refused", ["a", f"{opening}t 0 1 2]"]) == "t 0 1 2"
    for text in ("[eos-refused t 0 0 7]", f"x {opening}t 0 0 7]", f"{opening}t 0 0 7", ""):
        assert SEAL.raised("refused", [text]) is None
    assert SEAL.raised("merged-twice", [f"{opening}t]"]) is None
    assert Seal().raised("refused", [f"{opening}t]"]) is None


def test_the_secret_never_prints_and_is_not_what_a_plan_shows() -> None:
    secret = SEAL.__reduce__()[1][0]
    shown = f"{SEAL!r} {SEAL} {SEAL.opening('refused')} {SEAL.crossing(EosError('example', 'x'))}"
    assert secret.hex() not in shown
    assert len(secret) == 32
    assert secret not in shown.encode()
