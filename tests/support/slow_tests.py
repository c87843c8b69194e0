"""The tests that `./tests/run quick` leaves out, because they take too long for it.

`tests/slow.txt` lists them. To write it again, after a default run on two cores:

    ./tests/run all --junitxml=report.xml
    PYTHONPATH=tests .venv/bin/python -m support.slow_tests report.xml > tests/slow.txt
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

LIST = Path(__file__).parents[1] / "slow.txt"
QUICK = ("pure", "fuzz", "architecture")
# Of a test, and of all cases of a parametrized one. Other tests ran at the same time.
SECONDS_MAX, ALL_SECONDS_MAX = 0.25, 1.0


def names() -> set[str]:
    return {line for line in LIST.read_text().splitlines() if not line.startswith("#")}


def function(nodeid: str) -> str:
    """The id of a test without its parameters."""
    return nodeid.partition("[")[0]


def slow(report: Path) -> list[str]:
    total, longest = Counter[str](), Counter[str]()
    for case in ET.parse(report).iter("testcase"):
        _, folder, module, *inside = case.attrib["classname"].split(".")
        if folder in QUICK:
            path = f"tests/{folder}/{module}.py"
            name = function("::".join([path, *inside, case.attrib["name"]]))
            seconds = float(case.attrib["time"])
            total[name] += seconds
            longest[name] = max(longest[name], seconds)
    return sorted(
        name for name in total if longest[name] >= SECONDS_MAX or total[name] >= ALL_SECONDS_MAX
    )


if __name__ == "__main__":
    print("# Written by tests/support/slow_tests.py.", *slow(Path(sys.argv[1])), sep="\n")
