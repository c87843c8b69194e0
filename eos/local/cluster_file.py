"""What does `cluster.json` of an embedded cluster contain? Its id, version, and node ports."""

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
    """Return the content of the cluster's file; no ports if it does not exist yet."""
    try:
        found: dict[str, Any] = json.loads((root / _NAME).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {"ports": []}
    except PermissionError as error:
        raise UsageError(
            "broker_data_unreadable",
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
    """Return a random cluster id in Kafka's format.

    It is 16 random bytes as unpadded URL-safe base64. It must not begin with `-`."""
    return "E" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
