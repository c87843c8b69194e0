"""`wait_until`, on which other tests rely: it fails where nothing came of what they wait for."""

from __future__ import annotations

import pytest
from support.waiting import wait_until


class Process:
    def __init__(self, *codes: int | None) -> None:
        self.codes = list(codes)

    def poll(self) -> int | None:
        return self.codes.pop(0)


def test_what_was_found_is_returned():
    found = iter([None, [], "something"])
    assert wait_until(lambda: next(found)) == "something"


def test_what_never_comes_is_a_failure_with_its_text():
    with pytest.raises(AssertionError, match="not in sync"):
        wait_until(lambda: False, lambda: "not in sync", wait_s=0.01)


def test_a_process_that_ends_without_it_is_a_failure_at_once():
    with pytest.raises(AssertionError, match="its log"):
        wait_until(lambda: False, "its log", Process(None, 0))


def test_a_process_may_bring_it_about_and_end():
    found = iter([False, True])
    assert wait_until(lambda: next(found), "its log", Process(None, 0))
