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


def require_online(missing: str, other_remedy: str) -> None:
    """Raise UsageError if downloads are forbidden.

    `missing` says what would be downloaded, `other_remedy` how to provide it without a download.
    """
    if is_offline():
        raise UsageError(
            "download_forbidden",
            f"{VARIABLE}=1 forbids downloads, but {missing}",
            hint=f"run `eos fetch` without {VARIABLE}; or, on a machine without a network, "
            f"{other_remedy}",
        )
