"""How many examples a property gets: its own number, and a fifth of it in the quick run."""

from __future__ import annotations

import os

QUICK = os.environ.get("EOS_TESTS") == "quick"  # tests/run says so


def examples(count: int) -> int:
    return max(1, count // 5) if QUICK else count
