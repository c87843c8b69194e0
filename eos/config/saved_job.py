"""The declaration of a Python job, which its start saves in the state root for the commands.

It has the keys of a pipeline file, in JSON, which is YAML. So `eos status NAME` finds a job as it
finds a pipeline file. Nothing runs it: it has the names of the job's functions, and no code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eos import private_files
from eos.location import local_path

_FOLDER = "jobs"


def path_of(state_root: str, prefix: str, name: str) -> Path | None:
    """Return the path of the job's file; None if the state root is no folder of this machine."""
    root = local_path(state_root)
    return None if root is None else Path(root) / _FOLDER / f"{prefix}.{name}.json"


def save(path: Path, declared: Mapping[str, Any]) -> None:
    """Write the declaration, so that a reader finds the old or the new one."""
    private_files.create_folder(path.parent)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    # `$` begins a variable in a pipeline file, and is plain text in a job.
    text = json.dumps(declared, indent=2).replace("$", "$$")
    with open(new, "w", opener=private_files.opener) as file:
        file.write(f"{text}\n")
    new.replace(path)
