"""Seeded bugs: each can be seeded, its tests exist, and the page lists it."""

from __future__ import annotations

from collections import Counter

import pytest
from mutations.bugs import BUGS, Bug
from mutations.check import ROOT, mutated
from mutations.page import page, recorded
from support.selection import problem_of


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_can_be_seeded_and_its_tests_exist(bug: Bug) -> None:
    compile(mutated(bug, ROOT), bug.path, "exec")
    assert [problem_of(test) for test in bug.tests if problem_of(test)] == []


def test_names_are_unique_and_there_are_enough() -> None:
    assert max(Counter(bug.name for bug in BUGS).values()) == 1
    assert len(BUGS) >= 20
    assert recorded().keys() <= {bug.name for bug in BUGS}


def test_the_page_is_current() -> None:
    command = "PYTHONPATH=tests .venv/bin/python -m mutations.page > docs/mutations.md"
    assert (ROOT / "docs/mutations.md").read_text(encoding="utf-8") == page(), command
