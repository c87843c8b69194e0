"""Where downloads live: the user's cache, shared by every checkout and every process."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """`$XDG_CACHE_HOME/spark-eos`, else `~/.cache/spark-eos`. Made when it is missing."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    path = root / "spark-eos"
    path.mkdir(parents=True, exist_ok=True)
    return path
