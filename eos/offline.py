"""The environment variable EOS_OFFLINE=1, with which a run downloads nothing."""

from __future__ import annotations

import os

from eos.errors import UsageError

VARIABLE = "EOS_OFFLINE"


def is_offline() -> bool:
    """Return whether downloads are forbidden. Raise UsageError for a value without a meaning."""
    value = os.environ.get(VARIABLE, "")
    if value not in {"", "0", "1"}:
        raise UsageError(
            "offline_unknown",
            f"{VARIABLE} is {value!r}; expected 1 or 0",
            hint=f"{VARIABLE}=1 forbids downloads; unset it to allow them",
        )
    return value == "1"


def require_online(missing: str) -> None:
    """Raise UsageError if downloads are forbidden. `missing` says what would be downloaded."""
    if is_offline():
        raise UsageError(
            "download_forbidden",
            f"{VARIABLE}=1 forbids downloads, but {missing}",
            hint=f"run `eos fetch` without {VARIABLE}, here or on a machine of the same platform "
            "with a network, and copy its folder ~/.cache/spark-eos",
        )
