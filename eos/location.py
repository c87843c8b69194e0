"""Where something lies: a path of this machine, or a URI that Hadoop's file systems understand.

A location stays the text that it was: as a `Path`, `s3a://bucket/x` would lose one of its slashes.
"""

from __future__ import annotations

import re
from pathlib import Path

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


def scheme_of(location: str) -> str:
    """In small letters; empty for a plain path."""
    match = _SCHEME.match(location)
    return match.group(1).lower() if match else ""


def local_path(location: str) -> Path | None:
    """For a plain path, `file:/x` and `file:///x`; None for what lies elsewhere."""
    scheme = scheme_of(location)
    if scheme not in ("", "file"):
        return None
    path = location[len("file:") :] if scheme else location
    return Path(path.removeprefix("//") if scheme else path)


def resolved(location: str, base: Path) -> str:
    """A URI as it is, without slashes at its end; a plain path relative to `base`."""
    if not scheme_of(location):
        return str(base.resolve() / Path(location).expanduser())
    scheme, rest = location.split(":", 1)
    lead = "//" if rest.startswith("//") else ""
    return f"{scheme}:{lead}{rest.removeprefix(lead).rstrip('/')}"
