"""How is a deployment named, so that it recognizes its own record in the ledger?

The profile may set the name (`deployment:`). It is trusted, so it has to be unique for each running
instance, such as a StatefulSet's pod name. By default the deployment is a random id. The first
startup creates it in a file in the state root. This needs a state root that the kernel can lock.
Without a lock, two instances could use the same id at the same time and fence each other.
"""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import replace
from pathlib import Path

from eos import private_files
from eos.deadline import Deadline
from eos.errors import PromiseBrokenError, UnavailableError, UsageError
from eos.local.file_locks import exclusive, has_no_locks
from eos.local.mounts import shared_type
from eos.location import local_path
from eos.plan.plan import Plan

FILE = "deployment"
_ID = re.compile(r"[0-9a-f]{32}\n?", re.ASCII)
_BYTES_MAX = 200
_LOCK_MS = 30_000
_EXPLICIT = (
    "set `deployment: NAME` in the profile, to a name that no other running instance has. For "
    'example, `deployment: "${POD_NAME}"` uses the pod name of a StatefulSet (docs/clusters.md)'
)


def with_known_deployment(planned: Plan) -> Plan:
    """Return the plan with its deployment, but do not create an id. The deployment stays empty
    before the first startup, or if the state root can't hold an id."""
    path = _file(planned)
    if planned.deployment or path is None or shared_type(path.parent):
        return planned
    return replace(planned, deployment=_read(planned, path))


def with_deployment(planned: Plan) -> Plan:
    """Return the plan with its deployment. If the state root has no id yet, create one.

    Raise UsageError if the profile sets no deployment and the state root can't hold an id.
    """
    if planned.deployment:
        return planned
    require_name(planned)
    path = _file(planned)
    assert path is not None, "a state root that can be locked is a folder"
    try:
        return replace(planned, deployment=_locked_id(planned, path))
    except OSError as error:
        if has_no_locks(error):
            raise _needs_name(planned, "has no file locks") from error
        raise _unusable(planned, path, "written", error) from error


def _file(planned: Plan) -> Path | None:
    root = local_path(planned.names.state_root) if planned.names.state_root else None
    return None if root is None else root / FILE


def require_name(planned: Plan) -> None:
    """Raise UsageError if the profile sets no deployment, and the state root is remote or on a
    shared file system and so can't hold an id."""
    if planned.deployment:
        return
    path = _file(planned)
    if path is None:
        raise _needs_name(planned, "is not a folder on this machine, so it can't be locked")
    kind = shared_type(path.parent)
    if kind:
        raise _needs_name(
            planned,
            f"is on a shared file system ({kind}), whose locks may not work between machines",
        )


def _needs_name(planned: Plan, reason: str) -> UsageError:
    name, root = planned.names.pipeline, planned.names.state_root
    return UsageError(
        "deployment_required",
        f"{name}: the profile sets no `deployment`, and the state root {root} {reason}. A second "
        "instance could not be distinguished from the running one",
        hint=_EXPLICIT,
        pipeline=name,
    )


def _locked_id(planned: Plan, path: Path) -> str:
    """Return the deployment id in the state root, and create it if there is none. Other processes
    never see a half-written file.

    The lock is taken even if an id exists: the state root may have been copied to a file system
    without locks.
    """
    private_files.create_folder(path.parent)
    with exclusive(path.with_name(f".{FILE}.lock"), Deadline.after_ms(_LOCK_MS)):
        found = _read(planned, path)
        if found:
            return found
        created = uuid.uuid4().hex
        unfinished = path.with_name(f".{FILE}.new")
        unfinished.unlink(missing_ok=True)  # a process that died may have left it
        descriptor = private_files.opener(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{created}\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        _sync(path.parent)
        return created


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(planned: Plan, path: Path) -> str:
    """Return the deployment id; "" if there is no file. Raise PromiseBrokenError if the file is
    damaged, because with a new id this deployment would not recognize its own ledger records."""
    try:
        with path.open("rb") as file:
            text = file.read(_BYTES_MAX + 1).decode("ascii", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _unusable(planned, path, "read", error) from error
    if not _ID.fullmatch(text):
        name = planned.names.pipeline
        shown = text[:40] + "..." * (len(text) > 40)
        raise PromiseBrokenError(
            "deployment_damaged",
            f"{name}: the deployment id in {path} is damaged: {shown!r} is not 32 hexadecimal "
            "digits",
            hint="restore the file from a backup. Without one, delete the file: the next run "
            "creates a new id. If the last run did not end cleanly (`eos recover "
            f"{name}` shows the ledger's last record), start once with --take-over",
            pipeline=name,
            path=str(path),
        )
    return text.strip()


def _unusable(planned: Plan, path: Path, action: str, error: OSError) -> UnavailableError:
    return UnavailableError(
        "deployment_file_inaccessible",
        f"{planned.names.pipeline}: the deployment id in {path} can't be {action}: "
        f"{error.strerror or error}",
        hint="is the disk full, or may this user not read and write there? If so, "
        f"{private_files.SHARE}",
        pipeline=planned.names.pipeline,
        path=str(path),
    )
