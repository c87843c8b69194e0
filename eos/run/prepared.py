"""The preparation of a run: its pipeline, profile and functions are loaded and checked.

Nothing here starts Spark or sends a request to Kafka.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eos.config.load import load_profile
from eos.config.trigger import Ending
from eos.errors import UsageError, naming
from eos.faults import CrashPlan
from eos.full_disk import naming_full_disk
from eos.plan.plan import Plan, plan
from eos.run.observing import LoadedObserver, load_observers
from eos.startup.deployment import with_deployment
from eos.transform.functions import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.config.model import PipelineFile, Profile
    from eos.transform.functions import Transform


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run's command line.

    `ends` overrides the trigger of the pipeline file. With `until_ms`, the run reads only the
    records before that time; `ends` must be set then. `bootstrap_from` is a file in which another
    process writes Kafka's addresses. The run waits for it only after all work that needs no Kafka.
    """

    profile: str | None = None
    bootstrap: str | None = None
    bootstrap_from: Path | None = None
    ends: Ending | None = None
    take_over: bool = False
    accepts_state_loss: bool = False
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A pipeline that is ready to run."""

    planned: Plan
    profile: Profile
    observers: Sequence[LoadedObserver]
    crash: CrashPlan
    frame: DataFrame | None = None  # of a Python job that reads no topics by this project

    @property
    def name(self) -> str:
        return self.planned.names.pipeline

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """Add the pipeline's name, or that of a full disk, to errors in this context."""
        with naming(self.name), naming_full_disk(self.name, self._folders):
            yield

    def _folders(self) -> list[str]:
        """Return the locations that a run writes to. Some may be remote."""
        profile = self.profile
        blocks = os.environ.get("SPARK_LOCAL_DIRS") or profile.spark.conf.get("spark.local.dir", "")
        tables = [table.path for table in self.planned.tables]
        return [profile.state.root, *tables, *filter(None, blocks.split(","))]


def prepare(pipeline: PipelineFile, options: RunOptions) -> PreparedRun:
    """Load what the pipeline file names. Raise EosError if something is wrong with it."""
    if pipeline.source.dataframe:
        raise UsageError(
            "source_dataframe_in_file",
            f"{pipeline.path} has the source `dataframe`, which only a Python job can have",
            hint="set `source.kafka`; or start the job by its own program (docs/python.md)",
        )
    profile = load_profile(options.profile, pipeline.project_root)
    functions = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    return prepare_with(pipeline, profile, functions, options)


def prepare_with(
    pipeline: PipelineFile,
    profile: Profile,
    transforms: Sequence[Transform],
    options: RunOptions,
    jvm: int | None = None,
) -> PreparedRun:
    """Return a run of the pipeline with this profile and these steps, which are loaded already.

    `jvm` is the process id of Spark's JVM if it is not this process's parent."""
    is_later = options.bootstrap_from is not None
    addresses = _addresses(profile, options.bootstrap, is_later=is_later)
    observers = load_observers(profile)
    planned = with_deployment(plan(pipeline, profile, addresses, transforms))
    return PreparedRun(planned, profile, observers, CrashPlan.from_environment(jvm))


def _addresses(profile: Profile, bootstrap: str | None, *, is_later: bool) -> tuple[str, ...]:
    """Return Kafka's addresses from the command line or the profile. Return () if a file provides
    them later."""
    addresses = tuple(bootstrap.split(",")) if bootstrap else profile.kafka.bootstrap
    if not addresses and not is_later:
        raise UsageError(
            "bootstrap_missing",
            f"profile {profile.name!r} has no kafka.bootstrap",
            hint="set kafka.bootstrap, or run ./spark-submit.sh, which starts an embedded broker "
            "for such a profile",
        )
    return addresses or ()
