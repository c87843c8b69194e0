"""The process of spark-submit, as the launcher starts it in client and in cluster mode."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from eos.local.processes import end_with_parent


def start(
    arguments: Sequence[str], environment: Mapping[str, str], log: BinaryIO
) -> subprocess.Popen[bytes]:
    """Start spark-submit in a session of its own. Its stdout goes to our stderr, its stderr to
    `log`.

    A terminal's Ctrl-C does not reach that session. On Linux the process ends with this one."""
    return subprocess.Popen(
        list(arguments),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=log,
        start_new_session=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509 - no other thread runs here yet
    )
