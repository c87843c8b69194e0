"""The page docs/faults.md.

PYTHONPATH=tests .venv/bin/python -m faults.page > docs/faults.md
"""

from __future__ import annotations

import sys
from collections import Counter

from faults import FAULTS, SECTIONS
from faults.fault import Fault
from faults.outcomes import outcome_of, recorded

_HEAD = """# Faults

After this page you know which faults the tests inject, what a pipeline does then, and which test shows it. In each of
them, a `read_committed` reader of the targets sees the output of each record once. A message is the code of an error
in [messages.md](messages.md); without one, a run reports a warning or nothing.

This page is generated from `tests/faults`. The outcome is that of the last recorded runs of the named tests
(`python -m faults.outcomes`); "not run" if one of them was not recorded yet. A fault without a test says why. [mutations.md](mutations.md) lists bugs that these and
other tests find.

"""  # noqa: E501 - a page of docs/ has longer lines
_COLUMNS = (
    "| fault | injected | the pipeline | message | tests | outcome |\n" + "| --- " * 6 + "|\n"
)


def page() -> str:
    outcomes = recorded()
    found = [outcome_of(fault.tests, outcomes) for fault in FAULTS]
    counts = ", ".join(f"{number} {outcome}" for outcome, number in Counter(found).most_common())
    text = f"{_HEAD}{len(FAULTS)} faults: {counts}.\n"
    for name, faults in SECTIONS.items():
        rows = "".join(_row(fault, outcomes) for fault in faults)
        text += f"\n## {name}\n\n{_COLUMNS}{rows}"
    return text


def _row(fault: Fault, outcomes: dict[str, str]) -> str:
    message = f"[`{fault.message}`](messages.md#{fault.message})" if fault.message else ""
    tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in fault.tests)
    outcome = outcome_of(fault.tests, outcomes)
    cells = (fault.name, fault.injected, fault.reaction, message, tests, outcome)
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
