"""Outcomes of the tests that the catalogue of faults names, from the reports of test runs.

    ./tests/run all --junitxml all.xml; ./tests/run long --junitxml long.xml
    PYTHONPATH=tests .venv/bin/python -m faults.outcomes all.xml long.xml

writes `outcomes.json`. Tests that a report lacks keep their outcome.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from faults import FAULTS

PLACE = Path(__file__).with_name("outcomes.json")
_WORST = ("failed", "passed", "skipped")  # of the cases of one test, the first one that occurs


def recorded() -> dict[str, str]:
    """The outcome of each test that was recorded, by its id."""
    found: dict[str, str] = json.loads(PLACE.read_text(encoding="utf-8"))
    return found


def outcome_of(tests: Iterable[str], outcomes: dict[str, str]) -> str:
    """The outcome of a fault: "passed" only if each of its tests passed."""
    found = {outcomes.get(test, "not run") for test in tests}
    return next((each for each in ("failed", "not run", "skipped", "passed") if each in found), "-")


def in_report(report: Path) -> Iterator[tuple[str, str]]:
    for case in ET.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "passed"
        yield _id(case), "skipped" if "skipped" in kinds else outcome


def _id(case: ET.Element) -> str:
    """tests.kafka.test_x and test_y[case], or tests.fuzz.test_x.TestY and runTest, as pytest's."""
    module = case.attrib["classname"].split(".")
    last = next(i for i, part in enumerate(module) if part.startswith("test_"))
    inner = [*module[last + 1 :], case.attrib["name"].partition("[")[0]]
    return f"{'/'.join(module[: last + 1])}.py::{inner[0]}"


def merged(reports: Sequence[Path], before: dict[str, str]) -> dict[str, str]:
    named = {test for fault in FAULTS for test in fault.tests}
    found: dict[str, set[str]] = {}
    for report in reports:
        for test, outcome in in_report(report):
            found.setdefault(test, set()).add(outcome)
    new = {test: next(each for each in _WORST if each in all_) for test, all_ in found.items()}
    return {test: each for test, each in sorted({**before, **new}.items()) if test in named}


if __name__ == "__main__":
    outcomes = merged([Path(word) for word in sys.argv[1:]], recorded() if PLACE.exists() else {})
    PLACE.write_text(json.dumps(outcomes, indent=1) + "\n", encoding="utf-8")
