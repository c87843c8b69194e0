"""Where are downloads stored? In the user's cache, shared by all checkouts and processes."""

from __future__ import annotations

import os
from pathlib import Path

from eos import private_files
from eos.errors import UsageError


def cache_root() -> Path:
    """Return the folder `$XDG_CACHE_HOME/spark-eos`, else `~/.cache/spark-eos`.

    A missing folder is created for this user alone, because a user with write access could replace
    the jars that run. To share a cache, create the folder with another mode first.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification requires that a relative path is ignored.
    try:
        root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    except RuntimeError as error:
        raise UsageError(
            "home_folder_unknown",
            "there is no folder for downloads, because this user has no home folder",
            hint="set HOME or XDG_CACHE_HOME to the absolute path of a folder",
        ) from error
    return private_files.create_folder(root / "spark-eos")
