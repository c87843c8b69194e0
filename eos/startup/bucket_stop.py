"""Ask a run to end whose state root is a bucket.

There is no lock file that names the run. Instead, each of its ledger records has the run's id in
`owner`. `eos stop` reads the last record, and writes the marker `stops/PREFIX.NAME/RUN_ID` into the
bucket. A run looks for the marker with its own id only, so a marker can't end the next run. The run
removes its marker; one of a run that died stays, an empty object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from eos.errors import UnavailableError
from eos.folder import Folder, folder_of
from eos.plan.names import Names

_RUN_ID = re.compile("[0-9a-f]{32}")


def markers(names: Names, conf: Mapping[str, str]) -> Folder | None:
    """Return the folder of the pipeline's stop markers; None if the state root is no bucket. `conf`
    is the profile's `spark.conf`."""
    root = None if names.lock else folder_of(names.state_root, conf)  # may raise UsageError
    return None if root is None else root.child(f"stops/{names.transactional_id}")


def is_run(run_id: object) -> bool:
    """Return whether this is the id of a run. Records of older releases have none."""
    return isinstance(run_id, str) and _RUN_ID.fullmatch(run_id) is not None


def write(folder: Folder, run_id: str) -> None:
    """Ask the run to end."""
    try:
        folder.write(run_id, b"")
    except OSError as error:
        raise UnavailableError(
            "stop_marker_not_written",
            f"the stop marker {folder}/{run_id} can't be written: {error}",
            hint="check the bucket and the rights of this login; or end the run on its host with "
            "SIGTERM",
        ) from error


def requested_by(folder: Folder, run_id: str) -> str | None:
    """Return by what this run was asked to end; None if it was not. Remove the marker."""
    try:
        if not folder.exists(run_id):
            return None
    except (OSError, ValueError):
        return None  # the store does not answer as it should; the run looks again
    remove(folder, run_id)
    return f"a marker in {folder}"


def remove(folder: Folder, run_id: str) -> None:
    """Remove a marker that no run looks for any more, if the store answers."""
    with suppress(OSError, ValueError):
        folder.remove(run_id)
