"""Expected entries of a pipeline file's tests beside the records that the sinks write."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.config.pipeline_tests import OutputRecord
from eos.pipeline_tests.comparison import Written, compare, matches

RECORD = Written(
    "out", "7", '{"id": 7, "at": {"x": 1, "y": [1, {"z": 2}]}, "note": null}', (("a", "1"),)
)
SAME = {"id": 7, "at": {"x": 1.0, "y": [1, {"z": 2}]}, "note": None}


def entry(**says: object) -> OutputRecord:
    return OutputRecord.model_validate(says)


@pytest.mark.parametrize(
    ("says", "is_like", "is_exact"),
    [
        ({"value": {"id": 7}, "headers": {"a": "1"}}, True, False),
        ({"value": {"at": {"x": 1}}, "headers": {"a": "1"}}, True, False),
        ({"value": {"at": {"y": [1, {}]}}, "headers": {"a": "1"}}, True, False),
        ({"value": SAME, "headers": {"a": "1"}}, True, True),
        ({"value": SAME}, True, False),  # the record has a header more
        ({"headers": {"a": "1"}}, True, True),
        ({"key": 7, "topic": "out"}, True, False),
        ({"value": {"at": {"y": [1]}}}, False, False),  # a list is compared as a whole
        ({"value": {"id": True}}, False, False),
        ({"value": {"id": "7"}}, False, False),
        ({"value": {"gone": None}}, False, False),
        ({"value": None}, False, False),
        ({"headers": {"a": "2"}}, False, False),
        ({"headers": {"b": None}}, False, False),
        ({"topic": "in"}, False, False),
    ],
)
def test_an_entry_is_a_part_of_a_record_unless_it_is_exact(says, is_like, is_exact):
    assert matches(entry(**says), RECORD) is is_like
    assert matches(entry(**says, exact=True), RECORD) is is_exact


def test_each_entry_is_compared_by_its_own_fields():
    found = [Written("a", "k", '{"id": 1, "n": 2}'), Written("b", None, "text")]
    said = [entry(value={"id": 1}), entry(topic="b", value="text", headers={})]
    assert compare(said, found).matched == 2
    assert compare(said, found).missing == ()


def test_a_vague_entry_leaves_a_record_to_an_entry_that_needs_it():
    found = [Written("a", None, json.dumps({"id": n})) for n in (1, 2)]
    vague, first = entry(topic="a"), entry(value={"id": 1})
    for said in ([vague, first], [first, vague]):
        assert compare(said, found).matched == 2
    told = compare([vague, first, first], found)
    assert told.missing == ('{"value": {"id": 1}}',)
    assert told.unexpected == ()


def test_a_record_that_nobody_expects_is_shown_with_the_fields_that_the_test_names():
    found = [Written("a", None, '{"id": 1}', (("h", "1"), ("h", None)))]
    assert compare([], found).unexpected == ('{"topic": "a", "value": {"id": 1}}',)
    assert compare([entry(key="k")], found).unexpected == ('{"key": null}',)
    assert compare([entry(key="k", exact=True)], found).unexpected == (
        '{"headers": [["h", "1"], ["h", null]], "key": null}',
    )


@given(st.lists(st.sets(st.integers(0, 4)), max_size=5), st.integers(0, 5))
def test_as_many_entries_as_possible_find_a_record(wanted, size):
    found = [
        Written("a", None, json.dumps({str(n): 0 for n in range(5) if n != at}))
        for at in range(size)
    ]
    said = [entry(value={str(n): 0 for n in each}) for each in wanted]
    fits = [{at for at in range(size) if at not in each} for each in wanted]

    def most(left: int, free: frozenset[int]) -> int:
        if left == len(fits):
            return 0
        tried = [1 + most(left + 1, free - {at}) for at in fits[left] & free]
        return max([most(left + 1, free), *tried])

    told = compare(said, found)
    assert told.matched == most(0, frozenset(range(size)))
    assert (len(told.missing), len(told.unexpected)) == (
        len(said) - told.matched,
        size - told.matched,
    )
