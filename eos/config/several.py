"""Check whether one process can run several pipelines."""

from __future__ import annotations

from collections.abc import Sequence

from eos.config.model import PipelineFile
from eos.errors import UsageError


def require_compatible(pipelines: Sequence[PipelineFile]) -> None:
    """Raise UsageError if two of the pipelines can't run in the same process.

    They have the same names in Kafka, or are of two projects: a process imports `pipelines` from
    one folder only, and has one profile, and so one set of Spark settings.
    """
    first = pipelines[0]
    files = {first.name: first}
    for each in pipelines[1:]:
        same = files.setdefault(each.name, each)
        if same is not each:
            raise UsageError(
                "pipeline_repeated",
                f"two pipelines of this run have the name {each.name!r}: {same.path} and "
                f"{each.path}; one would fence the other",
                hint="name each pipeline once, or give one of them another `name`",
            )
        if each.project_root != first.project_root:
            raise UsageError(
                "projects_differ",
                f"{first.name!r} is of the project {first.project_root}, and {each.name!r} of "
                f"{each.project_root}; one process runs pipelines of one project only",
                hint="start a process for each project, or move the pipelines into the same "
                "folder `pipelines`",
            )
