"""Create files that only this user can read, or a group that the user chose.

The project's own files are private: locks, logs, the broker's data, checkpoints. They contain
records, and any user who can open a lock file can hold the lock. So their modes do not depend on
the umask: 0700 for a folder, 0600 for a file.

A folder is shared if its mode is 2770: for its group, and not for others. Files and folders that
are created inside it belong to the same group and are shared as well: 2770 and 0660.

Files that users asked for, such as tables and new projects, use the user's umask.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from eos.errors import UsageError

# The hint in messages about a folder or a lock of another user.
SHARE = (
    "run as the user that created it; or share the state root with a group of both users, by "
    "`state: {group: NAME}` in the profile"
)
_SHARED = stat.S_ISGID | stat.S_IRWXG
_OTHERS = stat.S_IRWXO
_BY_SPARK = "checkpoints"  # Spark creates this folder
# The state root's folders that contain records, locks or logs, so they are private.
_OWN = (_BY_SPARK, "audit", "broker", "dedup", "jobs", "locks", "logs", "ship", "stops", "verified")


def create_folder(folder: Path) -> Path:
    """Create a private folder and its missing parents. An existing folder keeps its mode."""
    if folder.is_dir():
        return folder
    create_folder(folder.parent)
    with contextlib.suppress(FileExistsError):  # another process created it
        folder.mkdir(mode=0o700)
        _restrict_folder(folder)
    return folder


def own(folder: Path) -> Path:
    """Create a private folder. If it exists and this user owns it, remove the permissions of other
    users."""
    create_folder(folder)
    _restrict_folder(folder)
    return folder


def opener(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file as a private one. Use it as `open(path, "wb", opener=private_files.opener)`.

    If this user owns an existing file, other users lose their permissions on it.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    found = os.fstat(descriptor)
    mode = 0o660 if is_shared(Path(path).parent) else 0o600
    if stat.S_IMODE(found.st_mode) != mode:
        with contextlib.suppress(PermissionError):  # the file is another user's, or has no modes
            os.fchmod(descriptor, mode)
    return descriptor


def touch(file: Path) -> None:
    """Create an empty private file."""
    os.close(opener(file, os.O_WRONLY | os.O_CREAT))


def umask_in(folder: Path) -> int:
    """Return the umask for a program that writes its files into this folder."""
    return 0o007 if is_shared(folder) else 0o077


def is_shared(folder: Path) -> bool:
    """Return whether new files in this folder are also accessible for the folder's group."""
    return folder.stat().st_mode & (_SHARED | _OTHERS) == _SHARED


def prepare_root(root: Path, group: str | None) -> None:
    """Create the state root, share it with the group if there is one, and restrict its folders.

    An existing root keeps its mode unless a group is given, because it may be any folder of the
    user's. Folders inside it that this project created lose the permissions of others.
    """
    create_folder(root)
    if group is not None:
        _share(root, group)
    is_open = bool(root.stat().st_mode & _OTHERS)
    for name in _OWN:
        if (root / name).is_dir() or (is_open and name == _BY_SPARK):
            own(root / name)


def _restrict_folder(folder: Path) -> None:
    """Remove the permissions of other users. If the folder belongs to another user, or its file
    system has no modes, leave it unchanged."""
    found = folder.stat()
    if found.st_uid != os.geteuid():
        return
    if is_shared(folder.parent):
        group = folder.parent.stat().st_gid
        if found.st_gid != group:
            os.chown(folder, -1, group)
        mode = _SHARED | stat.S_IRWXU
    else:
        mode = stat.S_IMODE(found.st_mode) & ~(_OTHERS if is_shared(folder) else _SHARED | _OTHERS)
    if stat.S_IMODE(found.st_mode) != mode:
        with contextlib.suppress(PermissionError):
            folder.chmod(mode)


def _share(root: Path, group: str) -> None:
    import grp  # imported here: not every system has it, and most roots have no group

    hint = "use a group of this user in `state: {group: NAME}` of the profile; `id` lists them"
    try:
        number = int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise UsageError(
            "state_group_unknown", f"the group `{group}` does not exist on this machine", hint=hint
        ) from None
    if root.stat().st_gid == number and is_shared(root):
        return
    try:
        os.chown(root, -1, number)
        root.chmod(_SHARED | stat.S_IRWXU)
    except PermissionError as error:
        reason = error.strerror
        raise UsageError(
            "state_root_not_shareable",
            f"the state root {root} can't be shared with group `{group}`: {reason}",
            hint=f"{hint}. The owner of {root}, or root, can also run "
            f"`chgrp {group} {root} && chmod 2770 {root}`",
        ) from error
