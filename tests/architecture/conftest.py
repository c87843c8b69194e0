"""Checkers are programs of their own: they begin with the session and run beside its other tests.

Without its cache mypy takes as long as all quick tests together.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
_begun: dict[str, subprocess.Popen[str]] = {}


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        return
    for item in session.items:
        words = getattr(item, "callspec", None) and item.callspec.params.get("checker")
        if words:
            _begun[words] = _begin(words)


def pytest_unconfigure() -> None:
    """For those whose test was never reached."""
    for process in _begun.values():
        process.kill()
        process.communicate()


@pytest.fixture
def checker(request: pytest.FixtureRequest) -> subprocess.Popen[str]:
    """A command of this environment, in the checkout, that runs already."""
    return _begun.pop(request.param)


def _begin(words: str) -> subprocess.Popen[str]:
    name, *arguments = words.split()
    return subprocess.Popen(
        [str(BIN / name), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
