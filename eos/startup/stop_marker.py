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

A bucket has no lock file. There `eos stop` reads the id in the ledger's last record, whose `owner`
has it. The marker of a run that died stays.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from eos import private_files
from eos.errors import UnavailableError, UsageError
from eos.folder import Folder, LocalFolder, folder_of
from eos.plan.names import Names
from eos.printable import one_line

_RUN_ID = re.compile("[0-9a-f]{32}")
_TEXT_MAX = 300


def markers(names: Names, conf: Mapping[str, str]) -> Folder | None:
    """Return the folder of the pipeline's stop markers; None if only Spark reaches the state root.
    `conf` is the profile's `spark.conf`."""
    if names.lock:
        return LocalFolder(Path(names.stops)) if names.stops else None
    root = folder_of(names.state_root, conf)  # may raise UsageError
    return None if root is None else root.child(f"stops/{names.transactional_id}")


def is_run(run_id: object) -> bool:
    """Return whether this is the id of a run. Ledger records of older releases have none."""
    return isinstance(run_id, str) and _RUN_ID.fullmatch(run_id) is not None


def clear(folder: Path) -> None:
    """Remove the markers of earlier runs. Create the folder, so that it belongs to the run's user
    whatever user writes the marker."""
    private_files.create_folder(folder)
    for marker in folder.iterdir():
        with suppress(OSError):  # another user's; no run looks for it
            marker.unlink()


def write(folder: Folder, run_id: str) -> None:
    """Ask the run to end. The marker's text is who asked, and when."""
    # The id becomes a part of a path, and any user of the state root's group can write it.
    if not is_run(run_id):
        raise ValueError(f"{run_id!r} is not the id of a run")
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    text = f"{_user()} on host {socket.gethostname()}, {at}\n"
    marker = f"{folder}/{run_id}"
    try:
        folder.create()
        folder.write(run_id, text.encode(errors="replace"))
    except PermissionError as error:
        raise UsageError(
            "stop_marker_denied",
            f"this user can't write the stop marker `{marker}`: {error.strerror}",
            hint=private_files.SHARE,
            path=marker,
        ) from error
    except OSError as error:
        raise UnavailableError(
            "stop_marker_not_written",
            f"the stop marker {marker} can't be written: {error}",
            hint="check the disk, or the bucket and the rights of this login; or end the run on "
            "its host with SIGTERM",
        ) from error


def read(folder: Folder, run_id: str) -> str | None:
    """Return who asked this run to end; None if nobody did.

    The marker's existence is the request. It may be empty, or not readable for this user.
    """
    try:
        if not folder.exists(run_id):
            return None
    except (OSError, ValueError):
        return None  # the store does not respond as it should; the run looks again
    with suppress(OSError, ValueError), folder.open_read(run_id) as file:
        return one_line(file.read(_TEXT_MAX).decode(errors="replace").strip())
    return ""


def remove(folder: Folder, run_id: str) -> None:
    """Remove a marker that no run looks for any more, if the store answers."""
    with suppress(OSError, ValueError):
        folder.remove(run_id)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.geteuid()}"
