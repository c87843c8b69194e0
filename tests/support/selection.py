"""Which tests there are, which the quick run leaves out, and which this machine can't run.

`tests/slow.txt` lists the tests that take too long for `./tests/run quick`. To write it again,
after a default run on two cores:

    ./tests/run all --junitxml=report.xml
    PYTHONPATH=tests .venv/bin/python -m support.selection report.xml > tests/slow.txt
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "slow.txt"
QUICK = ("pure", "fuzz", "architecture")
# Of a test, and of all cases of a parametrized one. Other tests ran at the same time.
SECONDS_MAX, ALL_SECONDS_MAX = 0.25, 1.0


def slow_names() -> set[str]:
    return {line for line in LIST.read_text().splitlines() if not line.startswith("#")}


def without_parameters(nodeid: str) -> str:
    """The id of a test without its parameters."""
    return nodeid.partition("[")[0]


def slow_in(report: Path) -> list[str]:
    total, longest = Counter[str](), Counter[str]()
    for case in ET.parse(report).iter("testcase"):
        _, folder, module, *inside = case.attrib["classname"].split(".")
        if folder in QUICK:
            path = f"tests/{folder}/{module}.py"
            name = without_parameters("::".join([path, *inside, case.attrib["name"]]))
            seconds = float(case.attrib["time"])
            total[name] += seconds
            longest[name] = max(longest[name], seconds)
    return sorted(
        name for name in total if longest[name] >= SECONDS_MAX or total[name] >= ALL_SECONDS_MAX
    )


@cache
def functions(file: str) -> frozenset[str]:
    """Names of the test functions in a file, and of the test classes that a state machine makes."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    names |= {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return frozenset(name for name in names if name.startswith(("test", "Test")))


def problem_of(test: str) -> str:
    """Why a page or catalogue names no test by `tests/FOLDER/FILE.py`, perhaps with `::FUNCTION`.

    Empty if there is one."""
    file, _, function = test.partition("::")
    if not (ROOT / file).is_file():
        return f"{test}: there is no such file"
    if function and function.partition("[")[0] not in functions(file):
        return f"{test}: the file has no such function"
    return ""


Select = Callable[[pytest.Config, list[pytest.Item]], None]
Summary = Callable[[pytest.TerminalReporter], None]


def left_out(
    conftest: str, what: str, missing: Callable[[], Sequence[str]]
) -> tuple[Select, Summary]:
    """Leave out a folder of tests whose programs this machine lacks, with one line about it.

    Return the hooks `pytest_collection_modifyitems` and `pytest_terminal_summary` for the
    folder of `conftest`. Its `install.sh` installs what `missing` returns."""
    folder = Path(conftest).parent

    def select(config: pytest.Config, items: list[pytest.Item]) -> None:
        if missing():
            ours = [item for item in items if folder in Path(item.path).parents]
            config.hook.pytest_deselected(items=ours)
            items[:] = [item for item in items if item not in ours]

    def summary(terminalreporter: pytest.TerminalReporter) -> None:
        if missing():
            terminalreporter.line(
                f"LEFT OUT: the tests with {what}: {', '.join(missing())} not here; "
                f"tests/{folder.name}/install.sh"
            )

    return select, summary


if __name__ == "__main__":
    print("# Written by tests/support/selection.py.", *slow_in(Path(sys.argv[1])), sep="\n")
