"""The stop marker: a file in the state root by which `eos stop` asks one run to end.

A file reaches a run on each machine that has the state root, in any container and as any user of
its group. A signal does not, and might reach a process that has the same id by now.

The marker is `stops/PREFIX.NAME/RUN_ID`. A run has a new random id, writes it into the lock file,
and looks for no other marker. So a marker can't end the next run, in any order of events:
1. `eos stop` reads the id of run A in the lock file.
2. Run A ends, and run B acquires the lock.
3. `eos stop` writes A's marker. Run B looks for B's.

A run that acquires the lock removes all markers of the pipeline, and then writes its id into the
lock file. Before that, no command can know the id, so no marker for this run is removed. A marker
that is written too late stays until the next run.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from eos import private_files
from eos.errors import UsageError
from eos.printable import one_line

_RUN_ID = re.compile("[0-9a-f]{32}")
_TEXT_MAX = 300


def clear(folder: Path) -> None:
    """Remove the markers of earlier runs. Create the folder, so that it belongs to the run's user
    whatever user writes the marker."""
    private_files.create_folder(folder)
    for marker in folder.iterdir():
        with suppress(OSError):  # another user's; no run looks for it
            marker.unlink()


def write(folder: Path, run_id: str) -> None:
    """Ask the run to end. The marker's text is who asked, and when."""
    # The id becomes a part of a path, and any user of the state root's group can write it.
    if not _RUN_ID.fullmatch(run_id):
        raise ValueError(f"{run_id!r} is not the id of a run")
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    text = f"{_user()} on host {socket.gethostname()}, {at}\n"
    marker = folder / run_id
    try:
        private_files.create_folder(folder)
        with open(marker, "w", encoding="utf-8", opener=private_files.opener) as file:
            file.write(text)
    except PermissionError as error:
        raise UsageError(
            "stop_marker_denied",
            f"this user can't write the stop marker `{marker}`: {error.strerror}",
            hint=private_files.SHARE,
            path=str(marker),
        ) from error


def read(folder: Path, run_id: str) -> str | None:
    """Return who asked this run to end; None if nobody did.

    The marker's existence is the request. It may still be empty, or not readable for this user.
    """
    marker = folder / run_id
    try:
        if not marker.exists():
            return None
    except OSError:
        return None  # the file system does not respond as it should; the run looks again
    with suppress(OSError), marker.open(encoding="utf-8", errors="replace") as file:
        return one_line(file.read(_TEXT_MAX).strip())
    return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.geteuid()}"
