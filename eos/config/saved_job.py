"""The declaration of a Python job, which its start saves in the state root for the commands.

It has the keys of a pipeline file, in JSON, which is YAML. So `eos status NAME` finds a job as it
finds a pipeline file. Nothing runs it: it has the names of the job's functions, and no code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eos.config.load import load_pipeline
from eos.errors import UnavailableError
from eos.folder import Folder, folder_of

if TYPE_CHECKING:
    from eos.config.model import PipelineFile, ProfileFile

_SUFFIX = ".json"
# Characters that YAML refuses or reads as the end of a line, and JSON does not escape. All others
# stay as they are: JSON would escape an emoji as two halves, which YAML refuses.
_NOT_IN_YAML = re.compile(r"[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


def save(profile: ProfileFile, name: str, declared: Mapping[str, Any]) -> None:
    """Write the declaration, if the state root is on a disk or in a bucket of S3."""
    folder = _folder(profile)
    if folder is None:
        return
    # `$` begins a variable in a pipeline file, and is plain text in a job.
    text = _NOT_IN_YAML.sub(_escaped, json.dumps(declared, indent=2, ensure_ascii=False))
    text = text.replace("$", "$$")
    with _accessible(folder):
        folder.create()
        folder.write(_file(profile, name), f"{text}\n".encode())


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def load(profile: ProfileFile, name: str, project: Path) -> PipelineFile | None:
    """Return the job's declaration; None if there is none. Paths in it are relative to `project`,
    as they were to the folder in which the job was started."""
    folder, file = _folder(profile), _file(profile, name)
    if folder is None:
        return None
    with _accessible(folder):
        if not folder.exists(file):
            return None
        text = folder.read(file).decode(errors="replace")
    place = project / file
    found = load_pipeline(place, text=text)
    return found.found_at(place, project, found.places)


def is_job(pipeline: PipelineFile) -> bool:
    """Return whether the pipeline is a Python job, which has no file that could be run."""
    return pipeline.path.suffix == _SUFFIX


@contextmanager
def _accessible(folder: Folder) -> Iterator[None]:
    """Turn an OSError within the context into an UnavailableError."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            "jobs_folder_inaccessible",
            f"the folder {folder} of the Python jobs' declarations can't be used: {error}",
            hint="is the state root in the profile right, is it reachable, and may this user read "
            "and write there?",
        ) from error


def _folder(profile: ProfileFile) -> Folder | None:
    root = folder_of(profile.state.root, profile.spark.conf)
    return None if root is None else root.child("jobs")


def _file(profile: ProfileFile, name: str) -> str:
    return f"{profile.names.prefix}.{name}{_SUFFIX}"
