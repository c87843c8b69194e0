"""Seeds each bug of `bugs.py` into a copy of the tree, and checks that its tests find it.

    ./tests/run mutations              # all of them
    ./tests/run mutations acks retry   # those with one of these words in their names
    ./tests/run mutations --record     # and keep the outcomes, for docs/mutations.md

Before any bug is seeded, the tests must pass in the copy. A bug is found if pytest ran and a test
failed; if the tests can't be imported, or run too long, it is not. The exit code is 1 if a bug
survives.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from mutations.bugs import BUGS, Bug
from mutations.page import OUTCOMES, recorded

ROOT = Path(__file__).parents[2]
_LEFT_OUT = (".git", ".venv", ".eos", "site", "__pycache__", "*_cache", ".hypothesis")
_TIMEOUT_S = 900
_FAILED = 1  # pytest's exit code if tests ran and some failed
_RECORD = "--record"
_OUTCOMES = {0: "SURVIVED", _FAILED: "found"}


def mutated(bug: Bug, root: Path) -> str:
    """The text of the file with the bug in it."""
    text = (root / bug.path).read_text(encoding="utf-8")
    assert text.count(bug.old) == 1, f"{bug.name}: {bug.path} has it {text.count(bug.old)} times"
    return text.replace(bug.old, bug.new)


def copied(folder: Path) -> Path:
    copy = folder / "tree"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    (copy / ".venv").symlink_to((ROOT / ".venv").resolve())
    return copy


def pytest(copy: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Pytest's exit code, or -1 after the time limit; and the end of what it printed."""
    command = [str(copy / ".venv/bin/python"), "-m", "pytest", "-q", "-x", "-n", "0", *tests]
    kept = {name: value for name, value in os.environ.items() if name != "EOS_TESTS"}
    try:
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider"],
            cwd=copy,
            # Programs that a test starts import the copy, too.
            env={**kept, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"no end within {_TIMEOUT_S} s"
    return done.returncode, (done.stdout + done.stderr)[-2_000:]


def check(bug: Bug, copy: Path) -> str:
    """Whether its tests find it, in a word or a few."""
    path, begun = copy / bug.path, time.monotonic()
    sound = path.read_text(encoding="utf-8")
    path.write_text(mutated(bug, copy), encoding="utf-8")
    try:
        code, output = pytest(copy, bug.tests)
    finally:
        path.write_text(sound, encoding="utf-8")
    outcome = _OUTCOMES.get(code, f"NO RESULT (pytest ended with {code})")
    print(f"{outcome:9} {time.monotonic() - begun:5.0f} s  {bug.name}", flush=True)
    if code != _FAILED:
        print(output, flush=True)
    return outcome


def main(words: Sequence[str]) -> int:
    is_recording = _RECORD in words
    words = [word for word in words if word != _RECORD]
    chosen = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    if not chosen:
        print(f"no bug has {' or '.join(words)} in its name", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = copied(Path(folder))
        code, output = pytest(copy, sorted({test for bug in chosen for test in bug.tests}))
        if code != 0:
            print(f"without a bug, the tests must pass:\n{output}")
            return 1
        outcomes = {bug.name: check(bug, copy) for bug in chosen}
    if is_recording:
        text = json.dumps({**recorded(), **outcomes}, indent=1, sort_keys=True)
        OUTCOMES.write_text(f"{text}\n", encoding="utf-8")
    found = list(outcomes.values()).count(_OUTCOMES[_FAILED])
    print(f"{found} of {len(outcomes)} bugs found")
    return 0 if found == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
