"""`cluster.json` of an embedded cluster: its id, its version, and the ports of every node."""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eos import private_files
from eos.errors import UsageError

_NAME = "cluster.json"


def read(root: Path) -> dict[str, Any]:
    """Return what is written down of the cluster; no ports if there is none yet."""
    try:
        found: dict[str, Any] = json.loads((root / _NAME).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {"ports": []}
    except PermissionError as error:
        raise UsageError(
            f"this user can't read the embedded broker's data in {root}: {error.strerror}",
            hint=private_files.SHARE,
        ) from error
    return found


def write(root: Path, known: Mapping[str, Any]) -> None:
    unfinished = root / f"{_NAME}.{os.getpid()}"
    with open(unfinished, "w", encoding="ascii", opener=private_files.opener) as file:
        json.dump(known, file)
    unfinished.replace(root / _NAME)


def new_id() -> str:
    """Kafka's form: 16 random bytes, base64 for URLs without padding, not starting with `-`."""
    return "E" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
