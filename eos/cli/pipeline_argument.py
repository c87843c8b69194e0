"""The lookup of a command's PIPELINE argument: the path of a file, its folder, or a name."""

from __future__ import annotations

import shlex
from argparse import Namespace
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from eos.config import saved_job
from eos.config.literals import duration_ms, instant_ms
from eos.config.load import load_pipeline, load_profile, name_of
from eos.config.model import PipelineFile, Profile
from eos.errors import UsageError
from eos.folder import Folder
from eos.location import project_root

_SINCE_MS_MAX = 100 * 365 * 86_400_000


def project_of_cwd() -> Path:
    """Return the project that contains the working folder."""
    return project_root(Path.cwd())


def find_pipeline(argument: str, profile: str | None = None) -> PipelineFile:
    """Return the pipeline of a command's argument.

    A name may also be that of a Python job that ran with the state root of `profile`.
    """
    try:
        return load_pipeline(file_of(argument))
    except UsageError as error:
        project = project_of_cwd()
        is_name = error.code == "pipeline_not_found"
        job = saved_job.load(load_profile(profile, project), argument, project) if is_name else None
        if job is None:
            raise
        return job


def find_chosen(options: Namespace) -> tuple[PipelineFile, Profile]:
    """Return the pipeline and the profile that a command's options name."""
    pipeline = find_pipeline(options.pipeline, options.profile)
    return pipeline, load_profile(options.profile, pipeline.project_root)


def repeated(options: Namespace) -> str:
    """Return the words that name pipeline and profile in a suggested next command."""
    profile = ["--profile", options.profile] if options.profile else []
    return shlex.join([options.pipeline, *profile])


def file_of(argument: str) -> Path:
    """Return the path of a pipeline file.

    A name is looked up in the project that contains the working folder. So users can copy commands
    from hints, which contain only the name.
    """
    path = Path(argument)
    is_there = path.is_file() or (path / "pipeline.yaml").is_file()
    if is_there or "/" in argument or path.suffix in {".yaml", ".yml", ".md", ".markdown"}:
        return path
    project = project_of_cwd()
    # Compare with the `name` in each file. A folder may have another name than its pipeline, even
    # the name of another pipeline.
    files = sorted((project / "pipelines").glob("*/pipeline.yaml"))
    for file in sorted(files, key=lambda file: file.parent.name != argument):
        with suppress(UsageError):  # skip a file that is not text: it is another pipeline's
            if name_of(file)[0] == argument:
                return _relative(file)
    pipelines = project / "pipelines"
    if (pipelines / argument).is_dir():
        return _relative(pipelines / argument)
    raise UsageError(
        "pipeline_not_found",
        f"there is no pipeline {argument!r} in {pipelines}, and no such file",
        hint="give the path of its pipeline.yaml, or its name inside its project; `ls "
        f"{pipelines}` lists the pipelines. A Python job is found once it has run, with "
        "the profile whose `state.root` it has",
    )


def _relative(path: Path) -> Path:
    """Return the path relative to the working folder, or unchanged if it is not inside."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def audit_location(profile: Profile) -> Folder:
    from eos.audit.updater import location_of  # late: it imports pyarrow, which takes time

    found = location_of(profile)
    if found is None:
        raise UsageError(
            "state_root_remote",
            f"profile {profile.name!r}: the state root {profile.state.root} is neither a folder of "
            "this machine nor a bucket of S3, so there is no audit table",
            hint="use a profile whose `state.root` is a local folder or `s3a://`; without one, "
            "`eos recover NAME` shows the ledger's last records",
        )
    return found


def since(text: str | None) -> datetime | None:
    """Return the time that `--since` gives, as a time or as a duration before now.

    A time without a zone is UTC. Return None without `--since`.
    """
    if text is None:
        return None
    now = datetime.now(timezone.utc)
    with suppress(ValueError):
        return now - timedelta(milliseconds=duration_ms(text, ms_max=_SINCE_MS_MAX))
    with suppress(ValueError):
        return datetime.fromtimestamp(instant_ms(text) / 1000, timezone.utc)
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise UsageError(
            "since_invalid",
            f"--since {text!r} is neither a time nor a duration",
            hint='write `--since "2 hours"` or `--since 2026-11-21T10:00:00Z`',
        ) from error
    return at if at.tzinfo else at.replace(tzinfo=timezone.utc)
