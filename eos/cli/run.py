"""`eos run`: the same as `./spark-submit.sh`, for where eos is installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn


def run(words: Sequence[str]) -> NoReturn:
    """Becomes the parent of spark-submit: signals and the exit code are its own from here on."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, command(words))  # noqa: S606 - no shell is meant


def command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "eos.launch.submit", *words]
