"""Is a folder on a file system that several machines can mount at once?

A lock on such a file system may exclude only other processes of the same machine. Then processes of
two machines could hold the lock at the same time.
"""

from __future__ import annotations

import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
# Types in /proc/self/mountinfo, without the prefix `fuse.`
_SHARED = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cephfs",
        "cifs",
        "gcsfuse",
        "gfs2",
        "glusterfs",
        "goofys",
        "gpfs",
        "juicefs",
        "lustre",
        "mountpoint-s3",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "rclone",
        "s3fs",
        "smb3",
        "smbfs",
        "sshfs",
    }
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def shared_type(folder: Path, mounts: Path = _MOUNTS) -> str:
    """Return the type of the shared file system that contains the folder, such as "nfs4".

    Return "" for a local file system, or if this system has no list of mounts.
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    path, found = folder.resolve(), (-1, "")
    for line in lines:
        fields, _, rest = line.partition(" - ")
        point = Path(_OCTAL.sub(lambda each: chr(int(each[1], 8)), fields.split(" ")[4]))
        # A later mount at the same point hides the earlier one.
        if path.is_relative_to(point) and len(point.parts) >= found[0]:
            found = len(point.parts), rest.split(" ")[0]
    kind = found[1]
    return kind if kind.removeprefix("fuse.") in _SHARED else ""
