"""The file `cluster.json` of an embedded Kafka cluster: cluster id, Kafka version, node ports."""

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
from eos.local.jars import BROKER_VERSION, BROKER_VERSIONS

_NAME = "cluster.json"


def read(root: Path) -> dict[str, Any]:
    """Return the content of `cluster.json`. If the file does not exist, `ports` is empty."""
    try:
        found: dict[str, Any] = json.loads((root / _NAME).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {"ports": []}
    except PermissionError as error:
        reason = error.strerror
        raise UsageError(
            "broker_data_unreadable",
            f"this user can't read the embedded broker's data in {root}: {reason}",
            hint=private_files.SHARE,
        ) from error
    return found


def write(root: Path, known: Mapping[str, Any]) -> None:
    unfinished = root / f"{_NAME}.{os.getpid()}"
    with open(unfinished, "w", encoding="ascii", opener=private_files.opener) as file:
        json.dump(known, file)
        file.flush()
        os.fsync(file.fileno())  # else a power cut could leave an empty file
    unfinished.replace(root / _NAME)


def require_version(root: Path, known: Mapping[str, Any], requested: str | None) -> None:
    """Raise UsageError if the user requests another Kafka version than the existing data has.

    `known` is the content of `cluster.json`. Data keeps the version that the user gave when it was
    created, because another version would convert the data or could not read it. Data that was
    created without a version always uses the newest one."""
    version = str(known.get("version", BROKER_VERSION))
    required = requested or version
    if required not in BROKER_VERSIONS:
        available = ", ".join(BROKER_VERSIONS)
        raise UsageError(
            "broker_version_unknown",
            f"the embedded broker has no version {required}",
            hint=f"choose from {available}",
        )
    if required != version:
        raise UsageError(
            "broker_version_mismatch",
            f"`{root}` has the data of a broker {version}, but {required} was requested",
            hint=f"remove --version to use that data, or delete `{root}`",
        )


def new_id() -> str:
    """Return a random cluster id in Kafka's format.

    It is 16 random bytes as unpadded URL-safe base64. It must not begin with `-`."""
    return "E" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
