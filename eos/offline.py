"""May this process download? Only if somebody asked for it.

`eos fetch` downloads what runs need. So do the scripts of a checkout (`./spark-submit.sh`,
`./tests/run`), which set EOS_OFFLINE=0. All else downloads nothing, unless that variable is set.
EOS_OFFLINE=1 forbids downloads to these as well.
"""

from __future__ import annotations

import os

from eos.errors import UsageError

VARIABLE = "EOS_OFFLINE"


def allow_downloads() -> None:
    """Allow this process and its children to download, unless EOS_OFFLINE forbids it."""
    if not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = "0"


def is_offline() -> bool:
    """Return whether downloads are forbidden. Raise UsageError for a value without a meaning."""
    value = os.environ.get(VARIABLE, "")
    if value not in {"", "0", "1"}:
        raise UsageError(
            "offline_unknown",
            f"{VARIABLE} is {value!r}; expected 1 or 0",
            hint=f"{VARIABLE}=0 lets runs download what they lack, and {VARIABLE}=1 forbids all "
            "downloads; unset, only `eos fetch` downloads",
        )
    return value != "0"


def require_online(missing: str, other_remedy: str) -> None:
    """Raise UsageError if downloads are forbidden.

    `missing` says what would be downloaded, `other_remedy` how to provide it without a download.
    """
    if is_offline():
        without = f" without {VARIABLE}=1" if os.environ.get(VARIABLE) else ""
        raise UsageError(
            "download_forbidden",
            f"{missing}, but this command may not download",
            hint=f"run `eos fetch`{without}, which downloads what runs need; or set {VARIABLE}=0 "
            f"to let runs download; or, on a machine without a network, {other_remedy}",
        )
