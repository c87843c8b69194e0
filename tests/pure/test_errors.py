"""Errors keep their class, words, hint and fields when they pickle or get a pipeline's name."""

import pickle

import pytest

from eos import errors
from eos.errors import (
    EosError,
    PromiseBrokenError,
    Recovery,
    about,
    naming,
)

KINDS = sorted(
    (
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, EosError)
    ),
    key=lambda kind: kind.__name__,
)


def sample(kind):
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


def alike(error, other):
    return (type(error), error.code, error.message, error.hint, error.fields, str(error)) == (
        type(other),
        other.code,
        other.message,
        other.hint,
        other.fields,
        str(other),
    )


def test_there_are_errors_of_every_recovery():
    assert {kind.recovery for kind in KINDS} == set(Recovery)
    assert len({kind.kind for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_it_pickles(kind):
    error = sample(kind)
    assert alike(pickle.loads(pickle.dumps(error)), error)


def test_the_hint_stands_on_a_line_of_its_own():
    assert str(EosError("example", "what", hint="do this")) == "[example] what\n  hint: do this"
    assert str(EosError("example", "what")) == "[example] what"


def test_an_error_about_a_pipeline_names_it_once_and_stays_what_it_was():
    told = about(
        "p",
        PromiseBrokenError(
            "gone",
            "it is gone",
            hint="`eos recover PIPELINE`",
        ),
    )
    assert isinstance(told, PromiseBrokenError)
    assert (told.message, told.hint) == ("p: it is gone", "`eos recover p`")
    assert (told.code, told.fields) == ("gone", {"pipeline": "p"})
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
            raise PromiseBrokenError(
                "gone",
                message,
                hint="look",
            )
        assert (stop.value.message, stop.value.hint) == (expected, "look")
        assert stop.value.code == "gone"
