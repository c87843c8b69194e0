"""Parse the location of a file or folder: a path of this machine, or a URI of Hadoop's file
systems.

A location stays text: as a `Path`, `s3a://bucket/x` would lose one of its slashes.
"""

from __future__ import annotations

import re
from pathlib import Path

from eos.errors import UsageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


def project_root(folder: Path) -> Path:
    """Return the nearest folder that contains `pipelines/`, from `folder` upwards, or else `folder`
    itself."""
    for candidate in (folder, *folder.parents):
        if (candidate / "pipelines").is_dir():
            return candidate
    return folder


def scheme_of(location: str) -> str:
    """Return the location's URI scheme in lower case; "" for a plain path."""
    match = _SCHEME.match(location)
    return match.group(1).lower() if match else ""


def local_path(location: str) -> Path | None:
    """Return the path of a location on this machine (`/x`, `file:/x`, `file:///x`). None for any
    other scheme."""
    scheme = scheme_of(location)
    if scheme not in ("", "file"):
        return None
    path = location[len("file:") :] if scheme else location
    return Path(path.removeprefix("//") if scheme else path)


def resolved(location: str, base: Path) -> str:
    """Return the location in absolute form: a path is resolved against `base`, and a URI loses the
    slashes at its end."""
    if not scheme_of(location):
        try:
            return str(base.resolve() / Path(location).expanduser())
        except RuntimeError as error:
            raise UsageError(
                "home_folder_unknown",
                f"the path {location!r} begins with a home folder that is not known here",
                hint="write the absolute path",
            ) from error
    scheme, rest = location.split(":", 1)
    lead = "//" if rest.startswith("//") else ""
    return f"{scheme}:{lead}{rest.removeprefix(lead).rstrip('/')}"
