"""The page docs/mutations.md.

PYTHONPATH=tests .venv/bin/python -m mutations.page > docs/mutations.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mutations.bugs import BUGS

OUTCOMES = Path(__file__).with_name("outcomes.json")
_HEAD = """# Seeded bugs

After this page you know which bugs the tests are known to find, and how to repeat the check. A test that can't fail
proves nothing. So `./tests/run mutations`, a part of the nightly run, seeds each bug below into a copy of the source,
runs the named tests, and fails if they pass. Without a bug the same tests must pass.

```bash
./tests/run mutations          # all
./tests/run mutations epoch    # those with this word in the first column
./tests/run mutations --record && PYTHONPATH=tests .venv/bin/python -m mutations.page > docs/mutations.md
```

| seeded bug | file | without a test, it would mean | found by | last recorded run |
| --- | --- | --- | --- | --- |
"""  # noqa: E501 - a page of docs/ has longer lines

_TAIL = """
Each is a change of one place. The check shows that the named tests find these bugs. It does not show that they
find others. This page is generated from `tests/mutations/bugs.py`.
"""  # noqa: E501


def recorded() -> dict[str, str]:
    """The outcome of each bug in the last run that was recorded, by its name."""
    found: dict[str, str] = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    return found


def page() -> str:
    outcomes = recorded()
    rows = [
        f"| {bug.name} | `{bug.path}` | {bug.effect} | {', '.join(map(_test, bug.tests))} | "
        f"{outcomes.get(bug.name, 'not run')} |\n"
        for bug in BUGS
    ]
    return _HEAD + "".join(rows) + _TAIL


def _test(name: str) -> str:
    file, _, function = name.removeprefix("tests/").partition("::")
    return f"`{file}`: `{function}`" if function else f"`{file}`"


if __name__ == "__main__":
    sys.stdout.write(page())
