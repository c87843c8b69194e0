"""Where downloads are kept: the user's cache, shared by every checkout and every process."""

from __future__ import annotations

import os
from pathlib import Path

from eos import private_files


def cache_root() -> Path:
    """Return `$XDG_CACHE_HOME/spark-eos`, else `~/.cache/spark-eos`.

    It is created if it is missing, for this user alone: whoever can write there chooses the jars
    that run. To share a cache, create the folder with another mode first.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return private_files.make(root / "spark-eos")
